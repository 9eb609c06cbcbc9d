package meta

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/meta/metapb"
)

// The format of a record is drawn in metapb/record.proto.
const (
	formatFirst  = 1
	formatSecond = 2 // of what older daemons must not ignore
	newestFormat = formatSecond

	recordHeader = 9
	maxRecord    = 256 << 10 // bytes
	maxHolders   = 1024
	maxText      = 4096 // bytes in a reason, an entity tag, a backing URL, …
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

func sealEntry(key string, e *bb.Entry) ([]byte, error) {
	if err := checkEntry(e); err != nil {
		return nil, err
	}
	m := &metapb.Entry{
		Type: uint32(e.Type), Dir: uint64(e.Dir), File: uint64(e.File), Generation: uint64(e.Generation),
		Size: e.Size, Checksum: e.Checksum, Open: e.Open, Mode: uint32(e.Mode.Perm()), Uid: e.UID, Gid: e.GID,
		Mtime: nanos(e.MTime), Flushed: flushedRecord(e.Flushed), Lost: e.Lost, Reason: e.Reason, Txn: uint64(e.Txn),
		Replaced: replacedRecord(key, e), Attempts: contentRecords(e.Attempts),
	}
	for _, h := range e.Holders {
		m.Holders = append(m.Holders, string(h))
	}
	format := byte(formatFirst)
	if e.Txn != 0 {
		format = formatSecond
	}
	return sealAs(format, key, withRest(m, e.Rest))
}

// openEntry decodes an entry's record; seq is its revision.
func openEntry(key string, b []byte, seq uint64) (bb.Entry, error) {
	parent, name, ok := parseEntryKey(key)
	if !ok {
		return bb.Entry{}, bb.E(bb.Checksum, "decode", fmt.Sprintf("%q", key), "is not an entry's key")
	}
	var m metapb.Entry
	if err := open(key, b, &m); err != nil {
		return bb.Entry{}, err
	}
	e := bb.Entry{
		Parent: parent, Name: name, Type: bb.EntryType(m.GetType()), Dir: bb.DirID(m.GetDir()),
		File: bb.FileID(m.GetFile()), Generation: bb.Generation(m.GetGeneration()), Size: m.GetSize(), Checksum: m.GetChecksum(),
		Open: m.GetOpen(), Mode: fs.FileMode(m.GetMode()).Perm(), UID: m.GetUid(), GID: m.GetGid(), MTime: fromNanos(m.Mtime),
		Flushed: fromFlushed(m.GetFlushed()), Lost: m.GetLost(), Reason: m.GetReason(), Revision: seq,
		Rest: rest(&m), Txn: bb.TxnID(m.GetTxn()),
	}
	e.Replaced, e.Attempts = fromReplaced(key, &m), fromContents(m.GetAttempts())
	if n := len(m.GetHolders()); n > 0 {
		e.Holders = make([]bb.NodeID, n)
		for i, h := range m.GetHolders() {
			e.Holders[i] = bb.NodeID(h)
		}
	}
	if m.GetType() > math.MaxUint8 {
		e.Type = 0
	}
	if err := checkEntry(&e); err != nil {
		return bb.Entry{}, &bb.Error{Kind: bb.Checksum, Op: "decode", Path: key, Err: err}
	}
	return e, nil
}

// checkEntry refuses what may neither be stored nor be believed.
func checkEntry(e *bb.Entry) error {
	invalid := func(why string) error { return bb.E(bb.Invalid, "entry", e.Name, why) }
	switch {
	case e.Type != bb.TypeFile && e.Type != bb.TypeDirectory:
		return invalid("is neither a file nor a directory")
	case e.Type == bb.TypeFile && e.File == 0:
		return invalid("is a file without an id")
	case e.Type == bb.TypeDirectory && e.Dir == 0:
		return invalid("is a directory without an id")
	case e.Size < 0 || e.Size > bb.MaxFileSize || e.Flushed.Size < 0 || e.Replaced.Size < 0:
		return invalid(fmt.Sprintf("has a size of %d bytes", e.Size))
	case len(e.Attempts) > bb.MaxAttempts:
		return invalid(fmt.Sprintf("has %s to flush it, at most %d are allowed", bb.Count(len(e.Attempts), "attempt"), bb.MaxAttempts))
	case len(e.Holders) > maxHolders:
		return invalid(fmt.Sprintf("has %d holders, at most %d are allowed", len(e.Holders), maxHolders))
	case len(e.Reason) > maxText || tooLong(&e.Flushed) || tooLong(&e.Replaced):
		return invalid("has a text that is too long")
	case !representable(e.MTime) || !representable(e.Flushed.At) || !representable(e.Replaced.At):
		return invalid("has a time before 1678 or after 2261")
	}
	return nil
}

func tooLong(f *bb.Flushed) bool { return len(f.ETag) > maxText || len(f.Codec) > maxText }

func replacedRecord(key string, e *bb.Entry) *metapb.Replaced {
	if e.Replaced.Generation == 0 || e.Flushed.Generation != 0 {
		return nil
	}
	return &metapb.Replaced{Flushed: flushedRecord(e.Replaced), Key: recordSum(key, nil)}
}

// fromReplaced leaves out what an older daemon, which does not know of it, has renamed
// or flushed.
func fromReplaced(key string, m *metapb.Entry) bb.Flushed {
	r := m.GetReplaced()
	if r == nil || r.GetKey() != recordSum(key, nil) || m.GetFlushed().GetGeneration() != 0 {
		return bb.Flushed{}
	}
	return fromFlushed(r.GetFlushed())
}

func contentRecords(contents []bb.Content) []*metapb.Content {
	records := make([]*metapb.Content, len(contents))
	for i, c := range contents {
		records[i] = &metapb.Content{Size: c.Size, Checksum: c.Checksum}
	}
	return records
}

func fromContents(records []*metapb.Content) []bb.Content {
	var contents []bb.Content
	for _, c := range records {
		contents = append(contents, bb.Content{Size: c.GetSize(), Checksum: c.GetChecksum()})
	}
	return contents
}

func flushedRecord(f bb.Flushed) *metapb.Flushed {
	if f == (bb.Flushed{}) {
		return nil
	}
	return withRest(&metapb.Flushed{
		Generation: uint64(f.Generation), Etag: f.ETag, Size: f.Size, Checksum: f.Checksum,
		Codec: f.Codec, At: nanos(f.At), By: string(f.By),
	}, f.Rest)
}

func fromFlushed(m *metapb.Flushed) bb.Flushed {
	if m == nil {
		return bb.Flushed{}
	}
	return bb.Flushed{
		Generation: bb.Generation(m.GetGeneration()), ETag: m.GetEtag(), Size: m.GetSize(), Checksum: m.GetChecksum(),
		Codec: m.GetCodec(), At: fromNanos(m.At), By: bb.NodeID(m.GetBy()),
		Rest: rest(m),
	}
}

func sealBuffer(key string, b *bb.Buffer, bucket uint64) ([]byte, error) {
	format := byte(formatFirst)
	if b.Replicas > 1 {
		format = formatSecond
	}
	return sealAs(format, key, withRest(&metapb.Buffer{
		Name: b.Name, Uid: b.UID, Gid: b.GID, Mode: uint32(b.Mode.Perm()), Capacity: b.Capacity, Backing: b.Backing,
		Durability: string(b.Durability), Codec: b.Codec, Keep: b.Keep, FlushLimit: b.FlushLimit, DirtyAge: int64(b.DirtyAge),
		NoWait: b.NoWait, Receipt: b.Receipt, Job: b.Job, Created: nanos(b.Created), State: string(b.State), Bucket: bucket, Replicas: uint32(b.Replicas),
		Tiers: tierRules(b.Tiers), BackingId: b.BackingID, Existing: string(b.Existing),
	}, b.Rest))
}

func tierRules(rules []bb.TierRule) (list []*metapb.TierRule) {
	for _, r := range rules {
		list = append(list, &metapb.TierRule{Pattern: r.Pattern, Tier: uint32(r.Tier)})
	}
	return list
}

func openBuffer(key string, data []byte, seq uint64) (bb.Buffer, uint64, error) {
	var m metapb.Buffer
	if err := open(key, data, &m); err != nil {
		return bb.Buffer{}, 0, err
	}
	b := bb.Buffer{
		Name: m.GetName(), UID: m.GetUid(), GID: m.GetGid(), Mode: fs.FileMode(m.GetMode()).Perm(), Capacity: m.GetCapacity(),
		Backing: m.GetBacking(), Durability: bb.Durability(m.GetDurability()), Codec: m.GetCodec(), Keep: m.GetKeep(),
		FlushLimit: m.GetFlushLimit(), DirtyAge: time.Duration(m.GetDirtyAge()), NoWait: m.GetNoWait(), Receipt: m.GetReceipt(),
		Job: m.GetJob(), Created: fromNanos(m.Created), State: bb.BufferState(m.GetState()), Revision: seq, Replicas: int(m.GetReplicas()),
		BackingID: m.GetBackingId(), Rest: rest(&m),
		Existing: cmp.Or(bb.Existing(m.GetExisting()), bb.ExistingOverwrite), // of a release without a choice, or with that default
	}
	for _, r := range m.GetTiers() {
		if r.GetTier() > uint32(bb.TierDisk) {
			continue // a tier of a newer release: these files are in memory here
		}
		b.Tiers = append(b.Tiers, bb.TierRule{Pattern: r.GetPattern(), Tier: bb.Tier(r.GetTier())})
	}
	if b.Replicas > maxReplicas {
		return bb.Buffer{}, 0, bb.E(bb.Checksum, "decode", key, fmt.Sprintf("wants %d replicas", b.Replicas))
	}
	if bufferKey(b.Name) != key || bb.CheckBufferName(b.Name) != nil {
		return bb.Buffer{}, 0, bb.E(bb.Checksum, "decode", key, "the record is of another buffer")
	}
	return b, m.GetBucket(), nil
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
