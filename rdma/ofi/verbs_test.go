//go:build ofi && cgo && verbs

package ofi

import (
	"bytes"
	"testing"

	"forebay/rdma"
)

// TestConformanceVerbs needs a verbs device: scripts/rxe.sh has one.
func TestConformanceVerbs(t *testing.T) { suite(t, "verbs") }

// TestVerbsMemoryAtTheSameAddress: memory that was registered, closed and unmapped, and other
// memory that comes to lie where it was, have nothing to do with each other.
func TestVerbsMemoryAtTheSameAddress(t *testing.T) {
	far, err := New(configurations["verbs"].opts)
	must(t, err)
	defer far.Close()
	near, err := New(configurations["verbs"].opts)
	must(t, err)
	defer near.Close()
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	c, err := near.Dial(t.Context(), l.Addr())
	must(t, err)
	seen := map[*byte]bool{}
	again := false
	for round := range 8 {
		mem, err := rdma.Allocate(1 << 20)
		must(t, err)
		again = again || seen[&mem.Bytes[0]]
		seen[&mem.Bytes[0]] = true
		r, err := far.Register(mem, all)
		must(t, err)
		content := bytes.Repeat([]byte{byte(round + 1)}, len(mem.Bytes))
		must(t, rdma.Do(t.Context(), c, []rdma.Op{{Kind: rdma.OpWrite, Local: content, Remote: rdma.Remote{Key: r.Key()}}}))
		if !bytes.Equal(mem.Bytes, content) {
			t.Fatalf("round %d: what was written is not there", round)
		}
		must(t, r.Close())
		must(t, mem.Free())
	}
	if !again {
		t.Error("no memory came to lie where other memory was: the test proves nothing")
	}
}
