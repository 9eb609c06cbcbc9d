package segment

import (
	"math/rand/v2"
	"testing"

	"forebay/internal/wire"
)

// TestCursor drives a cursor with random requests beside a map of every byte. Nothing is handed out
// twice, and data and records never meet.
func TestCursor(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		size := int64(4096 + rnd.IntN(200_000))
		c := &Cursor{pos: 64 * int64(rnd.IntN(10)), floor: size}
		taken := make([]bool, size)
		mark := func(s Span, to bool) {
			for i := s.Off; i < s.End; i++ {
				if taken[i] == to {
					t.Fatalf("seed %d: byte %d was %v already", seed, i, to)
				}
				taken[i] = to
			}
		}
		var held []Span
		reserved := int64(0)
		for range 400 {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				want := int64(1 + rnd.IntN(8000))
				least := 1 + rnd.Int64N(want)
				s, ok := c.Take(want, least, RecordBase+RecordItem)
				if !ok {
					continue
				}
				if s.Len() < least || s.Len() > want || s.Off%Align != 0 {
					t.Fatalf("seed %d: took %v, wanted %d to %d", seed, s, least, want)
				}
				mark(s, true)
				held, reserved = append(held, s), reserved+RecordBase+RecordItem
			case 3:
				if len(held) == 0 {
					continue
				}
				s := &held[rnd.IntN(len(held))]
				n := c.Extend(s.End, int64(rnd.IntN(5000)))
				mark(Span{s.End, s.End + n}, true)
				s.End += n
			case 4:
				if len(held) == 0 {
					continue
				}
				i := rnd.IntN(len(held))
				s := held[i]
				from := s.Off + rnd.Int64N(s.Len()+1)
				c.GiveBack(Span{from, s.End})
				mark(Span{from, s.End}, false)
				if held[i].End = from; from == s.Off {
					held = append(held[:i], held[i+1:]...)
				}
			case 5:
				if reserved >= wire.RecordCost(1) {
					c.Spend(wire.RecordCost(1))
					reserved -= wire.RecordCost(1)
				}
			case 6:
				if c.ReserveRecords(RecordItem) {
					reserved += RecordItem
				}
			case 7:
				want := int64(1 + rnd.IntN(8000))
				if s, ok := c.TakeExtent(want, want); ok {
					mark(s, true)
				}
			}
			for i := size - 1; i >= c.floor-c.reserved && i >= 0; i-- {
				if taken[i] {
					t.Fatalf("seed %d: byte %d is data, records need what is from %d on", seed, i, c.floor-c.reserved)
				}
			}
			if c.reserved != reserved {
				t.Fatalf("seed %d: %d bytes are reserved, want %d", seed, c.reserved, reserved)
			}
		}
	}
}

// TestUsers: a segment is returned once, when it is closed and nothing uses it.
func TestUsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		steps string // e: enter, l: leave, r: close; upper case: the segment is returned then
	}{{"R"}, {"elR"}, {"erL"}, {"eerlL"}, {"elelR"}} {
		var u Users
		for i, step := range c.steps {
			last := false
			switch step {
			case 'e':
				u.Enter()
			case 'l', 'L':
				last = u.Leave()
			case 'r', 'R':
				last = u.Close()
			}
			if want := step < 'a'; last != want {
				t.Errorf("%s, step %d: returned: %v", c.steps, i, last)
			}
		}
		if !u.Idle() {
			t.Errorf("%s: there are users at the end", c.steps)
		}
	}
}

func TestRecordCosts(t *testing.T) {
	t.Parallel()
	for n := int64(1); n < 100; n++ {
		if RecordBase+n*RecordItem != wire.RecordCost(int(n)) {
			t.Fatalf("%d extents: %d + %d each is not %d", n, RecordBase, RecordItem, wire.RecordCost(int(n)))
		}
	}
}
