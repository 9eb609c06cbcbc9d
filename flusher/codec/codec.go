// Package codec compresses bytes on their way to a store and decompresses them on their
// way back, in frames that ordinary tools read. It is the only importer of
// klauspost/compress. It must never depend on files or stores.
package codec

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// The codecs' names. None is no compression.
const (
	None = ""
	Zstd = "zstd" // RFC 8878; zstd(1) reads it
	S2   = "s2"   // framed S2; s2d reads it, and unframed tools for snappy do not
)

// maxWindow is the largest window a decoder allocates: the one of zstd(1) at its highest level
// without further options.
const maxWindow = 128 << 20

// Check refuses the name of a codec that there is not.
func Check(name string) error {
	switch name {
	case None, Zstd, S2:
		return nil
	}
	return bb.E(bb.Invalid, "codec", fmt.Sprintf("%.32q", name), "is not known").WithRemedy(`use "zstd", "s2" or none`)
}

// Suffix returns the suffix of a file's name in the store, or "" for none and for names that Check refuses.
func Suffix(name string) string {
	switch name {
	case Zstd:
		return ".zst"
	case S2:
		return ".s2"
	}
	return ""
}

// OfName returns the codec by the suffix of an object's name, and the name without
// the suffix. A name that is nothing but a suffix has none.
func OfName(object string) (plain, name string) {
	for _, name := range []string{Zstd, S2} {
		if plain, ok := strings.CutSuffix(object, Suffix(name)); ok && plain != "" && !strings.HasSuffix(plain, "/") {
			return plain, name
		}
	}
	return object, None
}

// NewWriter returns a writer that compresses to w. Closing it ends the frame, and
// does not close w. It is for one goroutine, and works on the caller's alone.
func NewWriter(name string, w io.Writer) (io.WriteCloser, error) {
	switch name {
	case None:
		return plainWriter{w}, nil
	case Zstd:
		e, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithLowerEncoderMem(true))
		return e, err
	case S2:
		return s2.NewWriter(w, s2.WriterConcurrency(1)), nil
	}
	return nil, Check(name)
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

// NewReader returns a reader that decompresses r. Closing it releases memory, and
// does not close r. Bytes that are no frame, or a damaged one, are bb.Checksum.
func NewReader(name string, r io.Reader) (io.ReadCloser, error) {
	switch name {
	case None:
		return io.NopCloser(r), nil
	case Zstd:
		d, err := zstd.NewReader(sourceErrors{r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, &bb.Error{Kind: bb.Internal, Op: "decompress", Err: err}
		}
		return &reader{r: d, close: d.Close}, nil
	case S2:
		return &reader{r: s2.NewReader(sourceErrors{r}), close: func() {}}, nil
	}
	return nil, Check(name)
}

// sourceErrors marks the errors of the compressed stream's own reader, to distinguish them
// from faults in the stream.
type sourceErrors struct{ r io.Reader }

func (s sourceErrors) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		err = &readError{err}
	}
	return n, err
}

type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

type reader struct {
	r     io.Reader
	close func()
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	var source *readError
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.As(err, &source):
		return n, source.error
	default:
		return n, &bb.Error{Kind: bb.Checksum, Op: "decompress", Err: err}
	}
}

func (r *reader) Close() error {
	if r.close != nil {
		r.close()
		r.close, r.r = nil, closed{}
	}
	return nil
}

type closed struct{}

func (closed) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Verify returns a reader that fails with bb.Checksum, instead of io.EOF, unless
// exactly size bytes of that checksum came, and that never returns more.
func Verify(r io.ReadCloser, size int64, sum uint64) io.ReadCloser {
	return &verifier{ReadCloser: r, left: size, want: sum}
}

type verifier struct {
	io.ReadCloser
	left int64
	want uint64
	got  uint64
}

func (v *verifier) Read(p []byte) (int, error) {
	// One byte more than allowed, to detect a frame that is too long.
	if int64(len(p)) > v.left+1 {
		p = p[:v.left+1]
	}
	n, err := v.ReadCloser.Read(p)
	if int64(n) > v.left {
		return int(v.left), bb.E(bb.Checksum, "decompress", "", "content is longer than it was")
	}
	v.got = checksum.Update(v.got, p[:n])
	v.left -= int64(n)
	if err == io.EOF && (v.left > 0 || v.got != v.want) {
		return n, bb.E(bb.Checksum, "decompress", "", fmt.Sprintf("checksum is %016x with %d bytes missing, should be %016x", v.got, v.left, v.want))
	}
	return n, err
}
