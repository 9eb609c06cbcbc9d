package client

import (
	"math/rand/v2"
	"testing"

	"forebay/internal/wire"
)

// TestArena drives an arena with random requests beside a map of every byte: nothing
// is handed out twice, and data and records never meet.
func TestArena(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		size := int64(4096 + rnd.IntN(200_000))
		a := &arena{pos: 64 * int64(rnd.IntN(10)), floor: size}
		taken := make([]bool, size)
		mark := func(s span, to bool) {
			for i := s.off; i < s.end; i++ {
				if taken[i] == to {
					t.Fatalf("seed %d: byte %d was %v already", seed, i, to)
				}
				taken[i] = to
			}
		}
		var held []span
		owed := int64(0)
		for range 400 {
			switch rnd.IntN(7) {
			case 0, 1, 2:
				want := int64(1 + rnd.IntN(8000))
				least := 1 + rnd.Int64N(want)
				s, ok := a.take(want, least, recordBase+recordItem)
				if !ok {
					continue
				}
				if s.len() < least || s.len() > want || s.off%dataAlign != 0 {
					t.Fatalf("seed %d: took %v, wanted %d to %d", seed, s, least, want)
				}
				mark(s, true)
				held, owed = append(held, s), owed+recordBase+recordItem
			case 3:
				if len(held) == 0 {
					continue
				}
				s := &held[rnd.IntN(len(held))]
				n := a.extend(s.end, int64(rnd.IntN(5000)))
				mark(span{s.end, s.end + n}, true)
				s.end += n
			case 4:
				if len(held) == 0 {
					continue
				}
				i := rnd.IntN(len(held))
				s := held[i]
				from := s.off + rnd.Int64N(s.len()+1)
				a.giveBack(span{from, s.end})
				mark(span{from, s.end}, false)
				if held[i].end = from; from == s.off {
					held = append(held[:i], held[i+1:]...)
				}
			case 5:
				if owed >= wire.RecordCost(1) {
					a.spent(wire.RecordCost(1))
					owed -= wire.RecordCost(1)
				}
			case 6:
				if a.owe(recordItem) {
					owed += recordItem
				}
			}
			for i := size - 1; i >= a.floor-a.owed && i >= 0; i-- {
				if taken[i] {
					t.Fatalf("seed %d: byte %d is data, records need what is from %d on", seed, i, a.floor-a.owed)
				}
			}
			if a.owed != owed {
				t.Fatalf("seed %d: %d are owed, want %d", seed, a.owed, owed)
			}
		}
	}
}

func TestRecordCosts(t *testing.T) {
	t.Parallel()
	for n := int64(1); n < 100; n++ {
		if recordBase+n*recordItem != wire.RecordCost(int(n)) {
			t.Fatalf("%d extents: %d + %d each is not %d", n, recordBase, recordItem, wire.RecordCost(int(n)))
		}
	}
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
