package status

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

// entries are one file in each of two buffers, one of which is destroyed meanwhile.
type entries struct {
	reads atomic.Int32
	err   error
}

func (e *entries) Buffers(context.Context) ([]bb.Buffer, error) {
	e.reads.Add(1)
	return []bb.Buffer{{Name: "b", UID: 7, Mode: 0o700}, {Name: "gone"}}, e.err
}

func (e *entries) Scan(_ context.Context, buffer string, visit func(e *bb.Entry, owner, replica bb.NodeID)) error {
	if buffer == "gone" {
		return bb.E(bb.NotFound, "scan", buffer, "it was destroyed")
	}
	visit(&bb.Entry{Type: bb.TypeFile, Size: 5, Generation: 1}, "n1", "")
	return nil
}

// TestCensus: a census is used again while it is fresh. One that fails is marked, and is taken again.
func TestCensus(t *testing.T) {
	defer goleak.VerifyNone(t)
	from := &entries{err: bb.E(bb.Unavailable, "list", "", "no server")}
	c := &counter{ctx: t.Context(), from: from, run: func(f func()) { go f() }}
	if found := c.newest(t.Context()); found.lacks == "" || len(found.held) != 0 {
		t.Errorf("a census that failed: %+v", found)
	}
	from.err = nil
	for range 2 {
		if found := c.newest(t.Context()); found.lacks != "" || found.held["n1"]["b"].Bytes != 5 {
			t.Errorf("%+v", found)
		}
	}
	if n := from.reads.Load(); n != 2 {
		t.Errorf("the buffers were listed %d times, want one that failed and one", n)
	}
	found := c.newest(t.Context())
	for uid, want := range map[uint32]bool{7: true, 8: false} {
		if got := found.permits(access.Caller{UID: uid, GIDs: []uint32{uid}}, "b"); got != want {
			t.Errorf("user %d may see the buffer: %v", uid, got)
		}
	}
	if found.permits(access.Daemon(), "new") {
		t.Error("a buffer that the census has not found is shown")
	}
}

// A symbolic link that is not on a store is counted as a file is. The bytes are its target's. An
// entry without content of its own is not counted.
func TestCensusOfLinks(t *testing.T) {
	c := census{held: map[bb.NodeID]map[string]Holding{}}
	for _, e := range []bb.Entry{
		{Type: bb.TypeFile, Size: 5, Generation: 1},
		{Type: bb.TypeSymlink, Size: 3, Generation: 1},
		{Type: bb.TypeSymlink, Size: 3, Generation: 1, Flushed: bb.Flushed{Generation: 1}},
		{Type: bb.TypeSymlink, Size: 3}, // of a buffer without a store
		{Type: bb.TypeDirectory},
	} {
		c.add("b", &e, "n1", "")
	}
	if got := c.held["n1"]["b"]; got.Files != 2 || got.Bytes != 8 {
		t.Errorf("%+v, want a file and a link of 8 B", got)
	}
}
