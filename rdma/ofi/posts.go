//go:build ofi && cgo

package ofi

import (
	"context"
	"fmt"
	"runtime"

	"forebay/rdma"
	"forebay/rdma/internal/target"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/local"
)

// posts are a connection's one-sided operations. The connection's lock guards them. One
// operation's life:
//
//	add ─▶ turn ──cut──▶ piece ──▶ ready ──fi_write, fi_read──▶ completion ─┐ all of them
//	        └── while something is left to cut ◀──┘                         ▼
//	                                          end ◀── (unseen ─▶ a read) ◀──┘
//
// The first failed piece, and a revoked grant, end the cutting. The operation ends when no piece of
// it is under way. A piece is posted once, and only its completion, or the sweep after the endpoint
// is closed, ends it. So no operation fails twice, and none hangs.
//
// If the fabric has no delivery-complete writes (verbs), completed writes are not visible at first.
// InfiniBand's acknowledgement of a write means that the target's adapter has it, not that it is
// visible to the target's processor (InfiniBand Architecture Specification, volume 1, 9.7.5.1 and
// o9-20). A read that is posted then reaches the adapter behind the writes, and PCI Express lets no
// read request pass the posted writes in front of it (PCI Express Base Specification, 2.4.1). Once
// the read's answer is here, the writes are visible. One read serves all writes that completed
// before it was posted. If the fabric has them, delivery-complete means just that (fi_cq(3),
// FI_DELIVERY_COMPLETE).
type posts struct {
	opened bool
	chunk  int
	ops    []pending // slots, made when first needed, since most connections of a daemon post nothing
	free   []uint32
	turn   ring // operations with something left to cut, taking turns

	pieces []piece
	spare  []uint32   // pieces not in use
	ready  []fi.Piece // cut, not yet posted; in order
	staged int        // pieces with a stage

	unseen []uint32 // completed writes that no read is behind yet
	seeing []uint32 // writes that the read under way is behind
}

type pending struct {
	op     rdma.Op
	queue  *rdma.Queue
	grant  *grant
	local  *local.Region    // that holds op.Local, in use; nil: none needed, staged, or in a Buffer
	reg    *fi.Registration // of op.Local, unless it is staged
	staged bool
	inline bool // a write that is copied when it is posted, so that it needs neither region nor stage
	pinner runtime.Pinner
	err    error
	live   bool
	cut    int // bytes
	flying int // pieces
}

type piece struct {
	slot  uint32
	off   int
	n     int
	stage local.Stage // staged; the stage
}

// init sizes the fixed parts.
func (p *posts) init(f *Fabric) {
	n := min(f.opts.Window, f.dev.Pieces)
	p.chunk = min(f.opts.Chunk, f.dev.MaxPiece)
	p.pieces = make([]piece, n)
	p.ready = make([]fi.Piece, 0, n+1)
	p.spare = make([]uint32, 0, n)
	for i := range n {
		p.spare = append(p.spare, uint32(i))
	}
	p.turn.init(f.opts.Depth)
}

// contexts has one for each piece, one for the read behind writes.
func (p *posts) contexts() int { return len(p.pieces) + 1 }

// Post implements rdma.Conn.
func (c *conn) Post(ctx context.Context, q *rdma.Queue, ops []rdma.Op) (int, error) {
	n, bad := wellFormed(ops)
	if n == 0 {
		return 0, bad
	}
	room, err := q.Reserve(ctx, c.dying, n)
	if err != nil {
		return 0, c.orDying(err)
	}
	took, err := c.slots.Take(ctx, c.dying, room)
	q.Unreserve(room - took)
	if err != nil {
		return 0, c.orDying(err)
	}
	posted, err := c.enqueue(ctx, q, ops[:took])
	q.Unreserve(took - posted)
	c.slots.Give(took - posted)
	c.fabric.loop.Wake()
	if err == nil && posted == n {
		err = bad
	}
	return posted, err
}

// wellFormed returns how many operations from the first on can be posted, and the fault of the next.
func wellFormed(ops []rdma.Op) (int, error) {
	for i := range ops {
		if err := rdma.CheckOp(&ops[i], maxOp); err != nil {
			return i, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return len(ops), nil
}

// enqueue takes in operations and posts those that fit. It waits only for the peer's answer on
// regions that the connection has not used yet.
func (c *conn) enqueue(ctx context.Context, q *rdma.Queue, ops []rdma.Op) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		if c.mu.err != nil {
			return i, c.mu.err
		}
		in := c.localOf(op)
		if c.mu.err != nil {
			in.EndUse()
			return i, c.mu.err
		}
		g := c.mu.grants.find(op.Remote.Key)
		if g == nil {
			c.advanceLocked()
			c.mu.Unlock()
			refused, err := c.ask(ctx, op.Remote.Key)
			c.mu.Lock()
			if err != nil {
				in.EndUse()
				return i, err
			}
			if g = c.mu.grants.find(op.Remote.Key); g == nil {
				if refused == nil {
					refused = rdma.ErrRevoked // between the answer and now
				}
				in.EndUse()
				c.refuse(q, op, refused)
				continue
			}
		}
		if err := target.Check(g.access, g.size, op.Kind, op.Remote.Offset, len(op.Local)); err != nil || len(op.Local) == 0 {
			in.EndUse()
			c.refuse(q, op, err)
			continue
		}
		c.mu.posts.add(c, op, q, g, in)
	}
	c.advanceLocked()
	return len(ops), nil
}

