package namespace

import (
	"encoding/binary"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// ClosingSum returns the sum that goes with the record of an entry whose revision is that of its close. A daemon of an
// older release that changes the entry keeps the mark of the close as an unknown field, and raises the revision. The sum
// does not fit then.
func ClosingSum(e *bb.Entry) uint64 {
	le := binary.LittleEndian
	b := make([]byte, 0, 256)
	for _, n := range [...]uint64{
		uint64(e.Parent), uint64(e.File), uint64(e.Generation), uint64(e.Size), e.Checksum, uint64(e.Mode.Perm()), uint64(e.UID), uint64(e.GID),
		uint64(e.Flushed.Generation), uint64(len(e.Name)), uint64(len(e.Reason)), uint64(len(e.Holders)), uint64(len(e.Attempts())),
	} {
		b = le.AppendUint64(b, n)
	}
	if n := kv.Nanos(e.MTime); n != nil {
		b = le.AppendUint64(b, uint64(*n))
	}
	b = append(append(append(b, e.Name...), e.Reason...), e.Flushed.ETag...)
	for _, h := range e.Holders {
		b = append(append(b, 0), h...)
	}
	if e.Open || e.Lost {
		b = append(b, 1)
	}
	return kv.Sum("closing", b)
}

// OpenClosing returns the close that a mark names, of an entry's record, decoded but for the mark.
// If it does not fit the entry, that is nothing.
func OpenClosing(e *bb.Entry, c bb.Closing, sum uint64) bb.Closing {
	switch {
	case c.Generation == 0 || c.Generation != e.Generation || c.Revision > e.Revision:
		return bb.Closing{}
	case c.Revision != 0:
		return c
	case sum != ClosingSum(e):
		return bb.Closing{}
	}
	c.Revision = e.Revision
	return c
}
