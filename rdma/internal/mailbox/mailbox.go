// Package mailbox is the bounded queue of messages that arrived on a connection and that nobody
// received yet. The sender holds credits for its slots, so a full box is the peer's fault.
package mailbox

import (
	"context"
	"sync"

	"forebay/rdma"
	"forebay/rdma/internal/flow"
)

// Box may be used concurrently.
type Box struct {
	ready  chan struct{} // holds a token when a message may be there
	failed chan struct{}

	mu struct {
		sync.Mutex
		ring  [][]byte
		head  int
		count int
		spare [][]byte // buffers of received messages
		err   error
		drop  bool // the local side closed: what arrived is not wanted any more
	}
}

// New returns a box with so many slots.
func New(slots int) *Box {
	b := &Box{ready: make(chan struct{}, 1), failed: make(chan struct{})}
	b.mu.ring = make([][]byte, slots)
	b.mu.spare = make([][]byte, 0, slots)
	return b
}

// Buffer returns memory for a message of n bytes that is going to be Put.
func (b *Box) Buffer(n int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := len(b.mu.spare) - 1; last >= 0 {
		buf := b.mu.spare[last]
		b.mu.spare = b.mu.spare[:last]
		if cap(buf) >= n {
			return buf[:n]
		}
	}
	return make([]byte, n)
}

// Put appends a message and takes over its memory. It reports false if the box is full.
func (b *Box) Put(msg []byte) bool {
	b.mu.Lock()
	if b.mu.count == len(b.mu.ring) {
		b.mu.Unlock()
		return false
	}
	b.mu.ring[(b.mu.head+b.mu.count)%len(b.mu.ring)] = msg
	b.mu.count++
	b.mu.Unlock()
	flow.Wake(b.ready)
	return true
}

// Take waits for a message and copies it to dst; see rdma.Conn.Recv. After it returns nil, the
// sender has earned one credit.
func (b *Box) Take(ctx context.Context, dst []byte) (int, error) {
	for {
		n, ok, err := b.try(dst)
		if ok || err != nil {
			return n, err
		}
		select {
		case <-b.ready:
		case <-b.failed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (b *Box) try(dst []byte) (n int, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.count == 0 || b.mu.drop {
		return 0, false, b.mu.err
	}
	msg := b.mu.ring[b.mu.head]
	if len(msg) > len(dst) {
		flow.Wake(b.ready)
		return len(msg), false, rdma.ErrTooLarge
	}
	b.mu.ring[b.mu.head] = nil
	b.mu.head = (b.mu.head + 1) % len(b.mu.ring)
	b.mu.count--
	if b.mu.count > 0 {
		flow.Wake(b.ready)
	}
	if len(b.mu.spare) < cap(b.mu.spare) {
		b.mu.spare = append(b.mu.spare, msg)
	}
	return copy(dst, msg), true, nil
}

// Fail makes Take return err, at once if drop is set, else when the box is empty. Only the first
// call counts.
func (b *Box) Fail(err error, drop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.err == nil {
		b.mu.err, b.mu.drop = err, drop
		close(b.failed)
	}
}
