package entries

import (
	"cmp"
	"context"
	"io/fs"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// memory has so many bytes of one generation that is being written, and nothing of closed ones.
type memory struct {
	generation bb.Generation
	bytes      int64
}

func (m memory) Size(_ bb.FileID, n bb.Generation) (int64, error) {
	if n != m.generation {
		return 0, bb.NotFound
	}
	return m.bytes, nil
}

func (memory) Snapshot(bb.FileID, bb.Generation) (*store.Snapshot, error) { return nil, bb.NotFound }

// reasons are the causes of the last failed flush of each file.
type reasons map[bb.FileID]string

func (r reasons) Reason(file bb.FileID) string { return r[file] }

// TestDescribe: a daemon adds its own facts to the entries of its files.
func TestDescribe(t *testing.T) {
	t.Parallel()
	e := bb.Entry{Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6, Size: 10, Holders: []bb.NodeID{"n1"}}
	with := func(change func(*bb.Entry)) bb.Entry { e := e; change(&e); return e }
	for name, c := range map[string]struct {
		entry  bb.Entry
		size   uint64 // 0: 10
		state  bb.State
		reason string
	}{
		"dirty":                        {entry: e, state: bb.StateDirty, reason: "no space"},
		"dirty, another file":          {entry: with(func(e *bb.Entry) { e.File = 9 }), state: bb.StateDirty},
		"dirty, at another node":       {entry: with(func(e *bb.Entry) { e.Holders = []bb.NodeID{"n2"} }), state: bb.StateDirty},
		"being written":                {entry: with(func(e *bb.Entry) { e.Open = true }), size: 30, state: bb.StateOpen},
		"being written, not committed": {entry: with(func(e *bb.Entry) { e.Open, e.Generation = true, 7 }), state: bb.StateOpen},
		"being written at another node": {
			entry: with(func(e *bb.Entry) { e.Open, e.Holders = true, []bb.NodeID{"n2"} }), state: bb.StateOpen,
			reason: "open for writing at node n2: its size is known there alone, stat asks that node",
		},
		"clean, and not in memory": {entry: with(func(e *bb.Entry) { e.Flushed.Generation = 6 }), state: bb.StateEvicted},
		"clean at another node": {
			entry: with(func(e *bb.Entry) { e.Flushed.Generation, e.Holders = 6, []bb.NodeID{"n2"} }), state: bb.StateClean,
		},
	} {
		b := NewBuffer(Options{Owners: owner.Node{Self: "n1"}, Store: memory{6, 30}}, "b", Parts{Dirty: reasons{5: "no space"}})
		m := b.Describe(&c.entry)
		if uint64(m.Size) != cmp.Or(c.size, 10) || bb.State(m.State) != c.state || m.Reason != c.reason {
			t.Errorf("%s: size %d, %v, %q, want %d, %v, %q", name, m.Size, bb.State(m.State), m.Reason, cmp.Or(c.size, 10), c.state, c.reason)
		}
	}
	empty := with(func(e *bb.Entry) { e.Flushed.Generation, e.Size = 6, 0 })
	b := NewBuffer(Options{Owners: owner.Node{Self: "n1"}, Store: memory{}}, "b", Parts{})
	if m := b.Describe(&empty); bb.State(m.State) != bb.StateClean {
		t.Errorf("an empty file of which nothing can be evicted is %v", bb.State(m.State))
	}
}

// answering is a cluster whose nodes answer a request for an entry so.
type answering struct {
	Cluster
	answer *wire.Entry
}

func (a answering) Ask(_ context.Context, _ bb.NodeID, _ access.Caller, _ wire.Type, _, reply proto.Message) error {
	proto.Merge(reply, a.answer)
	return nil
}

// request is one of root.
type request struct{ call.Request }

func (request) Caller() *access.Caller { return new(access.Caller) }

// TestAskOwner: an older daemon that owns a file no more answers as well, with size 0. That is not the file's size.
func TestAskOwner(t *testing.T) {
	t.Parallel()
	e := bb.Entry{Name: "x", Type: bb.TypeFile, File: 5, Generation: 6, Open: true, Holders: []bb.NodeID{"n2"}}
	for name, c := range map[string]struct {
		answer *wire.Entry
		want   bb.Kind
	}{
		"its owner":               {&wire.Entry{Size: 7, State: uint32(bb.StateOpen), Holders: []string{"n2", "n1"}}, 0},
		"it was closed meanwhile": {&wire.Entry{Size: 7, State: uint32(bb.StateDirty), Holders: []string{"n3"}}, 0},
		"it has moved":            {&wire.Entry{State: uint32(bb.StateOpen), Holders: []string{"n3"}}, bb.Busy},
		"nobody has it":           {&wire.Entry{State: uint32(bb.StateOpen)}, bb.Busy},
	} {
		o := Options{Owners: owner.Node{Self: "n1"}, Cluster: answering{answer: c.answer}}
		got, err := New(o).askOwner(t.Context(), NewBuffer(o, "b", Parts{}), request{}, &wire.PathRequest{Path: "x"}, &e)
		if bb.KindOf(err) != c.want || err == nil && got.Size != 7 {
			t.Errorf("%s: %v (%v)", name, got, err)
		}
	}
}

// TestAttributes: attributes that a request does not name stay unchanged.
func TestAttributes(t *testing.T) {
	t.Parallel()
	if a := attributes(&wire.SetAttr{}); a.Mode != nil || a.UID != nil || a.GID != nil || a.MTime != nil {
		t.Errorf("of nothing: %+v", a)
	}
	mode, uid, mtime := uint32(fs.ModeSetuid|0o4755), uint32(7), int64(5)
	a := attributes(&wire.SetAttr{Mode: &mode, Uid: &uid, MtimeNs: &mtime})
	if a.Mode == nil || *a.Mode != 0o755 || a.UID == nil || *a.UID != 7 || a.GID != nil || a.MTime == nil || !a.MTime.Equal(time.Unix(0, 5)) {
		t.Errorf("of some: %+v", a)
	}
}
