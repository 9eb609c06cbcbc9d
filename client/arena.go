package client

import "forebay/internal/wire"

// dataAlign is the alignment of what begins in a segment: a cache line.
const dataAlign = 64

// arena divides a leased segment among the files that are written into it. It is pure
// arithmetic: offsets are in the segment, and its owner guards it.
//
//	data_start             pos                    floor - owed        floor
//	    ├── handed out, holes ──┤ never handed out ────┤ owed to records ┤ records written ─▶
//
// Data never crosses floor - owed: each commit's record takes wire.RecordCost of its
// extents in this segment below the records before it, and that much is owed for
// everything that was handed out and is not committed.
type arena struct {
	pos   int64 // everything from here on was never handed out, or was given back
	floor int64
	owed  int64
	holes []span // given back behind pos, at most maxHoles, for small files
}

// span is a run of bytes [off, end) of a segment.
type span struct{ off, end int64 }

func (s span) len() int64 { return s.end - s.off }

const (
	maxHoles = 16
	minHole  = 256
)

// The costs that are owed: one of the first extent of a file in a segment, one of each further one.
var (
	recordBase = 2*wire.RecordCost(1) - wire.RecordCost(2)
	recordItem = wire.RecordCost(2) - wire.RecordCost(1)
)

// free is how many bytes were never handed out.
func (a *arena) free() int64 { return a.floor - a.owed - a.pos }

// owe sets room for records aside, if there is.
func (a *arena) owe(cost int64) bool {
	if a.free() < cost {
		return false
	}
	a.owed += cost
	return true
}

// forgive gives back what was owed and will not be needed.
func (a *arena) forgive(cost int64) { a.owed -= cost }

// spent says that a record that was owed for is being written.
func (a *arena) spent(cost int64) {
	a.owed -= cost
	a.floor -= cost
}

// take hands out up to want bytes, at least least, and owes cost.
func (a *arena) take(want, least, cost int64) (span, bool) {
	for i, h := range a.holes {
		if h.len() >= want && a.owe(cost) {
			got := span{h.off, h.off + want}
			a.dropHole(i, align(got.end))
			return got, true
		}
	}
	off := align(a.pos)
	n := min(want, a.floor-a.owed-cost-off)
	if n < least || n <= 0 {
		return span{}, false
	}
	a.pos = off + n
	a.owed += cost
	return span{off, off + n}, true
}

// dropHole keeps what is left of a hole from off on, if it is worth it.
func (a *arena) dropHole(i int, off int64) {
	if a.holes[i].off = off; a.holes[i].len() >= minHole {
		return
	}
	last := len(a.holes) - 1
	a.holes[i] = a.holes[last]
	a.holes = a.holes[:last]
}

// extend hands out up to want bytes that follow end, which is where something ends that
// was handed out. It is 0 when something else follows there.
func (a *arena) extend(end, want int64) int64 {
	if end != a.pos {
		return 0
	}
	n := max(0, min(want, a.free()))
	a.pos += n
	return n
}

// giveBack returns what was handed out and holds nothing.
func (a *arena) giveBack(s span) {
	switch {
	case s.len() <= 0:
	case s.end == a.pos:
		a.pos = s.off
		a.joinTail()
	case s.len() >= minHole+dataAlign && len(a.holes) < maxHoles:
		a.holes = append(a.holes, span{align(s.off), s.end})
	}
}

// joinTail makes holes that now lie at the end part of what was never handed out.
func (a *arena) joinTail() {
	for i := 0; i < len(a.holes); i++ {
		if a.holes[i].end == a.pos {
			a.pos = a.holes[i].off
			a.holes[i] = a.holes[len(a.holes)-1]
			a.holes = a.holes[:len(a.holes)-1]
			i = -1
		}
	}
}

func align(n int64) int64 { return (n + dataAlign - 1) &^ (dataAlign - 1) }
