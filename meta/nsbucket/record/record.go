// Package record is the keys of a namespace's bucket and the records under them. It is pure. It must never send a
// request, nor know the records that a change needs.
package record

import (
	"fmt"
	"io/fs"
	"math"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/namespace"
)

// SealEntry encodes an entry as the record of a key.
func SealEntry(key string, e *bb.Entry) ([]byte, error) {
	if err := namespace.CheckEntry(e); err != nil {
		return nil, err
	}
	m := &metapb.Entry{
		Type: uint32(e.Type), Dir: uint64(e.Dir), File: uint64(e.File), Generation: uint64(e.Generation),
		Size: e.Size, Checksum: e.Checksum, Open: e.Open, Mode: uint32(e.Mode.Perm()), Uid: e.UID, Gid: e.GID,
		Mtime: kv.Nanos(e.MTime), Flushed: flushedRecord(e.Flushed), Lost: e.Lost, Reason: e.Reason, Txn: uint64(e.Txn),
		Replaced: replacedRecord(key, e), Attempts: contentRecords(e.Attempts()), Target: []byte(e.Target), Xattrs: []byte(e.Xattrs), Closed: closingRecord(e),
	}
	for _, h := range e.Holders {
		m.Holders = append(m.Holders, string(h))
	}
	format := byte(kv.FormatFirst)
	if e.Txn != 0 || e.Type.Special() {
		format = kv.FormatSecond
	}
	return kv.SealAs(format, key, kv.WithRest(m, e.Rest))
}

// OpenEntry decodes an entry's record. seq is its revision.
func OpenEntry(key string, b []byte, seq uint64) (bb.Entry, error) {
	parent, name, ok := ParseEntryKey(key)
	if !ok {
		return bb.Entry{}, bb.E(bb.Checksum, "decode", fmt.Sprintf("%q", key), "is not an entry's key")
	}
	var m metapb.Entry
	if err := kv.Open(key, b, &m); err != nil {
		return bb.Entry{}, err
	}
	e := bb.Entry{
		Parent: parent, Name: name, Type: bb.EntryType(m.GetType()), Dir: bb.DirID(m.GetDir()),
		File: bb.FileID(m.GetFile()), Generation: bb.Generation(m.GetGeneration()), Size: m.GetSize(), Checksum: m.GetChecksum(),
		Open: m.GetOpen(), Mode: fs.FileMode(m.GetMode()).Perm(), UID: m.GetUid(), GID: m.GetGid(), MTime: kv.FromNanos(m.Mtime),
		Flushed: fromFlushed(m.GetFlushed()), Lost: m.GetLost(), Reason: m.GetReason(), Revision: seq,
		Rest: kv.Rest(&m), Txn: bb.TxnID(m.GetTxn()), Extras: bb.Extras{Target: string(m.GetTarget()), Xattrs: string(m.GetXattrs())},
	}
	e.SetBefore(fromReplaced(key, &m), fromContents(m.GetAttempts()))
	if n := len(m.GetHolders()); n > 0 {
		e.Holders = make([]bb.NodeID, n)
		for i, h := range m.GetHolders() {
			e.Holders[i] = bb.NodeID(h)
		}
	}
	if m.GetType() > math.MaxUint8 {
		e.Type = 0
	}
	if c := m.GetClosed(); c != nil {
		e.Closed = namespace.OpenClosing(&e, bb.Closing{Generation: bb.Generation(c.GetGeneration()), Revision: c.GetRevision()}, c.GetSum())
	}
	if err := namespace.CheckEntry(&e); err != nil {
		return bb.Entry{}, &bb.Error{Kind: bb.Checksum, Op: "decode", Path: key, Err: err}
	}
	return e, nil
}

func closingRecord(e *bb.Entry) *metapb.Closing {
	if e.Closed.Generation == 0 {
		return nil
	}
	m := &metapb.Closing{Generation: uint64(e.Closed.Generation), Revision: e.Closed.Revision}
	if m.Revision == 0 {
		m.Sum = namespace.ClosingSum(e)
	}
	return m
}

func replacedRecord(key string, e *bb.Entry) *metapb.Replaced {
	replaced := e.Replaced()
	if replaced.Generation == 0 || e.Flushed.Generation != 0 {
		return nil
	}
	return &metapb.Replaced{Flushed: flushedRecord(replaced), Key: kv.Sum(key, nil)}
}

// fromReplaced leaves out contents that an older daemon, without such records, has renamed
// or flushed.
func fromReplaced(key string, m *metapb.Entry) bb.Flushed {
	r := m.GetReplaced()
	if r == nil || r.GetKey() != kv.Sum(key, nil) || m.GetFlushed().GetGeneration() != 0 {
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
	return kv.WithRest(&metapb.Flushed{
		Generation: uint64(f.Generation), Etag: f.ETag, Size: f.Size, Checksum: f.Checksum,
		Codec: f.Codec, At: kv.Nanos(f.At), By: string(f.By), Layout: f.Layout,
	}, f.Rest)
}

func fromFlushed(m *metapb.Flushed) bb.Flushed {
	if m == nil {
		return bb.Flushed{}
	}
	return bb.Flushed{
		Generation: bb.Generation(m.GetGeneration()), ETag: m.GetEtag(), Size: m.GetSize(), Checksum: m.GetChecksum(),
		Codec: m.GetCodec(), At: kv.FromNanos(m.At), By: bb.NodeID(m.GetBy()),
		Layout: m.GetLayout(), Rest: kv.Rest(m),
	}
}
