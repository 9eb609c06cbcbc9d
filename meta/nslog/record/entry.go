package record

import (
	"errors"
	"io/fs"
	"math"
	"time"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
)

// Entries are encoded by hand, since there are millions of them. The bytes are those of the message
// Entry of metapb, with fields of newer releases behind.

// AppendEntry appends the value of an entry, whose place and revision are not part of it. An
// entry that may not be stored is an error of kind Invalid.
func AppendEntry(b []byte, e *bb.Entry) ([]byte, error) {
	if err := namespace.CheckEntry(e); err != nil {
		return nil, err
	}
	b = number(b, 1, uint64(e.Type))
	b = number(b, 2, uint64(e.Dir))
	b = number(b, 3, uint64(e.File))
	b = number(b, 4, uint64(e.Generation))
	b = number(b, 5, uint64(e.Size))
	b = fixed(b, 6, e.Checksum)
	b = number(b, 7, protowire.EncodeBool(e.Open))
	for _, h := range e.Holders {
		b = protowire.AppendString(protowire.AppendTag(b, 8, protowire.BytesType), string(h))
	}
	b = number(b, 9, uint64(e.Mode.Perm()))
	b = number(b, 10, uint64(e.UID))
	b = number(b, 11, uint64(e.GID))
	if n := kv.Nanos(e.MTime); n != nil {
		b = protowire.AppendVarint(protowire.AppendTag(b, 12, protowire.VarintType), protowire.EncodeZigZag(*n))
	}
	if e.Flushed != (bb.Flushed{}) {
		b = within(b, 13, func(b []byte) []byte { return appendFlushed(b, &e.Flushed) })
	}
	b = number(b, 14, protowire.EncodeBool(e.Lost))
	b = text(b, 15, e.Reason)
	b = fixed(b, 16, uint64(e.Txn))
	if replaced := e.Replaced(); replaced.Generation != 0 && e.Flushed.Generation == 0 {
		b = within(b, 17, func(b []byte) []byte {
			return within(b, 1, func(b []byte) []byte { return appendFlushed(b, &replaced) })
		})
	}
	b = appendContents(b, 18, e.Attempts())
	b = text(b, 19, e.Target)
	if e.Closed.Generation != 0 {
		b = within(b, 20, func(b []byte) []byte { return appendClosing(b, e) })
	}
	b = text(b, 21, e.Xattrs)
	return append(b, e.Rest...), nil
}

func appendContents(b []byte, field protowire.Number, all []bb.Content) []byte {
	for _, c := range all {
		b = within(b, field, func(b []byte) []byte { return fixed(number(b, 1, uint64(c.Size)), 2, c.Checksum) })
	}
	return b
}

func appendClosing(b []byte, e *bb.Entry) []byte {
	b = number(number(b, 1, uint64(e.Closed.Generation)), 2, e.Closed.Revision)
	if e.Closed.Revision == 0 {
		b = fixed(b, 3, namespace.ClosingSum(e))
	}
	return b
}

