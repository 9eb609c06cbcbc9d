// Package receipt proves that files became durable. Its lines have the store's confirmations, and a store is
// checked against them. It must never depend on a buffer, a queue, nor the way of a put.
package receipt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// Receipt proves that a file became durable: the stored object, and the store's tag of it. A
// buffer's receipt is a file of lines, each of them one Receipt as a JSON object. A later line for
// a path replaces an earlier one.
type Receipt struct {
	Path       string    // in the buffer
	Size       int64     // bytes of the file
	Checksum   uint64    // CRC-64/NVME of the file
	Codec      string    // of the object in the store; see package codec
	StoredSize int64     // bytes in the store
	StoredSum  uint64    // CRC-64/NVME of the bytes in the store
	ETag       string    // the store's tag of it
	At         time.Time // when the store had confirmed it
	By         bb.NodeID
	Layout     string // the store's placement of it; "": unknown
	Link       bool   // a symbolic link, whose content is its target
	// NotKept are the names of extended attributes that the store does not have, since it cannot keep them, or they were set
	// since.
	NotKept []string
}

// New returns the receipt of a file, whose bytes src has, that was flushed.
func New(path string, src backing.Source, f bb.Flushed) Receipt {
	return Receipt{
		Path: path, Size: src.Size(), Checksum: src.Checksum(), Codec: f.Codec,
		StoredSize: f.Size, StoredSum: f.Checksum, ETag: f.ETag, At: f.At, By: f.By, Layout: f.Layout,
	}
}

// Object returns the name of the object in the store.
func (r *Receipt) Object() string { return r.Path + codec.Suffix(r.Codec) }

// line is the JSON form. Checksums are sixteen hexadecimal digits, since JSON's numbers lose the
// last bits of 64. Fields that equal the file's are left out.
type line struct {
	Path       string    `json:"path"`
	Size       int64     `json:"size"`
	Checksum   string    `json:"crc64nvme"`
	Codec      string    `json:"codec,omitempty"`
	StoredSize *int64    `json:"stored_size,omitempty"`
	StoredSum  string    `json:"stored_crc64nvme,omitempty"`
	ETag       string    `json:"etag"`
	At         time.Time `json:"at"`
	By         bb.NodeID `json:"by"`
	Layout     string    `json:"layout,omitempty"`
	Link       bool      `json:"link,omitempty"`
	NotKept    []string  `json:"xattrs_not_kept,omitempty"`
}

// Append appends the receipt's line to b, with its newline.
func (r *Receipt) Append(b []byte) ([]byte, error) {
	l := line{Path: r.Path, Size: r.Size, Checksum: hex(r.Checksum), Codec: r.Codec, ETag: r.ETag, At: r.At.UTC(), By: r.By, Layout: r.Layout, Link: r.Link, NotKept: bounded(r.NotKept)}
	if r.StoredSize != r.Size || r.StoredSum != r.Checksum {
		l.StoredSize, l.StoredSum = &r.StoredSize, hex(r.StoredSum)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return b, &bb.Error{Kind: bb.Invalid, Op: "receipt", Path: r.Path, Err: err}
	}
	return append(append(b, text...), '\n'), nil
}

// bounded returns names that fit a line beside a path, of any bytes. "…" stands for the others.
func bounded(names []string) []string {
	room := MaxLine / 16
	for i, name := range names {
		if room -= len(name); room < 0 {
			return append(slices.Clone(names[:i]), "…")
		}
	}
	return names
}

// MaxLine bounds a line, in bytes.
const MaxLine = 64 << 10

// Parse reads one line.
func Parse(text []byte) (Receipt, error) {
	var l line
	invalid := func(err error) (Receipt, error) {
		return Receipt{}, &bb.Error{Kind: bb.Invalid, Op: "receipt", Path: fmt.Sprintf("%.80q", text), Err: err}
	}
	if len(text) > MaxLine {
		return invalid(errors.New("line is too long"))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return invalid(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid(errors.New("something follows the object"))
	}
	sum, err := unhex(l.Checksum)
	if err != nil {
		return invalid(err)
	}
	r := Receipt{Path: l.Path, Size: l.Size, Checksum: sum, Codec: l.Codec, StoredSize: l.Size, StoredSum: sum, ETag: l.ETag, At: l.At, By: l.By, Layout: l.Layout, Link: l.Link, NotKept: l.NotKept}
	if (l.StoredSize == nil) != (l.StoredSum == "") {
		return invalid(errors.New("stored size and checksum go together"))
	}
	if l.StoredSize != nil {
		r.StoredSize = *l.StoredSize
		if r.StoredSum, err = unhex(l.StoredSum); err != nil {
			return invalid(err)
		}
	}
	if err := r.check(); err != nil {
		return invalid(err)
	}
	return r, nil
}

func (r *Receipt) check() error {
	clean, err := bb.CleanPath(r.Path)
	switch {
	case err != nil:
		return err
	case clean != r.Path || clean == "":
		return errors.New("path is not clean")
	case r.Size < 0 || r.Size > bb.MaxFileSize || r.StoredSize < 0 || r.StoredSize > bb.MaxFileSize:
		return errors.New("size is out of range")
	case r.Codec == codec.None && (r.StoredSize != r.Size || r.StoredSum != r.Checksum):
		return errors.New("sizes or checksums differ, but there is no codec")
	}
	return codec.Check(r.Codec)
}

func hex(v uint64) string { return fmt.Sprintf("%016x", v) }

func unhex(s string) (uint64, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("checksum %.20q has not sixteen digits", s)
	}
	return strconv.ParseUint(s, 16, 64)
}

