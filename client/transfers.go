package client

import (
	"context"
	"sync"

	"forebay/rdma"
)

const (
	// transferSize is the longest operation. Smaller ones were measured to cost a third
	// more processor time, which goes into waking each other up.
	transferSize = extentSize
	// transferDepth is how many are in flight at once: 8 MiB, which is 25 Gbit/s over 2 ms.
	transferDepth = 8
)

// transfers are the one-sided operations of one file that is written, or of one read.
// They are numbered in the order in which they are posted. For one goroutine at a time.
type transfers struct {
	far   *far // of what is in flight
	queue *rdma.Queue
	next  uint64 // the number of the next one
	low   uint64 // all before it have completed
	done  [transferDepth]bool
	err   error // the first one, until reset

	op  [1]rdma.Op
	got [16]rdma.Completion
}

// transfersPool keeps them: a queue is worth more than one file.
var transfersPool = sync.Pool{New: func() any { return &transfers{queue: rdma.NewQueue(transferDepth)} }}

func newTransfers() *transfers { return transfersPool.Get().(*transfers) }

// free gives them back. Nothing may be in flight.
func (t *transfers) free() {
	t.far, t.err = nil, nil
	transfersPool.Put(t)
}

func (t *transfers) flying() bool { return t.low < t.next }

// post starts an operation on at most transferSize bytes, which belong to it until it
// has completed. It waits while too many are in flight.
func (t *transfers) post(ctx context.Context, f *far, kind rdma.OpKind, p []byte, key rdma.RemoteKey, off int64) error {
	if t.far != f {
		t.drain() // of a session that broke: at once
		t.far, t.err = f, nil
	}
	if t.next-t.low == transferDepth {
		if err := t.await(ctx, t.low); err != nil {
			return err
		}
	}
	conn, err := f.dial(ctx)
	if err != nil {
		return err
	}
	t.op[0] = rdma.Op{Kind: kind, Local: p, Remote: rdma.Remote{Key: key, Offset: uint64(off)}, ID: t.next}
	n, err := conn.Post(ctx, t.queue, t.op[:])
	t.op[0].Local = nil
	if n == 1 {
		t.done[t.next%transferDepth] = false
		t.next++
		return nil
	}
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	t.err = f.broke(err)
	return t.err
}

// await waits until an operation, and all before it, have completed. When ctx ends
// first, they are still in flight. An operation that failed has broken the session.
func (t *transfers) await(ctx context.Context, number uint64) error {
	for t.low <= number && t.low < t.next {
		n, err := t.queue.Wait(ctx, t.got[:])
		if err != nil {
			return cancelled(ctx)
		}
		t.took(n)
	}
	return t.err
}

// poll takes note of what has completed by now.
func (t *transfers) poll() { t.took(t.queue.Poll(t.got[:])) }

func (t *transfers) took(n int) {
	for i := range t.got[:n] {
		c := &t.got[i]
		t.done[c.ID%transferDepth] = true
		if c.Err != nil && t.err == nil {
			t.err = t.far.broke(c.Err)
		}
		c.Err = nil
	}
	for t.low < t.next && t.done[t.low%transferDepth] {
		t.low++
	}
}

// drain waits until nothing is in flight, for at most writeGrace: then it breaks the
// session, which ends them all. It returns what went wrong with them.
func (t *transfers) drain() error {
	if !t.flying() {
		return t.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeGrace)
	defer cancel()
	if err := t.await(ctx, t.next-1); ctx.Err() != nil && t.flying() {
		_ = t.far.broke(err)
		_ = t.await(context.Background(), t.next-1)
	}
	return t.err
}

// staging keeps memory in which bytes wait until they are transferred and committed.
type staging struct {
	mu   sync.Mutex
	free [][]byte
	size int
}

const (
	// maxStaging is how much of it is kept for the next lease, in bytes: as much as one
	// file fills and gives back at once.
	maxStaging = maxStaged + 2*maxFarLease
	// stagingUnit: segments differ in length by what their headers and records take.
	stagingUnit = 1 << 20
)

// get returns n bytes or more that hold anything.
func (g *staging) get(n int64) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.free) - 1; i >= 0; i-- { // the last one is in the caches still
		if p := g.free[i]; int64(len(p)) >= n && int64(len(p)) <= 4*n {
			g.free = append(g.free[:i], g.free[i+1:]...)
			g.size -= len(p)
			return p
		}
	}
	return make([]byte, (n+stagingUnit-1)/stagingUnit*stagingUnit)
}

// clear keeps nothing.
func (g *staging) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free, g.size = nil, 0
}

// put gives memory back that nothing reads or writes any more.
func (g *staging) put(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, p)
	for g.size += len(p); g.size > maxStaging; {
		g.size -= len(g.free[0])
		g.free = append(g.free[:0], g.free[1:]...)
	}
}
