package bbd_test

import (
	"testing"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// TestSplitExtentKeepsItsChecksum: an extent goes to the owner of its file in two pieces, because
// the rest of the owner's segment is too small for it. The checksums of the pieces must not make
// bytes look right that are not the writer's.
func TestSplitExtentKeepsItsChecksum(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "b"})
	const n = 1536 << 10 // a segment has room for one and a half
	zeros := make([]byte, n)
	names := []string{"right", "wrong"}
	for _, name := range names {
		write(t, b, name, []byte("owned by the first node"))
	}
	r := nodes[1].raw()
	commit := func(handle uint64, name string, sum uint64) rawReply {
		var l wire.Lease
		r.ok(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "b", Bytes: 2 << 20, Fits: n}, nil, &l)
		r.open(&wire.Open{Handle: handle, Buffer: "b", Path: name, Write: true, Truncate: true})
		return r.call(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: handle, Close: true, Extents: []*wire.NewExtent{
			{Length: n, Checksum: sum, Lease: l.Id, SegmentOffset: l.DataStart},
		}}, nil)
	}
	if reply := commit(101, names[0], checksum.Sum(zeros)); reply.head.Has(wire.FlagError) {
		t.Fatal(reply.error(t))
	}
	wantFile(t, b, names[0], zeros)
	reply := commit(102, names[1], checksum.Sum(zeros)+1)
	if reply.head.Has(wire.FlagError) {
		if err := reply.error(t); bb.KindOf(err) != bb.Checksum {
			t.Errorf("it was refused with %v", err)
		}
	} else if got, err := b.ReadFile(t.Context(), names[1]); err == nil { // it was not split
		t.Errorf("it was committed, and reading it returns %d bytes", len(got))
	}
}
