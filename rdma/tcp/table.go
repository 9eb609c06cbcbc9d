package tcp

import (
	"forebay/rdma"
	"forebay/rdma/internal/target"
)

// table is the initiator's state of all operations of one connection. It does no I/O and has no
// lock. Its owner serialises the calls. One operation's life, counted in chunks:
//
//	add ─▶ next ─▶ (writev) ─▶ written ──┐
//	         └────▶ claim ─▶ finish ─────┴─▶ complete: all chunks finished, none being written
//
//	0 ≤ finished ≤ claimed ≤ sent ≤ total
//
// claim comes before a reply's payload is read into the caller's memory, finish after. So the
// operation cannot complete while a reader fills its memory, however often a peer answers. The
// first refused chunk sets total to sent. Nothing further of the operation is sent.
type table struct {
	chunk int
	ops   []pending    // slots, made when first needed, since most connections of a daemon post nothing
	free  []uint32     // slots not in use
	turn  ring[uint32] // operations with chunks to send, taking turns
}

type pending struct {
	op    rdma.Op
	queue *rdma.Queue
	err   error
	live  bool

	generation                     uint32 // distinguishes a reused slot from its predecessor
	total, sent, claimed, finished uint32
	writing                        uint32
}

// piece is one chunk on its way out.
type piece struct {
	frame   frame
	payload []byte // of a write
}

func newTable(depth, chunk int) *table {
	t := &table{chunk: chunk}
	t.turn.init(depth)
	return t
}

// add takes in an operation. The caller ensures that there are never more than depth.
func (t *table) add(op rdma.Op, q *rdma.Queue) {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.ops)))
		t.ops = append(t.ops, pending{})
	}
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	total := max(1, (len(op.Local)+t.chunk-1)/t.chunk)
	t.ops[slot] = pending{
		op: op, queue: q, live: true, generation: t.ops[slot].generation + 1, total: uint32(total),
	}
	t.turn.push(slot)
}

// next returns the next chunk to send, of the operation whose turn it is.
func (t *table) next() (piece, bool) {
	if t.turn.count == 0 {
		return piece{}, false
	}
	slot := t.turn.pop()
	p := &t.ops[slot]
	at := int(p.sent) * t.chunk
	local := p.op.Local[at:min(at+t.chunk, len(p.op.Local))]
	out := piece{frame: frame{
		kind: kindRead, length: uint32(len(local)), tag: uint64(p.generation)<<32 | uint64(slot),
		at: uint32(at), total: uint32(len(p.op.Local)), offset: p.op.Remote.Offset, key: p.op.Remote.Key,
	}}
	if p.op.Kind == rdma.OpWrite {
		out.frame.kind, out.payload = kindWrite, local
	}
	p.sent++
	p.writing++
	if p.sent < p.total {
		t.turn.push(slot)
	}
	return out, true
}

// written records that a chunk from next was handed to the kernel.
func (t *table) written(tag uint64) (completed bool) {
	p := &t.ops[uint32(tag)]
	p.writing--
	return t.complete(uint32(tag))
}

// claim checks a reply and returns the memory its payload goes to.
func (t *table) claim(f *frame) ([]byte, error) {
	p := t.find(f.tag)
	if p == nil || p.claimed == p.sent || int(f.total) != len(p.op.Local) || int(f.at)%t.chunk != 0 {
		return nil, rdma.ErrProtocol
	}
	local := p.op.Local[f.at:min(int(f.at)+t.chunk, len(p.op.Local))] // decodeBase has compared at and total
	wantsData := p.op.Kind == rdma.OpRead && f.status == target.OK
	if int(f.length) != len(local) || wantsData != (f.kind == kindData) {
		return nil, rdma.ErrProtocol
	}
	p.claimed++
	return local, nil
}

// finish ends a claimed chunk.
func (t *table) finish(tag uint64, err error) (completed bool) {
	slot := uint32(tag)
	p := &t.ops[slot]
	p.finished++
	if err != nil && p.err == nil {
		p.err = err
		if p.sent < p.total {
			p.total = p.sent
			remove(&t.turn, slot)
		}
	}
	return t.complete(slot)
}

func (t *table) find(tag uint64) *pending {
	slot := uint32(tag)
	if uint64(slot) >= uint64(len(t.ops)) {
		return nil
	}
	p := &t.ops[slot]
	if !p.live || p.generation != uint32(tag>>32) {
		return nil
	}
	return p
}

func (t *table) complete(slot uint32) bool {
	p := &t.ops[slot]
	if p.finished < p.total || p.writing > 0 {
		return false
	}
	t.end(slot, p.err)
	return true
}

func (t *table) end(slot uint32, err error) {
	p := &t.ops[slot]
	p.queue.Complete(rdma.Completion{ID: p.op.ID, Err: err})
	t.ops[slot] = pending{generation: p.generation}
	t.free = append(t.free, slot)
}

// sweep completes everything that is left, after all readers and writers have stopped.
func (t *table) sweep(err error) (ended int) {
	for slot := range t.ops {
		if t.ops[slot].live {
			t.end(uint32(slot), err)
			ended++
		}
	}
	t.turn.count = 0
	return ended
}

// ring is a bounded queue.
type ring[T any] struct {
	slots       []T
	head, count int
}

func (r *ring[T]) init(n int) { r.slots = make([]T, n) }

func (r *ring[T]) full() bool { return r.count == len(r.slots) }

func (r *ring[T]) push(v T) {
	r.slots[(r.head+r.count)%len(r.slots)] = v
	r.count++
}

func (r *ring[T]) pop() T {
	var zero T
	v := r.slots[r.head]
	r.slots[r.head] = zero
	r.head = (r.head + 1) % len(r.slots)
	r.count--
	return v
}

// remove takes v out of r wherever it stands. It is rare, so linear.
func remove[T comparable](r *ring[T], v T) {
	for range r.count {
		if w := r.pop(); w != v {
			r.push(w)
		}
	}
}
