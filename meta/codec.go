package meta

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
	formatFirst  = 1
	formatSecond = 2 // of what older daemons must not ignore
	newestFormat = formatSecond

	recordHeader = 9
	maxRecord    = 256 << 10 // bytes
	maxText      = 4096      // bytes in a reason, an entity tag, a backing URL, …
)

// seal encodes a message as the record of a key.
func seal(key string, m proto.Message) ([]byte, error) { return sealAs(formatFirst, key, m) }

// sealAs is seal in a format that older daemons refuse.
func sealAs(format byte, key string, m proto.Message) ([]byte, error) {
	b := make([]byte, recordHeader, recordHeader+proto.Size(m))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		return nil, bb.E(bb.Invalid, "encode", key, err.Error())
	}
	if len(b) > maxRecord {
		return nil, bb.E(bb.Invalid, "encode", key, fmt.Sprintf("takes %d bytes, at most %d are allowed", len(b), maxRecord))
	}
	b[0] = format
	binary.LittleEndian.PutUint64(b[1:], recordSum(key, b[recordHeader:]))
	return b, nil
}

// open decodes the record of a key into m. The kind of its error is Unsupported for
// an unknown format and Checksum for garbage.
func open(key string, b []byte, m proto.Message) error {
	if len(b) < recordHeader || len(b) > maxRecord {
		return bb.E(bb.Checksum, "decode", key, fmt.Sprintf("a record of %d bytes", len(b)))
	}
	if b[0] < formatFirst || b[0] > newestFormat {
		return bb.E(bb.Unsupported, "decode", key, fmt.Sprintf("record format %d, this release knows %d to %d", b[0], formatFirst, newestFormat)).
			WithRemedy("use the release that wrote it, or a newer one")
	}
	if binary.LittleEndian.Uint64(b[1:]) != recordSum(key, b[recordHeader:]) {
		return bb.E(bb.Checksum, "decode", key, "the record does not match its checksum")
	}
	if err := proto.Unmarshal(b[recordHeader:], m); err != nil {
		return bb.E(bb.Checksum, "decode", key, err.Error())
	}
	return nil
}

// rest are the fields of a record that only newer releases know: who changes the record
// stores them again.
func rest(m proto.Message) string { return string(m.ProtoReflect().GetUnknown()) }

// withRest puts them back.
func withRest[M proto.Message](m M, rest string) M {
	if rest != "" {
		m.ProtoReflect().SetUnknown([]byte(rest))
	}
	return m
}

func recordSum(key string, message []byte) uint64 {
	var small [64]byte
	return checksum.Update(checksum.Update(0, append(small[:0], key...)), message)
}

// nanos is nil for the zero time, which nanoseconds since 1970 cannot express.
func nanos(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func fromNanos(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.Unix(0, *n).UTC()
}

func representable(t time.Time) bool {
	return t.IsZero() || t.Year() >= 1678 && t.Year() <= 2261
}
