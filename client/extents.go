package client

import (
	"iter"

	"forebay/internal/checksum"
	"forebay/internal/segment"
)

// extentSize is the longest run of bytes under one checksum that a writer makes, ending
// at multiples of it in the file. A reader that wants a part of an extent has to look
// at all of it to verify it: at this size that stays in the cache that it is copied
// from next, and a reader in steps of 1 MiB gets whole ones.
const extentSize = 1 << 20

// extent is a run of a file's bytes that waits for a commit.
type extent struct {
	mem    *memory
	seg    int64 // in the memory
	off    int64 // in the file
	length int64
	sum    uint64
	sent   int64 // bytes from the front that are on their way to a segment that is far
}

func (e *extent) bytes() []byte { return e.mem.bytes[e.seg : e.seg+e.length : e.seg+e.length] }

// continues reports whether n more bytes at seg of mem and off of the file make the
// extent longer.
func (e *extent) continues(mem *memory, seg, off int64) bool {
	return e.mem == mem && e.seg+e.length == seg && e.off+e.length == off && off%extentSize != 0
}

// hold is what a writer has in one memory.
type hold struct {
	mem     *memory
	extents int64 // that wait for a commit
	pieces  int   // its claim and its reservation, as far as they are in it
	tight   bool  // there is no room for another record: nothing may be committed from it
}

// backlog is what a writer has written and not committed, and where. It does the
// bookkeeping: what is owed to records, and which leases are in use. It is guarded by
// the file's turn.
type backlog struct {
	pending  []extent // in the order written: where they overlap, later ones win
	holds    []hold
	claim    claim   // being filled
	reserved claim   // handed out by Reserve
	newest   *memory // among those that pending is in, the one that came last
	asides   []*aside
}

// aside is what was pending and is being written again elsewhere. All of it waits for a
// commit until the last of it is pending again. The connection may break meanwhile: then
// what is pending by then is put aside, too.
type aside struct {
	extents []extent
	copies  [][]byte // of the bytes of the extents; nil: not made yet, or not needed any more
	from    backlog  // what the extents have in their memory, until it is copied
	landed  bool     // all of it is committed: nothing is left to be written again
}

