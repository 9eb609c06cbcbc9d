package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"forebay/internal/segment"
)

func TestComesTooEarly(t *testing.T) {
	t.Parallel()
	a, b, c := newChunk(1<<20), newChunk(1<<20), newChunk(1<<20)
	var log backlog
	add := func(mem *memory, off, n int64) {
		log.took(mem)
		at := claim{mem: mem, Span: segment.Span{Off: log.at(mem), End: 1 << 20}}
		log.add(&at, off, n)
	}
	add(a, 0, 1000)
	add(b, 500, 1000) // after a: over its end
	add(c, 1400, 100) // after b: over its end
	for _, x := range []struct {
		mem    *memory
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
func (b *backlog) at(mem *memory) (end int64) {
	for i := range b.pending {
		if e := &b.pending[i]; e.mem == mem {
			end = max(end, e.seg+e.length+segment.Align)
		}
	}
	return end
}

func TestContinues(t *testing.T) {
	t.Parallel()
	m, other := new(memory), new(memory)
	e := extent{mem: m, seg: 100, off: 1000, length: 50}
	for _, c := range []struct {
		mem      *memory
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
	full := extent{mem: m, seg: 0, off: 0, length: extentSize}
	if full.continues(m, extentSize, extentSize) {
		t.Error("an extent grows beyond its bound")
	}
}

// TestOverlaps writes over what is not committed yet, in several leases at once: later
// writes win, whatever lies where.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	_, dial := farDaemon(t)
	_, local, _ := daemonClient(t)
	ctx := context.Background()
	for name, b := range map[string]*Buffer{"mapped": local.Buffer("b"), "far": dial().Buffer("open")} {
		for run := range 20 {
			f := must[*File](t)(b.Create(ctx, "f"))
			want := random(3<<20 + 5)
			must[int](t)(f.Write(want))
			for _, n := range []int{10, 5 << 20, MaxReserve, 300_000} {
				room := must[[]byte](t)(f.Reserve(n))
				copy(room, random(n))
				want = append(want, room...)
				check(t, f.Publish(n))
			}
			for i := range 30 {
				p, off := random(rand.IntN(2<<20)), rand.IntN(len(want)-2<<20)
				copy(want[off:], p)
				must[int](t)(f.WriteAt(p, int64(off)))
				if i%7 == 0 {
					check(t, f.Sync())
				}
			}
			check(t, f.Close())
			if got := readAll(t, b, "f"); !bytes.Equal(got, want) {
				t.Errorf("%s, run %d: content differs", name, run)
			}
			check(t, b.Remove(ctx, "f"))
		}
	}
}

// TestReserveBesideUnfinished: what others have left unfinished is too small for a large
// reservation, however much of it there is.
func TestReserveBesideUnfinished(t *testing.T) {
	t.Parallel()
	d, local, _ := daemonClient(t)
	b := local.Buffer("b")
	ctx := context.Background()
	for i := range 12 {
		c := must[*Client](t)(Dial(ctx, Options{Address: "unix://" + d.Socket}))
		defer c.Close()
		check(t, c.Buffer("b").WriteFile(ctx, fmt.Sprint(i), random(100_000), 0))
	}
	time.Sleep(2 * idleFor) // they give their leases back, which are unfinished segments
	f := must[*File](t)(b.Create(ctx, "large"))
	copy(must[[]byte](t)(f.Reserve(MaxReserve)), random(MaxReserve))
	check(t, f.Publish(MaxReserve))
	check(t, f.Close())
}