// Finding is the result of Verify for one receipt.
type Finding struct {
	Line    int // from 1
	Receipt Receipt
	Err     error // nil: the store has it; bb.NotFound, bb.Checksum: it has not, or something else; others: it could not be found out
}

// Depth is how much of a store Verify reads.
type Depth int

const (
	Names Depth = iota // the store's listing of its objects
	Deep               // the bytes too
)

// Verdict counts findings.
type Verdict struct {
	Good, Bad int
	Bytes     int64 // in the store, of the good ones
}

// Verify checks a store against receipts, with nothing but the two. It compares sizes, and
// checksums where the store keeps them, else entity tags. VerifyDeep reads every object and
// computes its checksum, and that of the file in it. each is called with each line's finding, in
// order. Of several lines for a path only the last is checked. The error is about reading the
// receipts, or the end of ctx. Bad findings are counted, and are no errors.
func Verify(ctx context.Context, store backing.Reader, receipts io.Reader, depth Depth, each func(Finding)) (Verdict, error) {
	last, err := readReceipts(receipts)
	if err != nil {
		return Verdict{}, err
	}
	var v Verdict
	for i := range last {
		if err := ctx.Err(); err != nil {
			return v, bb.Wrap("verify", "", err)
		}
		last[i].check(ctx, store, depth == Deep)
		if last[i].Err == nil {
			v.Good++
			v.Bytes += last[i].Receipt.StoredSize
		} else {
			v.Bad++
		}
		each(last[i])
	}
	return v, nil
}

// readReceipts returns the last receipt of each path, in the order of their lines. A line that
// cannot be read is a finding too. A last line without its newline was cut off by a crash and
// proves nothing.
func readReceipts(r io.Reader) (findings []Finding, err error) {
	byPath := map[string]int{}
	lines := bufio.NewReaderSize(r, MaxLine)
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		if err == io.EOF && len(text) == 0 {
			return findings, nil
		}
		if err != nil && err != io.EOF {
			return nil, &bb.Error{Kind: bb.KindOf(err), Op: "verify", Path: fmt.Sprintf("line %d", number), Err: err}
		}
		if err == io.EOF {
			findings = append(findings, Finding{Line: number, Err: bb.E(bb.Invalid, "receipt", fmt.Sprintf("line %d", number), "is cut off")})
			return findings, nil
		}
		f := Finding{Line: number}
		f.Receipt, f.Err = Parse(text)
		if at, known := byPath[f.Receipt.Path]; known && f.Err == nil {
			findings[at] = f
			continue
		}
		if f.Err == nil {
			byPath[f.Receipt.Path] = len(findings)
		}
		findings = append(findings, f)
	}
}

func (f *Finding) check(ctx context.Context, store backing.Reader, deep bool) {
	if f.Err != nil {
		return
	}
	r := &f.Receipt
	var o backing.Object
	if o, f.Err = store.Stat(ctx, r.Object()); f.Err != nil {
		return
	}
	switch {
	case r.Link && !o.IsLink():
		f.Err = bb.E(bb.Checksum, "verify", r.Object(), "is a file, was a symbolic link")
	case !r.Link && o.IsLink():
		f.Err = bb.E(bb.Checksum, "verify", r.Object(), "is a symbolic link, was a file")
	case o.Size != r.StoredSize:
		f.Err = bb.E(bb.Checksum, "verify", r.Object(), fmt.Sprintf("has %d bytes, had %d", o.Size, r.StoredSize))
	case o.HasChecksum && o.Checksum != r.StoredSum:
		f.Err = backing.Mismatch("verify", r.Object(), r.StoredSum, o.Checksum)
	case !o.HasChecksum && !deep && o.ETag != r.ETag:
		f.Err = bb.E(bb.Checksum, "verify", r.Object(), "has been changed: it is "+o.ETag+", was "+r.ETag).
			WithRemedy("verify deeply, to find out whether its content is the same")
	case deep:
		f.Err = r.readBack(ctx, store)
	}
}

// readBack reads the object and, through it, the file.
func (r *Receipt) readBack(ctx context.Context, store backing.Reader) error {
	packed, err := store.Get(ctx, r.Object(), 0, -1)
	if err != nil {
		return err
	}
	defer packed.Close()
	stored := backing.Verify(packed, r.Object(), r.StoredSize, r.StoredSum)
	plain, err := codec.NewReader(r.Codec, stored)
	if err != nil {
		return err
	}
	verified := codec.Verify(plain, r.Size, r.Checksum)
	defer verified.Close()
	if _, err := io.Copy(io.Discard, verified); err != nil {
		return bb.Wrap("verify", r.Object(), err)
	}
	_, err = io.Copy(io.Discard, stored) // bytes that may follow a frame
	return err
}
