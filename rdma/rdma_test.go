package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// refuser is a connection that takes a few operations at a time and fails every third.
type refuser struct {
	Conn
	posted int
	atOnce int
}

func (r *refuser) Post(ctx context.Context, q *Queue, ops []Op) (int, error) {
	n, err := q.Reserve(ctx, nil, min(len(ops), r.atOnce))
	for i := range n {
		r.posted++
		c := Completion{ID: ops[i].ID}
		if r.posted%3 == 0 {
			c.Err = fmt.Errorf("operation %d: %w", r.posted, ErrBounds)
		}
		q.Complete(c)
	}
	return n, err
}

func TestDoStopsAtTheFirstError(t *testing.T) {
	r := &refuser{atOnce: 1}
	if err := Do(t.Context(), r, make([]Op, 2)); err != nil || r.posted != 2 {
		t.Fatalf("posted %d, %v", r.posted, err)
	}
	r = &refuser{atOnce: 1000}
	if err := Do(t.Context(), r, make([]Op, 10*doDepth)); !errors.Is(err, ErrBounds) || r.posted > 2*doDepth {
		t.Fatalf("posted %d, %v", r.posted, err)
	}
	if err := Do(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
}

func TestQueueOrderAndRoom(t *testing.T) {
	q := NewQueue(3)
	if n, err := q.Reserve(t.Context(), nil, 10); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i := range uint64(3) {
		q.Complete(Completion{ID: i})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Reserve(ctx, nil, 1); !errors.Is(err, context.Canceled) {
		t.Fatal("a full queue had room:", err)
	}
	done := make(chan struct{})
	close(done)
	if _, err := q.Reserve(t.Context(), done, 1); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	var got [2]Completion
	if n := q.Poll(got[:]); n != 2 || got[0].ID != 0 || got[1].ID != 1 {
		t.Fatal(n, got)
	}
	q.Close()
	if n, err := q.Wait(t.Context(), got[:]); n != 1 || got[0].ID != 2 || err != nil {
		t.Fatal("what had completed is gone:", n, got, err)
	}
	if _, err := q.Wait(t.Context(), got[:]); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := q.Reserve(t.Context(), nil, 1); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := q.Wait(t.Context(), nil); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
}

func TestQueueOverflowIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("a completion without a reservation went unnoticed")
		}
	}()
	q := NewQueue(1)
	q.Complete(Completion{})
	q.Complete(Completion{})
}

// TestQueueManyWaiters: no waiter sleeps while there is something to take.
func TestQueueManyWaiters(t *testing.T) {
	q := NewQueue(7)
	const total = 10_000
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	for range 4 {
		wg.Go(func() {
			var buf [3]Completion
			for {
				n, err := q.Wait(t.Context(), buf[:])
				if err != nil {
					return
				}
				mu.Lock()
				for _, c := range buf[:n] {
					seen[c.ID] = true
				}
				if len(seen) == total {
					q.Close()
				}
				mu.Unlock()
			}
		})
	}
	for p := range 4 {
		wg.Go(func() {
			for i := 0; i < total/4; {
				n, err := q.Reserve(t.Context(), nil, min(5, total/4-i))
				if err != nil {
					t.Error(err)
					return
				}
				for range n {
					q.Complete(Completion{ID: uint64(p*total/4 + i)})
					i++
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != total {
		t.Fatalf("%d of %d completions", len(seen), total)
	}
}

func TestRemoteKeyEncoding(t *testing.T) {
	k := NewRemoteKey(1 << 40)
	b, err := k.AppendBinary([]byte("x"))
	if err != nil || len(b) != 1+RemoteKeySize {
		t.Fatal(len(b), err)
	}
	if again, err := DecodeRemoteKey(b[1:]); err != nil || again != k || !again.Equal(k) {
		t.Fatal(again, err)
	}
	if other := NewRemoteKey(1 << 40); other.Equal(k) {
		t.Fatal("two keys of the same id are equal")
	}
	for _, bad := range [][]byte{nil, b[1:10], b} {
		if _, err := DecodeRemoteKey(bad); !errors.Is(err, ErrInvalid) {
			t.Fatalf("%d bytes: %v", len(bad), err)
		}
	}
}