// localOf returns the region that an operation's local memory lies in, in use, or nil. It
// releases the connection's lock while it registers kept memory that is not registered now.
func (c *conn) localOf(op *rdma.Op) *local.Region {
	f := c.fabric
	if !f.dev.Local || len(op.Local) == 0 {
		return nil
	}
	r, ready := f.local.Find(op.Local)
	if ready {
		return r
	}
	c.mu.Unlock()
	ready = r.Ready()
	c.mu.Lock()
	if ready {
		return r
	}
	r.Release()
	return nil
}

// refuse completes an operation that is not posted.
func (c *conn) refuse(q *rdma.Queue, op *rdma.Op, err error) {
	q.Complete(rdma.Completion{ID: op.ID, Err: err})
	c.slots.Give(1)
}

// add takes in an operation, whose local memory lies in a region or in none. The caller holds a
// slot for it.
func (p *posts) add(c *conn, op *rdma.Op, q *rdma.Queue, g *grant, in *local.Region) {
	var slot uint32
	if last := len(p.free) - 1; last >= 0 {
		slot, p.free = p.free[last], p.free[:last]
	} else {
		slot = uint32(len(p.ops))
		p.ops = append(p.ops, pending{})
	}
	o := &p.ops[slot]
	o.op, o.queue, o.grant, o.live = *op, q, g, true
	g.users++
	if c.fabric.dev.Local {
		o.local = in
		if in != nil {
			o.reg = in.Registration() // stays while it is in use
		} else {
			o.reg = c.fabric.local.Stages.Registration(op.Local)
		}
		o.inline = o.reg == nil && op.Kind == rdma.OpWrite && c.mu.endpoint != nil && c.mu.endpoint.Injects(len(op.Local))
		o.staged = o.reg == nil && !o.inline
	}
	if !c.fabric.dev.Local || o.inline {
		fi.Pin(&o.pinner, op.Local)
	}
	p.turn.push(slot)
}

// post cuts and posts until nothing is left, or libfabric has no room. Then the error is one to
// retry.
func (p *posts) post(c *conn) error {
	for {
		p.cut(c)
		if len(p.ready) == 0 {
			return nil
		}
		n, err := c.mu.endpoint.Post(p.ready)
		p.ready = p.ready[:copy(p.ready, p.ready[n:])]
		if err != nil {
			return err
		}
	}
}

// cut makes pieces while there are operations and room.
func (p *posts) cut(c *conn) {
	for p.turn.count > 0 {
		slot := p.turn.front()
		o := &p.ops[slot]
		if o.err != nil {
			p.turn.pop()
			o.cut = len(o.op.Local) // nothing is left to cut
			if o.flying == 0 {
				p.end(c, slot, o.err)
			}
			continue
		}
		if len(p.spare) == 0 || !p.cutOne(c, slot, o) {
			return
		}
		p.turn.pop()
		if o.err == nil && o.cut < len(o.op.Local) {
			p.turn.push(slot)
		}
	}
}

// abort ends the operations on a region that is revoked, as far as nothing of them is under way.
func (p *posts) abort(c *conn, g *grant) {
	for range p.turn.count {
		slot := p.turn.pop()
		o := &p.ops[slot]
		if o.grant != g {
			p.turn.push(slot)
			continue
		}
		o.err, o.cut = rdma.ErrRevoked, len(o.op.Local)
		if o.flying == 0 {
			p.end(c, slot, o.err)
		}
	}
}

// unregistered memory has no descriptor where the fabric requires none.
var unregistered fi.Registration

