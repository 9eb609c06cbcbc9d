package writer

import (
	"iter"

	"forebay/client/internal/lease"
	"forebay/internal/checksum"
	"forebay/internal/segment"
)

// extent is a run of a file's bytes that waits for a commit.
type extent struct {
	mem    *lease.Memory
	seg    int64 // in the memory
	off    int64 // in the file
	length int64
	sum    uint64
	sent   int64 // bytes from the front that are on their way to a segment that is remote
}

func (e *extent) bytes() []byte { return e.mem.Bytes[e.seg : e.seg+e.length : e.seg+e.length] }

// continues reports whether n more bytes at seg of mem and off of the file make the
// extent longer.
func (e *extent) continues(mem *lease.Memory, seg, off int64) bool {
	return e.mem == mem && e.seg+e.length == seg && e.off+e.length == off && off%segment.ExtentSize != 0
}

// hold is a writer's use of one memory.
type hold struct {
	mem     *lease.Memory
	extents int64 // that wait for a commit
	pieces  int   // its span and its reservation, as far as they are in it
	tight   bool  // there is no room for another record; nothing may be committed from it
}

// backlog is the uncommitted part of a file, and its places. It does the
// bookkeeping: the debt to records, and the leases in use. It is guarded by
// the file's turn.
type backlog struct {
	pending  []extent // in the order written, so that later ones win if they overlap
	holds    []hold
	span     lease.Span    // being filled
	reserved lease.Span    // handed out by Reserve
	newest   *lease.Memory // the newest of those that hold pending bytes
	asides   []*aside
}

// aside is the part of pending that is being written again elsewhere. All of it waits for a commit
// until the last of it is pending again. The connection may break meanwhile. Then everything
// pending by then is put aside, too.
type aside struct {
	extents   []extent
	copies    [][]byte // of the bytes of the extents; nil: not made yet, or not needed any more
	from      backlog  // the extents' old memory, until it is copied
	committed bool     // all of it is committed; nothing is left to be written again
}

// comesTooEarly reports whether n bytes at off of the file, added in a memory, would lie over
// something pending in another one that came later. A commit is recorded segment by segment, in the
// order in which it first names them, and for a second record of a segment, which would keep the
// order, no room is set aside.
func (b *backlog) comesTooEarly(mem *lease.Memory, off, n int64) bool {
	if h := b.hold(mem); b.newest == nil || b.newest == mem || h == nil || h.extents == 0 {
		return false
	}
	before := true
	for i := range b.pending {
		e := &b.pending[i]
		before = before && e.mem != mem
		if !before && e.mem != mem && e.off < off+n && off < e.off+e.length {
			return true
		}
	}
	return false
}

// HoldsIn reports whether there is something in a memory already, for which the base of
// a record is reserved. Its pool may be locked.
func (b *backlog) HoldsIn(mem *lease.Memory) bool { return b.hold(mem) != nil }

// HasPending reports whether anything is not committed.
func (b *backlog) HasPending() bool { return len(b.pending) > 0 }

func (b *backlog) hold(mem *lease.Memory) *hold {
	for i := range b.holds {
		if b.holds[i].mem == mem {
			return &b.holds[i]
		}
	}
	return nil
}

// took records that a span was made.
func (b *backlog) took(mem *lease.Memory) {
	if h := b.hold(mem); h != nil {
		h.pieces++
		return
	}
	b.holds = append(b.holds, hold{mem: mem, pieces: 1})
}

// drop returns the rest of a span.
func (b *backlog) drop(c *lease.Span) {
	mem := c.Mem
	if mem == nil {
		return
	}
	c.GiveBack()
	b.hold(mem).pieces--
	b.releaseEmpty(mem)
}

// releaseEmpty ends the hold on a memory in which nothing is left.
func (b *backlog) releaseEmpty(mem *lease.Memory) {
	h := b.hold(mem)
	if h.pieces > 0 || h.extents > 0 {
		return
	}
	*h = b.holds[len(b.holds)-1]
	b.holds = b.holds[:len(b.holds)-1]
	mem.Leave()
}

// add makes the first n bytes of a span, which was paid for, the file's bytes from off
// on, and returns their extent, whose checksum does not cover them yet.
// They must not cross a multiple of segment.ExtentSize in the file.
func (b *backlog) add(c *lease.Span, off, n int64) *extent {
	if last := len(b.pending) - 1; last < 0 || !b.pending[last].continues(c.Mem, c.Off, off) {
		b.pending = append(b.pending, extent{mem: c.Mem, seg: c.Off, off: off})
		if h := b.hold(c.Mem); h.extents == 0 {
			b.newest = c.Mem
		}
		b.hold(c.Mem).extents++
		c.SpendRecordSlot()
	}
	e := &b.pending[len(b.pending)-1]
	e.length += n
	c.Advance(n)
	return e
}

