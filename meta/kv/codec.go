package kv

import (
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// The format of a record is drawn in metapb/record.proto.
const (
	FormatFirst  = 1
	FormatSecond = 2 // of fields that older daemons must not ignore
	FormatThird  = 3
	NewestFormat = FormatThird

	RecordHeader = 9
	MaxRecord    = 256 << 10 // bytes
	MaxText      = 4096      // bytes in a reason, an entity tag, a backing URL, …
)

// Seal encodes a message as the record of a key.
func Seal(key string, m proto.Message) ([]byte, error) { return SealAs(FormatFirst, key, m) }

// SealAs is seal in a format that older daemons refuse.
func SealAs(format byte, key string, m proto.Message) ([]byte, error) {
	b := make([]byte, RecordHeader, RecordHeader+proto.Size(m))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		return nil, bb.E(bb.Invalid, "encode", key, err.Error())
	}
	if len(b) > MaxRecord {
		return nil, bb.E(bb.Invalid, "encode", key, fmt.Sprintf("takes %d bytes, at most %d are allowed", len(b), MaxRecord))
	}
	b[0] = format
	binary.LittleEndian.PutUint64(b[1:], Sum(key, b[RecordHeader:]))
	return b, nil
}

// Open decodes the record of a key into m. The kind of its error is Unsupported for
// an unknown format and Checksum for garbage.
func Open(key string, b []byte, m proto.Message) error {
	if len(b) < RecordHeader || len(b) > MaxRecord {
		return bb.E(bb.Checksum, "decode", key, fmt.Sprintf("a record of %d bytes", len(b)))
	}
	if b[0] < FormatFirst || b[0] > NewestFormat {
		return bb.E(bb.Unsupported, "decode", key, fmt.Sprintf("record format %d, this release reads %d to %d", b[0], FormatFirst, NewestFormat)).
			WithRemedy("use the release that wrote it, or a newer one")
	}
	if binary.LittleEndian.Uint64(b[1:]) != Sum(key, b[RecordHeader:]) {
		return bb.E(bb.Checksum, "decode", key, "the record does not match its checksum")
	}
	if err := proto.Unmarshal(b[RecordHeader:], m); err != nil {
		return bb.E(bb.Checksum, "decode", key, err.Error())
	}
	return nil
}

// Rest are the fields of a record that only newer releases define. A change of the record stores
// them again.
func Rest(m proto.Message) string { return string(m.ProtoReflect().GetUnknown()) }

// WithRest puts them back.
func WithRest[M proto.Message](m M, rest string) M {
	if rest != "" {
		m.ProtoReflect().SetUnknown([]byte(rest))
	}
	return m
}

// Sum is the checksum of a record of a key.
func Sum(key string, message []byte) uint64 {
	var small [64]byte
	return checksum.Update(checksum.Update(0, append(small[:0], key...)), message)
}

// Nanos is nil for the zero time, which nanoseconds since 1970 cannot express.
func Nanos(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

// FromNanos is the time of which Nanos made n.
func FromNanos(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.Unix(0, *n).UTC()
}

// Representable reports whether a time can be stored in nanoseconds.
func Representable(t time.Time) bool {
	return t.IsZero() || t.Year() >= 1678 && t.Year() <= 2261
}
