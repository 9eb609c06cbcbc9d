package writer

import (
	"testing"

	"forebay/client/internal/lease"
	"forebay/internal/segment"
)

func TestComesTooEarly(t *testing.T) {
	t.Parallel()
	a, b, c := lease.NewChunk(1<<20), lease.NewChunk(1<<20), lease.NewChunk(1<<20)
	var log backlog
	add := func(mem *lease.Memory, off, n int64) {
		log.took(mem)
		at := lease.Span{Mem: mem, Span: segment.Span{Off: log.at(mem), End: 1 << 20}}
		log.add(&at, off, n)
	}
	add(a, 0, 1000)
	add(b, 500, 1000) // after a, over its end
	add(c, 1400, 100) // after b, over its end
	for _, x := range []struct {
		mem    *lease.Memory
		off, n int64
		early  bool
	}{
		{c, 0, 5000, false},  // the newest comes last anyway
		{a, 0, 500, false},   // over its own
		{a, 400, 101, true},  // over b's
		{a, 1499, 1, true},   // over b's and c's
		{a, 1500, 10, false}, // over nothing
		{b, 0, 500, false},   // over a's, which come before
		{b, 1400, 1, true},   // over c's
	} {
		if got := log.comesTooEarly(x.mem, x.off, x.n); got != x.early {
			t.Errorf("%d bytes at %d: %v", x.n, x.off, got)
		}
	}
	log.pending, log.newest = nil, nil
	for i := range log.holds {
		log.holds[i].extents = 0
	}
	if log.comesTooEarly(a, 0, 5000) {
		t.Error("with nothing pending")
	}
}

// at is where in a memory the next extent of a test goes.
func (b *backlog) at(mem *lease.Memory) (end int64) {
	for i := range b.pending {
		if e := &b.pending[i]; e.mem == mem {
			end = max(end, e.seg+e.length+segment.Align)
		}
	}
	return end
}

func TestContinues(t *testing.T) {
	t.Parallel()
	m, other := new(lease.Memory), new(lease.Memory)
	e := extent{mem: m, seg: 100, off: 1000, length: 50}
	for _, c := range []struct {
		mem      *lease.Memory
		seg, off int64
		want     bool
	}{
		{m, 150, 1050, true},
		{m, 151, 1050, false},     // not in a row in the segment
		{m, 150, 1051, false},     // nor in the file
		{other, 150, 1050, false}, // nor in the same segment
	} {
		if got := e.continues(c.mem, c.seg, c.off); got != c.want {
			t.Errorf("continues(%d, %d) is %v", c.seg, c.off, got)
		}
	}
	full := extent{mem: m, seg: 0, off: 0, length: segment.ExtentSize}
	if full.continues(m, segment.ExtentSize, segment.ExtentSize) {
		t.Error("an extent grows beyond its bound")
	}
}
