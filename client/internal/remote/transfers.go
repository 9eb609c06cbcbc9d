// Package remote carries out one-sided transfers between this process's memory and a daemon's, and
// keeps the memory in which their bytes wait. It must never depend on the files of these bytes.
package remote

import (
	"context"
	"sync"
	"time"

	"forebay/client/internal/session"
	"forebay/internal/segment"
	"forebay/rdma"
)

const (
	// MaxTransfer is the longest operation. Smaller ones were measured to cost a third
	// more processor time, which goes into waking each other up.
	MaxTransfer = segment.ExtentSize
	// Depth is how many are in flight at once: 8 MiB, which is 25 Gbit/s over 2 ms.
	Depth = 8
)

// Transfers are the one-sided operations of one file that is written, or of one read.
// They are numbered in the order in which they are posted. For one goroutine at a time.
type Transfers struct {
	Of    *session.Remote // the connection of the transfers in flight
	queue *rdma.Queue
	Next  uint64 // the number of the next one
	Low   uint64 // all before it have completed
	done  [Depth]bool
	Err   error // the first one, until reset

	op  [1]rdma.Op
	got [16]rdma.Completion
}

// transfersPool keeps them, since a queue is worth more than one file.
var transfersPool = sync.Pool{New: func() any { return &Transfers{queue: rdma.NewQueue(Depth)} }}

func NewTransfers() *Transfers { return transfersPool.Get().(*Transfers) }

// Free returns them. Nothing may be in flight.
func (t *Transfers) Free() {
	t.Of, t.Err = nil, nil
	transfersPool.Put(t)
}

func (t *Transfers) Flying() bool { return t.Low < t.Next }

// Post starts an operation on at most transferSize bytes, which belong to it until it
// has completed. It waits while too many are in flight.
func (t *Transfers) Post(ctx context.Context, f *session.Remote, kind rdma.OpKind, p []byte, key rdma.RemoteKey, off int64) error {
	if t.Of != f {
		t.Drain() // of a session that broke; at once
		t.Of, t.Err = f, nil
	}
	if t.Next-t.Low == Depth {
		if err := t.Await(ctx, t.Low); err != nil {
			return err
		}
	}
	conn, err := f.Dial(ctx)
	if err != nil {
		return err
	}
	t.op[0] = rdma.Op{Kind: kind, Local: p, Remote: rdma.Remote{Key: key, Offset: uint64(off)}, ID: t.Next}
	n, err := conn.Post(ctx, t.queue, t.op[:])
	t.op[0].Local = nil
	if n == 1 {
		t.done[t.Next%Depth] = false
		t.Next++
		return nil
	}
	if ctx.Err() != nil {
		return session.Cancelled(ctx)
	}
	t.Err = f.Fail(err)
	return t.Err
}

// Await waits until an operation, and all before it, have completed. When ctx ends
// first, they are still in flight. An operation that failed has broken the session.
func (t *Transfers) Await(ctx context.Context, number uint64) error {
	for t.Low <= number && t.Low < t.Next {
		n, err := t.queue.Wait(ctx, t.got[:])
		if err != nil {
			return session.Cancelled(ctx)
		}
		t.took(n)
	}
	return t.Err
}

// Poll collects the transfers that have completed.
func (t *Transfers) Poll() { t.took(t.queue.Poll(t.got[:])) }

func (t *Transfers) took(n int) {
	for i := range t.got[:n] {
		c := &t.got[i]
		t.done[c.ID%Depth] = true
		if c.Err != nil && t.Err == nil {
			t.Err = t.Of.Fail(c.Err)
		}
		c.Err = nil
	}
	for t.Low < t.Next && t.done[t.Low%Depth] {
		t.Low++
	}
}

// drainGrace bounds the transfers in flight that have no waiter any more.
const drainGrace = time.Second

// Drain waits until nothing is in flight, for at most drainGrace. After that it breaks the session,
// which ends them all. It returns their errors.
func (t *Transfers) Drain() error {
	if !t.Flying() {
		return t.Err
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	if err := t.Await(ctx, t.Next-1); ctx.Err() != nil && t.Flying() {
		_ = t.Of.Fail(err)
		_ = t.Await(context.Background(), t.Next-1)
	}
	return t.Err
}

// Staging keeps memory in which bytes wait until they are transferred and committed.
type Staging struct {
	limit int // how much of it is kept, in bytes

	mu   sync.Mutex
	free [][]byte
	size int
}

// stagingUnit is the unit of staged memory, since segments differ in length by the size of their
// headers and records.
const stagingUnit = 1 << 20

// NewStaging returns staging that keeps up to so many bytes for the next lease, as much as one file
// fills and returns at once.
func NewStaging(limit int) *Staging { return &Staging{limit: limit} }

// Get returns n bytes or more that hold anything.
func (g *Staging) Get(n int64) []byte {
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

// Clear keeps nothing.
func (g *Staging) Clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free, g.size = nil, 0
}

// Put returns memory that has no reader or writer any more.
func (g *Staging) Put(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, p)
	for g.size += len(p); g.size > g.limit; {
		g.size -= len(g.free[0])
		g.free = append(g.free[:0], g.free[1:]...)
	}
}
