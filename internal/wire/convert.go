package wire

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"time"

	"forebay/internal/bb"
)

// The values of Error.outcome, for a change that failed.
const (
	outcomeUnsaid  = 0
	outcomeNone    = 1
	outcomeUnknown = 2
)

// FailedReply makes the message of a failed reply to a request of a type. For a
// change, it has whether the change may have been carried out.
func FailedReply(typ Type, err error) *Error {
	m := FromError(err)
	switch {
	case errors.Is(err, bb.ErrUnknownOutcome):
		m.Outcome = outcomeUnknown
	case saysOutcome(typ):
		m.Outcome = outcomeNone
	}
	return m
}

// AsErrorOf is AsError of a reply to a request of a type.
func (m *Error) AsErrorOf(typ Type) *bb.Error {
	e := m.AsError()
	e.Unknown = mayBeDone(typ, m.Outcome, e.Kind)
	return e
}

// FromError makes the message of an error.
func FromError(err error) *Error {
	m := &Error{Kind: uint32(bb.KindOf(err))}
	var e *bb.Error
	if !errors.As(err, &e) {
		m.Reason = text(err.Error())
		return m
	}
	reason, remedy := e.Why()
	m.Op, m.Path, m.Node = text(e.Op), text(e.Path), string(nodeOf(e))
	m.Reason, m.Remedy = text(reason), text(remedy)
	return m
}

// nodeOf returns the node of the outermost error that has one.
func nodeOf(e *bb.Error) bb.NodeID {
	for e.Node == "" {
		var inner *bb.Error
		if !errors.As(e.Err, &inner) {
			break
		}
		e = inner
	}
	return e.Node
}

// maxText bounds each text of an error, in bytes. A request may be nearly as large as a frame, and
// the reply that quotes it has to fit one too.
const maxText = 16 << 10

// text makes a string one that a message can hold. It is short enough, and UTF-8, which quoted or
// shortened text may not be.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// Failed makes the message of an object that could not be dealt with. Its name is a text for
// people. If a name is not UTF-8, which a store may have, the other bytes are replaced.
func Failed(name string, bytes int64, err error) *Failure {
	return &Failure{Path: text(name), Kind: uint32(bb.KindOf(err)), Reason: text(err.Error()), Bytes: bytes}
}

// AsError makes the error that a failed reply stands for.
func (m *Error) AsError() *bb.Error {
	kind := bb.Kind(m.Kind)
	if m.Kind == 0 || m.Kind > uint32(bb.Cancelled) {
		kind = bb.Internal // a newer daemon's kind
	}
	e := &bb.Error{Kind: kind, Op: m.Op, Path: m.Path, Node: bb.NodeID(m.Node), Remedy: m.Remedy}
	if m.Reason != "" {
		e.Err = errors.New(m.Reason)
	}
	return e
}

// FromEntry makes the message of an entry.
func FromEntry(e *bb.Entry) *Entry {
	m := &Entry{
		Name: e.Name, Type: uint32(e.Type), Dir: uint64(e.Dir), File: uint64(e.File),
		Generation: uint64(e.Generation), Size: e.Size, Checksum: e.Checksum, Open: e.Open,
		Mode: uint32(e.Mode.Perm()), Uid: e.UID, Gid: e.GID, MtimeNs: nanos(e.MTime),
		State: uint32(e.State()), Reason: text(e.LostReason()), Target: []byte(e.Target),
	}
	for _, h := range e.Holders {
		m.Holders = append(m.Holders, string(h))
	}
	if f := &e.Flushed; f.Generation != 0 {
		m.Flushed = &Flushed{
			Generation: uint64(f.Generation), Etag: f.ETag, Size: f.Size, Checksum: f.Checksum,
			Codec: f.Codec, AtNs: nanos(f.At), By: string(f.By), Layout: f.Layout,
		}
	}
	return m
}

// AsEntry makes the entry of a message. Its state, which the daemon
// may have more exactly than the entry (as evicted), is in the message alone.
func (m *Entry) AsEntry() bb.Entry {
	e := bb.Entry{
		Name: m.Name, Type: bb.EntryType(m.Type), Dir: bb.DirID(m.Dir), File: bb.FileID(m.File),
		Generation: bb.Generation(m.Generation), Size: m.Size, Checksum: m.Checksum, Open: m.Open,
		Mode: fs.FileMode(m.Mode).Perm(), UID: m.Uid, GID: m.Gid, MTime: instant(m.MtimeNs),
		Lost: bb.State(m.State) == bb.StateLost, Reason: m.Reason, Extras: bb.Extras{Target: string(m.Target)},
	}
	for _, h := range m.Holders {
		e.Holders = append(e.Holders, bb.NodeID(h))
	}
	if f := m.Flushed; f != nil {
		e.Flushed = bb.Flushed{
			Generation: bb.Generation(f.Generation), ETag: f.Etag, Size: f.Size, Checksum: f.Checksum,
			Codec: f.Codec, At: instant(f.AtNs), By: bb.NodeID(f.By), Layout: f.Layout,
		}
	}
	return e
}

// FromBuffer makes the message of a buffer.
func FromBuffer(b *bb.Buffer) *Buffer {
	return &Buffer{
		Name: b.Name, Uid: b.UID, Gid: b.GID, Mode: uint32(b.Mode.Perm()), Capacity: b.Capacity,
		Backing: b.Backing, Durability: string(b.Durability), Codec: b.Codec, Keep: b.NoFlush,
		FlushLimit: b.FlushLimit, DirtyAgeNs: int64(b.DirtyAge), NoWait: b.NoWait, Receipt: b.Receipt,
		Job: b.Job, CreatedNs: nanos(b.Created), State: string(b.State), Replicas: uint32(min(max(b.Replicas, 0), math.MaxInt32)),
		Tiers: fromTiers(b.Tiers), Existing: string(b.Existing), Found: b.Found,
		FoundTotal: uint32(min(max(b.FoundTotal, 0), math.MaxInt32)), Shared: b.Shared, Flush: bb.FlushRuleTexts(b.Flush),
	}
}

func fromTiers(rules []bb.TierRule) (list []*TierRule) {
	for _, r := range rules {
		list = append(list, &TierRule{Pattern: r.Pattern, Tier: uint32(r.Tier)})
	}
	return list
}

func asTiers(list []*TierRule) (rules []bb.TierRule) {
	for _, m := range list {
		rules = append(rules, bb.TierRule{Pattern: m.Pattern, Tier: bb.Tier(min(m.Tier, math.MaxUint8))})
	}
	return rules
}

// AsBuffer makes the buffer that a message stands for.
func (m *Buffer) AsBuffer() bb.Buffer {
	return bb.Buffer{
		Name: m.Name, UID: m.Uid, GID: m.Gid, Mode: fs.FileMode(m.Mode).Perm(), Capacity: m.Capacity,
		Backing: m.Backing, Durability: bb.Durability(m.Durability), Codec: m.Codec, NoFlush: m.Keep,
		FlushLimit: m.FlushLimit, DirtyAge: time.Duration(m.DirtyAgeNs), NoWait: m.NoWait, Receipt: m.Receipt,
		Job: m.Job, Created: instant(m.CreatedNs), State: bb.BufferState(m.State), Replicas: int(m.Replicas),
		Tiers: asTiers(m.Tiers), Existing: bb.Existing(m.Existing), Findings: bb.Findings{Found: m.Found, FoundTotal: int(m.FoundTotal)},
		Shared: m.Shared, Flush: bb.FlushRules(m.Flush),
	}
}

// nanos and instant keep the zero time zero, which is not the epoch.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
