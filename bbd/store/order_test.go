package store

import (
	"bytes"
	"testing"

	"forebay/internal/checksum"
)

// TestLaterExtentsWin: within one commit too, in any segments, and after a restart.
func TestLaterExtentsWin(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	var leases [2]Lease
	for i := range leases {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		leases[i] = l
	}
	c := Commit{File: 1, Generation: 1, Buffer: "b"}
	want := make([]byte, 5000)
	for i, e := range []struct {
		lease    int
		off, end int
	}{
		{0, 0, 2000}, {1, 1000, 3000}, {0, 1500, 2500}, {1, 2400, 4000}, {0, 4000, 5000}, {1, 100, 200}, {0, 150, 4500},
	} {
		l := &leases[e.lease]
		p := content(uint64(i), e.end-e.off)
		at := align(l.DataStart)
		c.Extents = append(c.Extents, NewExtent{l.ID, at, int64(e.off), int64(len(p)), checksum.Copy(l.Mem[at:], p, 0)})
		l.DataStart = at + int64(len(p))
		copy(want[e.off:], p)
	}
	if err := s.Commit(c); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store, when string) {
		t.Helper()
		v, err := s.Snapshot(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if got := read(t, v); !bytes.Equal(got, want) {
			t.Errorf("%s, an earlier extent hides a later one", when)
		}
	}
	check(s, "at once")
	for _, l := range leases {
		if err := s.Release(l.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, o)
	check(again, "after a restart")
}
