// Package segment divides a leased segment among the files whose bytes are written into it. It is
// the same arithmetic for clients, for a daemon that fills segments of its own and for one that
// fills another's. It must never depend on the owner of a segment, nor on the way of bytes there.
package segment

import "forebay/internal/wire"

// Align is the alignment of ranges in a segment, in bytes, of a cache line.
const Align = 64

// AlignUp returns the first aligned offset at or behind n.
func AlignUp(n int64) int64 { return (n + Align - 1) &^ (Align - 1) }

// ExtentSize is the longest run of bytes under one checksum that a client writes, ending at
// multiples of it in the file. A reader of a part of an extent has to read all of it to verify it.
// At this size that stays in the cache that it is copied from next, and a reader in steps of 1 MiB
// gets whole ones.
const ExtentSize = 1 << 20

// The room that is reserved for the record of a commit, for the first extent of a file in a segment,
// and for each further one.
var (
	RecordItem = wire.RecordCost(2) - wire.RecordCost(1)
	RecordBase = wire.RecordCost(1) - RecordItem
)

// Span is a run of bytes [Off, End).
type Span struct{ Off, End int64 }

// Len is how many bytes a span has.
func (s Span) Len() int64 { return s.End - s.Off }

// Cursor is where a segment is filled next. It is pure arithmetic. Offsets are in the segment, and
// its owner guards it.
//
//	data_start             pos                    floor - reserved   floor
//	    ├── handed out, holes ──┤ never handed out ────┤ for records ────┤ records written ─▶
//
// Data never crosses floor - reserved. Each commit's record takes wire.RecordCost of its extents in
// this segment below the records before it, and that much is reserved for everything that was handed
// out and is not committed.
type Cursor struct {
	pos      int64 // everything from here on was never handed out, or was given back
	floor    int64
	reserved int64
	holes    []Span // given back behind pos, at most maxHoles, for small files
}

const (
	maxHoles = 16
	minHole  = 256
)

// NewCursor returns the cursor of a segment that nothing was written to: data from start on,
// records below floor.
func NewCursor(start, floor int64) Cursor { return Cursor{pos: AlignUp(start), floor: floor} }

// Free is how many bytes were never handed out. It is negative if records have no room.
func (c *Cursor) Free() int64 { return c.floor - c.reserved - c.pos }

// ReserveRecords sets room for records aside, if there is.
func (c *Cursor) ReserveRecords(cost int64) bool {
	if c.Free() < cost {
		return false
	}
	c.reserved += cost
	return true
}

// MustReserveRecords sets room for records aside that may not be there: Free is negative then.
func (c *Cursor) MustReserveRecords(cost int64) { c.reserved += cost }

// UnreserveRecords frees reserved room for records that will not be needed.
func (c *Cursor) UnreserveRecords(cost int64) { c.reserved -= cost }

// Spend takes reserved room for a record that is being written.
func (c *Cursor) Spend(cost int64) {
	c.reserved -= cost
	c.floor -= cost
}

// Waste takes room that is not reserved for a record that may have been written.
func (c *Cursor) Waste(cost int64) { c.floor -= cost }

// Take hands out up to want bytes, at least least, and reserves cost bytes for records.
func (c *Cursor) Take(want, least, cost int64) (Span, bool) {
	for i, h := range c.holes {
		if h.Len() >= want && c.ReserveRecords(cost) {
			got := Span{h.Off, h.Off + want}
			c.dropHole(i, AlignUp(got.End))
			return got, true
		}
	}
	off := AlignUp(c.pos)
	n := min(want, c.floor-c.reserved-cost-off)
	if n < least || n <= 0 {
		return Span{}, false
	}
	c.pos = off + n
	c.reserved += cost
	return Span{off, off + n}, true
}

// TakeExtent is Take of one extent that will have a record of its own. Its room is spent at once.
func (c *Cursor) TakeExtent(want, least int64) (Span, bool) {
	cost := wire.RecordCost(1)
	s, ok := c.Take(want, least, cost)
	if ok {
		c.Spend(cost)
	}
	return s, ok
}

// dropHole keeps the rest of a hole from off on, if it is worth it.
func (c *Cursor) dropHole(i int, off int64) {
	if c.holes[i].Off = off; c.holes[i].Len() >= minHole {
		return
	}
	last := len(c.holes) - 1
	c.holes[i] = c.holes[last]
	c.holes = c.holes[:last]
}

// Extend hands out up to want bytes that follow end, the end of a range that was handed out. If
// another range follows there, it is 0.
func (c *Cursor) Extend(end, want int64) int64 {
	if end != c.pos {
		return 0
	}
	n := max(0, min(want, c.Free()))
	c.pos += n
	return n
}

// GiveBack returns a range that was handed out and holds nothing.
func (c *Cursor) GiveBack(s Span) {
	switch {
	case s.Len() <= 0:
	case s.End == c.pos:
		c.pos = s.Off
		c.joinTail()
	case s.Len() >= minHole+Align && len(c.holes) < maxHoles:
		c.holes = append(c.holes, Span{AlignUp(s.Off), s.End})
	}
}

// joinTail joins holes that now lie at the end with the part that was never handed out.
func (c *Cursor) joinTail() {
	for i := 0; i < len(c.holes); i++ {
		if c.holes[i].End == c.pos {
			c.pos = c.holes[i].Off
			c.holes[i] = c.holes[len(c.holes)-1]
			c.holes = c.holes[:len(c.holes)-1]
			i = -1
		}
	}
}

// Users counts the users of a leased segment: files that fill it, or have uncommitted bytes in it.
// The segment is returned once it is closed and nothing uses it. Its owner guards it.
type Users struct {
	n      int
	closed bool
}

// Enter adds a user.
func (u *Users) Enter() { u.n++ }

// Leave ends a user. It reports whether the segment has to be returned now.
func (u *Users) Leave() (last bool) {
	u.n--
	return u.closed && u.n == 0
}

// Close ends the filling of the segment. It reports whether the segment has to be returned now.
func (u *Users) Close() (last bool) {
	u.closed = true
	return u.n == 0
}

// Idle reports whether nothing uses the segment.
func (u *Users) Idle() bool { return u.n == 0 }
