package backing

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/mapped"
)

// CheckName refuses a name that is not clean, or that is one of unfinished work.
func CheckName(op, name string) error {
	clean, err := bb.CleanPath(name)
	if err != nil {
		return &bb.Error{Kind: bb.Invalid, Op: op, Path: fmt.Sprintf("%.64q", name), Err: err}
	}
	if clean != name || name == "" {
		return bb.E(bb.Invalid, op, fmt.Sprintf("%.64q", name), "is not a clean, relative name")
	}
	if IsTemp(name) {
		return bb.E(bb.Invalid, op, name, "is a name kept for unfinished work")
	}
	return nil
}

// CheckMove refuses names of a rename that are not clean, or of which one lies in the other.
func CheckMove(old, newName string) error {
	if err := errors.Join(CheckName("rename", old), CheckName("rename", newName)); err != nil {
		return err
	}
	if strings.HasPrefix(newName, old+"/") || strings.HasPrefix(old, newName+"/") {
		return bb.E(bb.Invalid, "rename", old, "cannot be moved into or over a directory that it is in: "+newName)
	}
	return nil
}

// CheckRange refuses offsets that could not be meant.
func CheckRange(op, name string, off int64) error {
	if off < 0 || off > bb.MaxFileSize {
		return bb.E(bb.Invalid, op, name, fmt.Sprintf("offset %d is out of range", off))
	}
	return nil
}

// Passing reports whether the same call may succeed later although nothing about it is changed. The
// store was unreachable, full, busy, or got the bytes wrong.
func Passing(err error) bool {
	var source *SourceError
	if err == nil || errors.As(err, &source) {
		return false
	}
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.NoSpace, bb.Checksum, bb.Busy, bb.Internal:
		return true
	default:
		return false
	}
}

// SourceError marks a fault in the bytes to be written, not in the store.
type SourceError struct{ Err error }

// Error returns the reason.
func (e *SourceError) Error() string { return "source: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *SourceError) Unwrap() error { return e.Err }

// Mismatch returns the error for bytes whose checksum is not the expected one.
func Mismatch(op, name string, want, got uint64) error {
	return bb.E(bb.Checksum, op, name, fmt.Sprintf("checksum is %016x, should be %016x", got, want))
}

// CheckSource compares the bytes that a Put has read of its source with the source's description.
func CheckSource(name string, src Source, got uint64) error {
	if want := src.Checksum(); got != want {
		return &bb.Error{Kind: bb.Checksum, Op: "put", Path: name, Err: &SourceError{Mismatch("read", "", want, got)}}
	}
	return nil
}

// ReadSource returns the pieces of a range of a source and their checksum, after
// checking that the source returned as many bytes as were requested.
func ReadSource(name string, src Source, dst [][]byte, off, n int64) ([][]byte, uint64, error) {
	slices, err := Pieces(name, src, dst, off, n)
	if err != nil {
		return nil, 0, err
	}
	var crc uint64
	err = Touch(name, func() error {
		for _, s := range slices[len(dst):] {
			crc = checksum.Update(crc, s)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return slices, crc, nil
}

// Touch runs f, which reads pieces of a source. They may be mapped memory that its user has cut
// short. The fault is a SourceError of kind bb.Lost then. A system call that reads them needs none
// of this.
func Touch(name string, f func() error) error {
	err := mapped.Guard("put", name, f)
	if fault := (*bb.Error)(nil); errors.As(err, &fault) && fault.Kind == bb.Lost {
		return &bb.Error{Kind: bb.Lost, Op: "put", Path: name, Err: &SourceError{fault}}
	}
	return err
}

// Pieces is ReadSource for callers that take the checksum themselves.
func Pieces(name string, src Source, dst [][]byte, off, n int64) ([][]byte, error) {
	slices, err := src.Slices(dst, off, n)
	if err != nil {
		return nil, &bb.Error{Kind: bb.KindOf(err), Op: "put", Path: name, Err: &SourceError{err}}
	}
	var got int64
	for _, s := range slices[len(dst):] {
		got += int64(len(s))
	}
	if got != n {
		short := fmt.Errorf("%d bytes at %d instead of %d", got, off, n)
		return nil, &bb.Error{Kind: bb.Internal, Op: "put", Path: name, Err: &SourceError{short}}
	}
	return slices, nil
}

// Verify returns a reader of a whole object that fails with bb.Checksum, instead of io.EOF, when
// the object did not have the given size and checksum. The caller may not use the bytes before
// io.EOF.
func Verify(r io.ReadCloser, name string, size int64, sum uint64) io.ReadCloser {
	return &verifier{ReadCloser: r, name: name, left: size, want: sum}
}

type verifier struct {
	io.ReadCloser
	name string
	left int64
	want uint64
	got  uint64
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.got = checksum.Update(v.got, p[:n])
	v.left -= int64(n)
	switch {
	case v.left < 0:
		return n, bb.E(bb.Checksum, "read", v.name, "object is longer than it should be")
	case err == io.ErrUnexpectedEOF, err == io.EOF && v.left > 0:
		return n, bb.E(bb.Checksum, "read", v.name, fmt.Sprintf("object is %d bytes shorter than it should be", v.left))
	case err == io.EOF && v.got != v.want:
		return n, Mismatch("read", v.name, v.want, v.got)
	}
	return n, err
}