// isNext reports whether bytes at off of the file would make the last extent longer.
func (b *backlog) isNext(c *lease.Span, off int64) bool {
	n := len(b.pending)
	return n > 0 && b.pending[n-1].continues(c.Mem, c.Off, off)
}

// committed spends the room of the records of everything pending, which are written. Leases in which
// nothing is left are released.
func (b *backlog) committed() {
	b.pending, b.newest = b.pending[:0], nil
	for i := range b.holds {
		h := &b.holds[i]
		h.mem.Committed(h.extents)
		h.extents = 0
		h.tight = h.mem.Tight()
	}
	if h := b.hold(b.span.Mem); h != nil && (h.tight || !h.mem.Leased()) {
		b.drop(&b.span)
	}
	for i := len(b.holds) - 1; i >= 0; i-- {
		h := &b.holds[i]
		h.tight = h.mem.Tight()
		b.releaseEmpty(h.mem)
	}
}

// mayBeWritten charges a commit of everything pending that failed, or whose outcome is unknown. The
// room of its records may be used, and is counted as used. It reports whether there is room for
// them again.
func (b *backlog) mayBeWritten() (again bool) {
	again = true
	for i := range b.holds {
		room := b.holds[i].mem.MayBeCommitted(b.holds[i].extents)
		again = again && room
	}
	return again
}

// putAside takes everything pending away, to be written again elsewhere. The holds
// that it needs meanwhile end with release.
func (b *backlog) putAside() (a *aside, release func()) {
	b.drop(&b.span)
	a = &aside{extents: b.pending, copies: make([][]byte, len(b.pending)), from: backlog{holds: b.holds}}
	b.asides = append(b.asides, a)
	b.pending, b.newest = nil, nil
	b.holds = nil
	if mem := b.reserved.Mem; mem != nil {
		h := a.from.hold(mem)
		h.pieces--
		b.holds = append(b.holds, hold{mem: mem, pieces: 1, tight: true})
		mem.Enter()
	}
	return a, func() {
		if !a.committed {
			b.asides = b.asides[:len(b.asides)-1]
		}
		a.from.forget()
	}
}

// copyOut copies everything that is aside in the memory of extent i, unless that is done, and
// ends the use of that memory. It may be the only one that the daemon can lease next, and is
// locked as long as it is used. An extent whose content has changed is returned, since it is lost.
func (a *aside) copyOut(i int) (lost *extent) {
	if a.copies[i] != nil {
		return nil
	}
	mem, n := a.extents[i].mem, int64(0)
	for _, e := range a.extents[i:] {
		if e.mem == mem {
			n += e.length
		}
	}
	own := make([]byte, n)
	for j := i; j < len(a.extents); j++ {
		e := &a.extents[j]
		if e.mem != mem {
			continue
		}
		a.copies[j], own = own[:e.length:e.length], own[e.length:]
		if checksum.CopyOut(a.copies[j], e.bytes(), 0) != e.sum {
			return e
		}
	}
	a.from.unhold(mem)
	return nil
}

// committedAll records a commit of everything uncommitted: of pending and of aside.
func (b *backlog) committedAll() {
	for _, a := range b.asides {
		a.committed = true
	}
	b.asides = nil
	b.committed()
}

// uncommitted is everything that waits for a commit. Bytes that were put aside and are pending
// again come twice.
func (b *backlog) uncommitted() iter.Seq[*extent] {
	return func(yield func(*extent) bool) {
		for _, a := range b.asides {
			for i := range a.extents {
				if !yield(&a.extents[i]) {
					return
				}
			}
		}
		for i := range b.pending {
			if !yield(&b.pending[i]) {
				return
			}
		}
	}
}

// forget drops everything. Pending memory stays unused. A commit of it may be in progress.
func (b *backlog) forget() {
	b.drop(&b.span)
	b.drop(&b.reserved)
	for len(b.holds) > 0 {
		b.unhold(b.holds[0].mem)
	}
	b.pending, b.newest = nil, nil
}

// unhold drops the pending bytes in a memory.
func (b *backlog) unhold(mem *lease.Memory) {
	h := b.hold(mem)
	mem.UnreserveRecords(h.extents)
	h.extents = 0
	b.releaseEmpty(mem)
}
