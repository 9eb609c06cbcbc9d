package rdma

import (
	"context"
	"sync"
)

// Queue is a completion queue of fixed depth. Operations of one or several connections complete
// into it. Post waits while depth operations are posted and not yet drained, so it never overflows.
// All methods may be called concurrently. A completion goes to one caller.
type Queue struct {
	depth  int
	ready  chan struct{} // holds a token when completions may be there
	space  chan struct{} // holds a token when there may be room
	closed chan struct{}

	mu struct {
		sync.Mutex
		ring   []Completion
		head   int
		count  int
		room   int // depth, less the posted operations, less the completions that are not drained
		closed bool
	}

	scratch [16]Completion // for Do, which owns its queue
}

// NewQueue returns a queue for depth operations, at least one.
func NewQueue(depth int) *Queue {
	depth = max(depth, 1)
	q := &Queue{
		depth:  depth,
		ready:  make(chan struct{}, 1),
		space:  make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	q.mu.ring, q.mu.room = make([]Completion, depth), depth
	return q
}

// Poll moves completions to dst without waiting and returns their number.
func (q *Queue) Poll(dst []Completion) int {
	q.mu.Lock()
	n := min(len(dst), q.mu.count)
	for i := range n {
		slot := &q.mu.ring[q.mu.head]
		dst[i], *slot = *slot, Completion{}
		q.mu.head = (q.mu.head + 1) % q.depth
	}
	q.mu.count -= n
	q.mu.room += n
	left := q.mu.count
	q.mu.Unlock()
	if left > 0 {
		wake(q.ready)
	}
	if n > 0 {
		wake(q.space)
	}
	return n
}

// Wait is Poll that waits for at least one completion. It returns the context's error, or
// ErrClosed when the queue is closed and nothing is left in it.
func (q *Queue) Wait(ctx context.Context, dst []Completion) (int, error) {
	return q.wait(ctx.Done(), ctx.Err, dst)
}

func (q *Queue) wait(done <-chan struct{}, cause func() error, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, ErrInvalid
	}
	for {
		if n := q.Poll(dst); n > 0 {
			return n, nil
		}
		select {
		case <-q.ready:
		case <-done:
			return 0, cause()
		case <-q.closed:
			if n := q.Poll(dst); n > 0 {
				return n, nil
			}
			return 0, ErrClosed
		}
	}
}

// Close makes further Posts into the queue fail, and Wait return ErrClosed once the queue is
// empty. Operations in flight still complete into it and can be polled. It is idempotent.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.closed {
		q.mu.closed = true
		close(q.closed)
	}
}

// Reserve is for providers. It takes room for up to limit completions, waiting for at least one,
// until the context ends, the queue is closed, or done is closed (both ErrClosed).
func (q *Queue) Reserve(ctx context.Context, done <-chan struct{}, limit int) (int, error) {
	for {
		if n, err := q.tryReserve(limit); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-q.space:
		case <-q.closed:
		case <-done:
			return 0, ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (q *Queue) tryReserve(limit int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return 0, ErrClosed
	}
	n := min(q.mu.room, limit)
	q.mu.room -= n
	if q.mu.room > 0 {
		wake(q.space) // the token that this caller consumed may have been meant for several
	}
	return n, nil
}

// Unreserve is for providers. It frees room that Reserve reserved and no operation needs.
func (q *Queue) Unreserve(n int) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	q.mu.room += n
	q.mu.Unlock()
	wake(q.space)
}

// Complete is for providers. It delivers the completion of one operation that has room reserved. It
// never waits.
func (q *Queue) Complete(c Completion) {
	q.mu.Lock()
	if q.mu.count == q.depth {
		q.mu.Unlock()
		panic("rdma: a provider completed an operation twice, or without a reservation")
	}
	q.mu.ring[(q.mu.head+q.mu.count)%q.depth] = c
	q.mu.count++
	q.mu.Unlock()
	wake(q.ready)
}

// wake leaves a token in a channel of capacity one, if none is there.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