// cutOne makes one piece. It reports false where no stage is free.
func (p *posts) cutOne(c *conn, slot uint32, o *pending) bool {
	i := p.spare[len(p.spare)-1]
	s := piece{slot: slot, off: o.cut, n: min(len(o.op.Local)-o.cut, p.chunk)}
	mem := o.op.Local[s.off : s.off+s.n]
	reg := &unregistered
	switch {
	case o.staged:
		stage, err := c.fabric.local.Stages.Take(c, p.staged)
		if err != nil {
			c.failLocked(err)
			return false
		}
		if stage.Mem == nil {
			return false
		}
		p.staged++
		s.stage, s.n, reg = stage, min(s.n, len(stage.Mem)), stage.Reg
		if o.op.Kind == rdma.OpWrite {
			copy(stage.Mem, mem[:s.n])
		}
		mem = stage.Mem[:s.n]
	case o.reg != nil:
		reg = o.reg
	}
	p.spare = p.spare[:len(p.spare)-1]
	p.pieces[i] = s
	remote := fi.Place{Addr: o.grant.at.Addr + o.op.Remote.Offset + uint64(s.off), Key: o.grant.at.Key}
	w := c.contexts.NewPiece(int(i), o.op.Kind, mem, reg, remote)
	if o.inline {
		w.Inject()
	}
	p.ready = append(p.ready, w)
	o.cut += s.n
	o.flying++
	return true
}

// complete takes the completion of a piece, or of the read behind writes.
func (p *posts) complete(c *conn, context int, failure error) {
	if failure != nil && c.mu.err != nil {
		failure = c.mu.err // follows from the connection's end
	}
	if context == len(p.pieces) {
		p.seen(c, failure)
		return
	}
	s := p.pieces[context]
	p.pieces[context] = piece{}
	p.spare = append(p.spare, uint32(context))
	o := &p.ops[s.slot]
	if s.stage.Mem != nil {
		if o.op.Kind == rdma.OpRead && failure == nil {
			copy(o.op.Local[s.off:s.off+s.n], s.stage.Mem)
		}
		p.staged--
		c.fabric.local.Stages.Give(s.stage)
	}
	o.flying--
	if o.err == nil {
		o.err = failure
	}
	if o.flying > 0 || o.cut < len(o.op.Local) {
		return
	}
	if o.err == nil && o.op.Kind == rdma.OpWrite && !c.fabric.dev.Delivers {
		p.unseen = append(p.unseen, s.slot)
		p.seeThrough(c)
		return
	}
	p.end(c, s.slot, o.err)
}

// seeThrough has a read follow the writes that have completed, one at a time.
func (p *posts) seeThrough(c *conn) {
	if len(p.seeing) > 0 || len(p.unseen) == 0 {
		return
	}
	p.seeing, p.unseen = p.unseen, p.seeing
	sink := &c.fabric.sight.sink
	at := fi.Place(c.theirs.Sight)
	p.ready = append(p.ready, c.contexts.NewPiece(len(p.pieces), rdma.OpRead, sink.Mem[:sightSize], sink.Reg, at))
}

// seen ends the writes before the read.
func (p *posts) seen(c *conn, failure error) {
	for _, slot := range p.seeing {
		p.end(c, slot, failure)
	}
	p.seeing = p.seeing[:0]
	p.seeThrough(c)
}

// end completes an operation.
func (p *posts) end(c *conn, slot uint32, err error) {
	o := &p.ops[slot]
	o.queue.Complete(rdma.Completion{ID: o.op.ID, Err: err})
	o.pinner.Unpin()
	o.local.EndUse()
	o.grant.users--
	c.settle(o.grant)
	pinner := o.pinner
	p.ops[slot] = pending{pinner: pinner}
	p.free = append(p.free, slot)
	c.slots.Give(1)
}

// sweep completes everything that is left, after the endpoint is closed.
func (p *posts) sweep(c *conn, err error) {
	for i := range p.pieces {
		if s := &p.pieces[i]; s.stage.Mem != nil {
			p.staged--
			c.fabric.local.Stages.Give(s.stage)
			s.stage = local.Stage{}
		}
	}
	for slot := range p.ops {
		if p.ops[slot].live {
			p.end(c, uint32(slot), err)
		}
	}
}

// uses reports whether operations that are under way have their local memory in the region.
func (c *conn) uses(r *region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.mu.posts.ops {
		if c.mu.posts.ops[i].local == r.Region {
			return true
		}
	}
	return false
}

// ring is a bounded queue of slots.
type ring struct {
	slots       []uint32
	head, count int
	limit       int
}

func (r *ring) init(n int) { r.limit = n }

func (r *ring) push(v uint32) {
	if r.count == len(r.slots) {
		r.grow()
	}
	r.slots[(r.head+r.count)%len(r.slots)] = v
	r.count++
}

// grow makes room, for as many as there may be at most.
func (r *ring) grow() {
	slots := make([]uint32, min(r.limit, max(16, 2*len(r.slots))))
	for i := range r.count {
		slots[i] = r.slots[(r.head+i)%len(r.slots)]
	}
	r.slots, r.head = slots, 0
}

func (r *ring) front() uint32 { return r.slots[r.head] }

func (r *ring) pop() uint32 {
	v := r.front()
	r.head = (r.head + 1) % len(r.slots)
	r.count--
	return v
}
