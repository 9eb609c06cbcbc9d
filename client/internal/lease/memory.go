package lease

import (
	"context"
	"sync"

	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/segment"
	"forebay/rdma"
)

// Memory is where bytes wait to be committed: a leased segment, or a chunk of this
// process's own memory whose bytes travel in the commit. Its methods may be used concurrently.
type Memory struct {
	Bytes []byte
	lease *lease // nil: a chunk

	mu     *sync.Mutex    // of a segment; its pool's
	cursor segment.Cursor // guarded by mu
}

// NewChunk returns n bytes of this process's own memory.
func NewChunk(n int64) *Memory {
	return &Memory{Bytes: make([]byte, n), mu: new(sync.Mutex), cursor: segment.NewCursor(0, n)}
}

// Reset makes the first n bytes of a chunk free again.
func (m *Memory) Reset(n int64) { m.cursor = segment.NewCursor(0, n) }

// Allocate hands out between least and want bytes of a chunk.
func (m *Memory) Allocate(want, least int64) (Span, bool) {
	at, ok := m.cursor.Take(want, least, 0)
	return Span{Mem: m, Span: at}, ok
}

// Leased reports whether the memory is a leased segment, and no chunk.
func (m *Memory) Leased() bool { return m.lease != nil }

// Of reports whether the memory may be committed from in a session. A lease is void in any other
// than its own.
func (m *Memory) Of(s *session.Session) bool { return m.lease == nil || m.lease.session == s }

// Remote reports whether bytes have to be transferred to the daemon's memory before they are committed.
func (m *Memory) Remote() bool { return m.lease != nil && m.lease.region == nil }

// Void reports whether the memory belongs to a session that broke.
func (m *Memory) Void() bool { return m.lease != nil && m.lease.session.Broken() }

// Place returns the lease, and the offset in its segment, at which the daemon finds the byte at off. Lease 0: none, the
// bytes have to travel.
func (m *Memory) Place(off int64) (lease uint64, at int64) {
	if m.lease == nil {
		return 0, 0
	}
	return m.lease.id, m.lease.base + off
}

// Store begins to transfer n bytes from off on, at most transferSize, to where they belong. The
// memory is remote.
func (m *Memory) Store(ctx context.Context, t *remote.Transfers, off, n int64) error {
	l := m.lease
	return t.Post(ctx, l.session.Remote, rdma.OpWrite, l.Bytes[off:off+n], l.key, l.at+off)
}

// Enter makes a file that has nothing in the memory so far a user of it, though there may be no room for its
// record.
func (m *Memory) Enter() {
	if m.lease == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease.users.Enter()
	m.cursor.MustReserveRecords(segment.RecordBase)
}

// Leave ends a file's use of the memory. The file's bytes there are committed, or void.
func (m *Memory) Leave() {
	if m.lease == nil {
		return
	}
	m.mu.Lock()
	m.cursor.UnreserveRecords(segment.RecordBase)
	m.mu.Unlock()
	m.lease.leave()
}

// cost is the size of the record of a commit of so many extents.
func (m *Memory) cost(extents int64) int64 {
	if m.lease == nil || extents == 0 {
		return 0
	}
	return segment.RecordBase + extents*segment.RecordItem
}

// Committed spends the room reserved for the record of a file's extents, which is written, and reserves
// the base of the next one.
func (m *Memory) Committed(extents int64) {
	cost := m.cost(extents)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor.Spend(cost)
	if cost > 0 {
		m.cursor.MustReserveRecords(segment.RecordBase)
	}
}

// MayBeCommitted charges the record of a file's extents, which is written or not. It reports
// whether there is room for it again.
func (m *Memory) MayBeCommitted(extents int64) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor.Waste(m.cost(extents))
	return m.cursor.Free() >= 0
}

// UnreserveRecords frees the room reserved for the records of extents that will not be committed.
func (m *Memory) UnreserveRecords(extents int64) {
	if m.lease == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor.UnreserveRecords(extents * segment.RecordItem)
}

// Tight reports whether there is no room for the records that it was reserved for. Nothing may be committed
// from the memory.
func (m *Memory) Tight() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cursor.Free() < 0
}

// Span is a piece of memory that one file fills, from its start on. It is used by one goroutine
// at a time.
type Span struct {
	Mem *Memory // nil: none
	segment.Span
	recordSlots int64 // extents that room for records is set aside for
}

// Bytes is the memory of the span.
func (c *Span) Bytes() []byte { return c.Mem.Bytes[c.Off:c.End:c.End] }

// Advance takes n bytes from the front, which are part of an extent now. It has a record of its own
// if it is new.
func (c *Span) Advance(n int64) { c.Off += n }

// SpendRecordSlot takes the room that is set aside for the record of one extent.
func (c *Span) SpendRecordSlot() { c.recordSlots = max(0, c.recordSlots-1) }

// Pay makes sure that room for the records of so many further extents of the span is set aside.
func (c *Span) Pay(extents int64) bool {
	if c.Mem == nil || c.Mem.lease == nil {
		return c.Mem != nil
	}
	missing := extents - c.recordSlots
	if missing <= 0 {
		return true
	}
	c.Mem.mu.Lock()
	defer c.Mem.mu.Unlock()
	if !c.Mem.cursor.ReserveRecords(missing * segment.RecordItem) {
		return false
	}
	c.recordSlots = extents
	return true
}

// Lengthen makes a span longer, if nothing else follows it, and requests the next lease in time.
func (c *Span) Lengthen(ctx context.Context, want int64) {
	if c.Mem == nil {
		return
	}
	c.Mem.mu.Lock()
	n := c.Mem.cursor.Extend(c.End, want)
	c.End += n
	var next *grant
	if l := c.Mem.lease; l != nil && n > 0 {
		next = l.pool.used(l.session, n)
	}
	c.Mem.mu.Unlock()
	if next != nil {
		next.ask(ctx, c.Mem.lease.pool)
	}
}

// Split takes the first n bytes off, with the room for the records of so many extents.
func (c *Span) Split(n, extents int64) Span {
	front := *c
	front.End = c.Off + n
	front.recordSlots, c.recordSlots = extents, max(0, c.recordSlots-extents)
	c.Off += n
	return front
}

// Join returns the rest of front to the span, if front follows it. It reports whether it does.
func (c *Span) Join(front *Span) bool {
	if front.Mem == nil || front.Mem != c.Mem || front.End != c.Off {
		return false
	}
	c.Off = front.Off
	c.recordSlots += front.recordSlots
	front.Off, front.recordSlots = front.End, 0
	return true
}

// GiveBack returns the rest of a span to its memory, with the room for records.
func (c *Span) GiveBack() {
	m := c.Mem
	m.mu.Lock()
	m.cursor.GiveBack(c.Span)
	if m.lease != nil {
		m.cursor.UnreserveRecords(c.recordSlots * segment.RecordItem)
	}
	m.mu.Unlock()
	*c = Span{}
}