func appendFlushed(b []byte, f *bb.Flushed) []byte {
	b = number(b, 1, uint64(f.Generation))
	b = text(b, 2, f.ETag)
	b = number(b, 3, uint64(f.Size))
	b = fixed(b, 4, f.Checksum)
	b = text(b, 5, f.Codec)
	if n := kv.Nanos(f.At); n != nil {
		b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), protowire.EncodeZigZag(*n))
	}
	b = text(b, 7, string(f.By))
	b = text(b, 8, f.Layout)
	return append(b, f.Rest...)
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func fixed(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

func text(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// within appends a message inside of another one.
func within(b []byte, field protowire.Number, body func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	var small [160]byte
	return protowire.AppendBytes(b, body(small[:0]))
}

// OpenEntry decodes the value of the entry of a place. The entry shares no memory with it.
func OpenEntry(dir bb.DirID, name string, value []byte, revision uint64) (bb.Entry, error) {
	e := bb.Entry{Parent: dir, Name: name, Revision: revision}
	var closed bb.Closing
	var sum uint64
	var before bb.Before
	if err := fields(value, &e.Rest, func(f field) (err error) {
		if f.tag == 20<<3|bytesField {
			closed, sum, err = openClosing(f.bytes())
			return err
		}
		return setField(&e, &before, f)
	}); err != nil {
		return bb.Entry{}, garbage(name, err.Error())
	}
	if e.Flushed.Generation != 0 || before.Replaced.Generation == 0 {
		before.Replaced = bb.Flushed{}
	}
	e.SetBefore(before.Replaced, before.Attempts)
	e.Closed = namespace.OpenClosing(&e, closed, sum)
	if err := namespace.CheckEntry(&e); err != nil {
		return bb.Entry{}, &bb.Error{Kind: bb.Checksum, Op: "decode", Path: name, Err: err}
	}
	return e, nil
}

// field is a field of a message: its tag and its value.
type field struct {
	tag uint64 // number << 3 | wire type
	raw []byte
}

const (
	varintField  = uint64(protowire.VarintType)
	fixed64Field = uint64(protowire.Fixed64Type)
	bytesField   = uint64(protowire.BytesType)
)

func (f field) number() uint64 {
	v, _ := protowire.ConsumeVarint(f.raw)
	return v
}

func (f field) fixed() uint64 {
	v, _ := protowire.ConsumeFixed64(f.raw)
	return v
}

func (f field) bytes() []byte {
	v, _ := protowire.ConsumeBytes(f.raw)
	return v
}

func (f field) time() time.Time {
	n := protowire.DecodeZigZag(f.number())
	return kv.FromNanos(&n)
}

var errUnknown = errors.New("the field is not known")

// fields calls set with each field of a message. Unknown ones are appended to rest.
func fields(b []byte, rest *string, set func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		err := set(field{uint64(num)<<3 | uint64(typ), b[n : n+m]})
		if errors.Is(err, errUnknown) {
			*rest += string(b[:n+m])
		} else if err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}

// setField sets the attribute of an entry that a field has.
func setField(e *bb.Entry, before *bb.Before, f field) error {
	switch f.tag {
	case 1<<3 | varintField:
		e.Type = bb.EntryType(min(f.number(), math.MaxUint8))
	case 2<<3 | varintField:
		e.Dir = bb.DirID(f.number())
	case 3<<3 | varintField:
		e.File = bb.FileID(f.number())
	case 4<<3 | varintField:
		e.Generation = bb.Generation(f.number())
	case 5<<3 | varintField:
		e.Size = int64(f.number())
	case 6<<3 | fixed64Field:
		e.Checksum = f.fixed()
	case 7<<3 | varintField:
		e.Open = f.number() != 0
	case 8<<3 | bytesField:
		e.Holders = append(e.Holders, bb.NodeID(f.bytes()))
	case 9<<3 | varintField:
		e.Mode = fs.FileMode(f.number()).Perm()
	case 10<<3 | varintField:
		e.UID = uint32(f.number())
	case 11<<3 | varintField:
		e.GID = uint32(f.number())
	case 12<<3 | varintField:
		e.MTime = f.time()
	case 13<<3 | bytesField:
		return openFlushed(f.bytes(), &e.Flushed)
	case 14<<3 | varintField:
		e.Lost = f.number() != 0
	case 15<<3 | bytesField:
		e.Reason = string(f.bytes())
	case 16<<3 | fixed64Field:
		e.Txn = bb.TxnID(f.fixed())
	case 17<<3 | bytesField:
		return fields(f.bytes(), new(string), func(f field) error { return openFlushed(f.bytes(), &before.Replaced) })
	case 18<<3 | bytesField:
		c, err := openContent(f.bytes())
		before.Attempts = append(before.Attempts, c)
		return err
	case 19<<3 | bytesField:
		e.Target = string(f.bytes())
	case 21<<3 | bytesField:
		e.Xattrs = string(f.bytes())
	default:
		return errUnknown
	}
	return nil
}

func openFlushed(b []byte, to *bb.Flushed) error {
	return fields(b, &to.Rest, func(f field) error {
		switch f.tag {
		case 1<<3 | varintField:
			to.Generation = bb.Generation(f.number())
		case 2<<3 | bytesField:
			to.ETag = string(f.bytes())
		case 3<<3 | varintField:
			to.Size = int64(f.number())
		case 4<<3 | fixed64Field:
			to.Checksum = f.fixed()
		case 5<<3 | bytesField:
			to.Codec = string(f.bytes())
		case 6<<3 | varintField:
			to.At = f.time()
		case 7<<3 | bytesField:
			to.By = bb.NodeID(f.bytes())
		case 8<<3 | bytesField:
			to.Layout = unique.Make(string(f.bytes())).Value() // files of a directory have one text
		default:
			return errUnknown
		}
		return nil
	})
}

func openClosing(b []byte) (c bb.Closing, sum uint64, err error) {
	err = fields(b, new(string), func(f field) error {
		switch f.tag {
		case 1<<3 | varintField:
			c.Generation = bb.Generation(f.number())
		case 2<<3 | varintField:
			c.Revision = f.number()
		case 3<<3 | fixed64Field:
			sum = f.fixed()
		}
		return nil
	})
	return c, sum, err
}

func openContent(b []byte) (c bb.Content, err error) {
	err = fields(b, new(string), func(f field) error {
		switch f.tag {
		case 1<<3 | varintField:
			c.Size = int64(f.number())
		case 2<<3 | fixed64Field:
			c.Checksum = f.fixed()
		}
		return nil
	})
	return c, err
}

// PeekDir returns the id of the directory that value is the entry's of, or 0 if it is a file's.
// Type and id are the first fields that AppendEntry writes.
func PeekDir(value []byte) bb.DirID {
	if len(value) < 4 || value[0] != 1<<3 || value[1] != byte(bb.TypeDirectory) || value[2] != 2<<3 {
		return 0
	}
	id, _ := protowire.ConsumeVarint(value[3:])
	return bb.DirID(id)
}