// comesTooEarly reports whether n bytes at off of the file, added in a memory, would lie
// over something pending in another one that came later: a commit is recorded segment by
// segment, in the order in which it first names them, and for a second record of a
// segment, which would keep the order, no room is set aside.
func (b *backlog) comesTooEarly(mem *memory, off, n int64) bool {
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

// holdsIn reports whether there is something in a memory already, for which the base of
// a record is owed. Its space may be locked.
func (b *backlog) holdsIn(mem *memory) bool { return b.hold(mem) != nil }

// hasPending reports whether anything is not committed.
func (b *backlog) hasPending() bool { return len(b.pending) > 0 }

func (b *backlog) hold(mem *memory) *hold {
	for i := range b.holds {
		if b.holds[i].mem == mem {
			return &b.holds[i]
		}
	}
	return nil
}

// took notes that a claim was taken.
func (b *backlog) took(mem *memory) {
	if h := b.hold(mem); h != nil {
		h.pieces++
		return
	}
	b.holds = append(b.holds, hold{mem: mem, pieces: 1})
}

// drop gives the rest of a claim back.
func (b *backlog) drop(c *claim) {
	mem := c.mem
	if mem == nil {
		return
	}
	mem.mu.Lock()
	mem.GiveBack(c.Span)
	if mem.lease != nil {
		mem.Forgive(c.credits * segment.RecordItem)
	}
	mem.mu.Unlock()
	*c = claim{}
	b.hold(mem).pieces--
	b.settle(mem)
}

// settle ends the hold on a memory in which nothing is left.
func (b *backlog) settle(mem *memory) {
	h := b.hold(mem)
	if h.pieces > 0 || h.extents > 0 {
		return
	}
	*h = b.holds[len(b.holds)-1]
	b.holds = b.holds[:len(b.holds)-1]
	if mem.lease == nil {
		return
	}
	mem.mu.Lock()
	mem.Forgive(segment.RecordBase)
	mem.mu.Unlock()
	mem.lease.leave()
}

// bytes is the memory of the claim.
func (c *claim) bytes() []byte { return c.mem.bytes[c.Off:c.End:c.End] }

// pay makes sure that room for the record of a further extent of the claim is set aside.
func (c *claim) pay() bool {
	if c.mem.lease == nil || c.credits > 0 {
		return true
	}
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	if !c.mem.Owe(segment.RecordItem) {
		return false
	}
	c.credits++
	return true
}

// lengthen makes a claim longer, if nothing else follows it. It returns the grant to
// ask for, if it is time.
func (c *claim) lengthen(want int64) (next *grant) {
	if c.mem == nil {
		return nil
	}
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	n := c.mem.Extend(c.End, want)
	c.End += n
	if l := c.mem.lease; l != nil && n > 0 {
		next = l.space.used(l.session, n)
	}
	return next
}

// add makes the first n bytes of a claim, which was paid for, the file's bytes from off
// on, and returns the extent that they are in, whose checksum is of what it held before.
// They must not cross a multiple of extentSize in the file.
func (b *backlog) add(c *claim, off, n int64) *extent {
	if last := len(b.pending) - 1; last < 0 || !b.pending[last].continues(c.mem, c.Off, off) {
		b.pending = append(b.pending, extent{mem: c.mem, seg: c.Off, off: off})
		if h := b.hold(c.mem); h.extents == 0 {
			b.newest = c.mem
		}
		b.hold(c.mem).extents++
		c.credits = max(0, c.credits-1)
	}
	e := &b.pending[len(b.pending)-1]
	e.length += n
	c.Off += n
	return e
}

// isNext reports whether bytes at off of the file would make the last extent longer.
func (b *backlog) isNext(c *claim, off int64) bool {
	n := len(b.pending)
	return n > 0 && b.pending[n-1].continues(c.mem, c.Off, off)
}

// committed says that the records of everything pending are written. Leases in which
// nothing is left are let go.
func (b *backlog) committed() {
	b.pending, b.newest = b.pending[:0], nil
	for i := range b.holds {
		h := &b.holds[i]
		cost := h.cost()
		h.extents = 0
		h.mem.mu.Lock()
		h.mem.Spend(cost)
		if cost > 0 {
			h.mem.MustOwe(segment.RecordBase) // for the record of what comes next
		}
		h.tight = h.mem.Free() < 0
		h.mem.mu.Unlock()
	}
	if h := b.hold(b.claim.mem); h != nil && (h.tight || h.mem.lease == nil) {
		b.drop(&b.claim)
	}
	for i := len(b.holds) - 1; i >= 0; i-- {
		h := &b.holds[i]
		h.mem.mu.Lock()
		h.tight = h.mem.Free() < 0
		h.mem.mu.Unlock()
		b.settle(h.mem)
	}
}

// cost is what the record of a commit of all of a hold's extents takes.
func (h *hold) cost() int64 {
	if h.mem.lease == nil || h.extents == 0 {
		return 0
	}
	return segment.RecordBase + h.extents*segment.RecordItem
}

// mayBeWritten says that a commit of everything pending failed, or its outcome is
// unknown: the room of its records may be gone, and is counted as gone. It reports
// whether there is room for them again.
func (b *backlog) mayBeWritten() (again bool) {
	again = true
	for i := range b.holds {
		m, cost := b.holds[i].mem, b.holds[i].cost()
		m.mu.Lock()
		m.Waste(cost)
		again = again && m.Free() >= 0
		m.mu.Unlock()
	}
	return again
}

// putAside takes everything pending away, to be written again elsewhere. The holds
// that it needs meanwhile end with release.
func (b *backlog) putAside() (a *aside, release func()) {
	b.drop(&b.claim)
	a = &aside{extents: b.pending, copies: make([][]byte, len(b.pending)), from: backlog{holds: b.holds}}
	b.asides = append(b.asides, a)
	b.pending, b.newest = nil, nil
	b.holds = nil
	if mem := b.reserved.mem; mem != nil {
		h := a.from.hold(mem)
		h.pieces--
		b.holds = append(b.holds, hold{mem: mem, pieces: 1, tight: true})
		if mem.lease != nil {
			mem.mu.Lock()
			mem.lease.users.Enter()
			mem.MustOwe(segment.RecordBase)
			mem.mu.Unlock()
		}
	}
	return a, func() {
		if !a.landed {
			b.asides = b.asides[:len(b.asides)-1]
		}
		a.from.forget()
	}
}

// copyOut copies everything that is aside in the memory of extent i, unless that is done, and
// ends the use of that memory. It may be the only one that the daemon can lease next, and is
// locked as long as it is used. An extent that is not what was written is returned: it is lost.
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

// committedAll says that a commit of everything uncommitted was carried out: of what is pending
// and of what is aside.
func (b *backlog) committedAll() {
	for _, a := range b.asides {
		a.landed = true
	}
	b.asides = nil
	b.committed()
}

// uncommitted is everything that waits for a commit. What was put aside and is pending
// again comes twice.
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

// forget gives up everything. What was pending stays unused: a commit of it may be
// under way.
func (b *backlog) forget() {
	b.drop(&b.claim)
	b.drop(&b.reserved)
	for len(b.holds) > 0 {
		b.unhold(b.holds[0].mem)
	}
	b.pending, b.newest = nil, nil
}

// unhold gives up what is pending in a memory.
func (b *backlog) unhold(mem *memory) {
	h := b.hold(mem)
	mem.mu.Lock()
	if mem.lease != nil {
		mem.Forgive(h.extents * segment.RecordItem)
	}
	mem.mu.Unlock()
	h.extents = 0
	b.settle(mem)
}
