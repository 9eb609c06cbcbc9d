package peer

import (
	"context"
	"net"
	"sync"
	"time"

	"forebay/rdma"
)

// way is a session's connection for one-sided reads and writes. It is dialled when it is first
// needed, and from then on made anew in the background whenever it ends, so that the next caller
// finds it there, and no caller waits on one that is dead:
//
//	none ──get──▶ dialling ──▶ there ──it ends, or is lost──▶ dialling …
//	  ▲              └─ failed: waiting callers get the error, the next get retries
//	  └──────────────────┘
//	any ──close──▶ closed
//
// One goroutine dials and then watches the connection. It ends with a dial that fails, or close.
type way struct {
	dial   func(ctx context.Context) (rdma.Conn, error)
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup
	wanted chan struct{} // holds a token when the connection has waiters

	mu struct {
		sync.Mutex
		conn    rdma.Conn // nil: none
		attempt *attempt  // nil: no dial is in progress
		closed  bool
	}
}

// attempt is a dial, for its waiters. Its result is set before done is closed.
type attempt struct {
	done chan struct{}
	conn rdma.Conn
	err  error
}

const (
	// wayLasts is the shortest life of a connection that is dialled again at once when it ends.
	wayLasts = 5 * time.Second
	// firstPause and lastPause are before short-lived connections, one after the other,
	// are dialled again without a waiter.
	firstPause, lastPause = 100 * time.Millisecond, 10 * time.Second
)

func newWay(dial func(ctx context.Context) (rdma.Conn, error)) *way {
	w := &way{dial: dial, wanted: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// get returns the connection. It waits for a dial that is under way until that or ctx ends.
func (w *way) get(ctx context.Context) (rdma.Conn, error) {
	w.mu.Lock()
	switch {
	case w.mu.closed:
		w.mu.Unlock()
		return nil, net.ErrClosed
	case w.mu.conn != nil:
		defer w.mu.Unlock()
		return w.mu.conn, nil
	case w.mu.attempt == nil:
		w.mu.attempt = &attempt{done: make(chan struct{})}
		w.work.Go(w.run)
	}
	a := w.mu.attempt
	w.mu.Unlock()
	select {
	case w.wanted <- struct{}{}:
	default:
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lose closes a connection that failed. If it is the one that get returns, it is made anew.
func (w *way) lose(failed rdma.Conn) {
	w.ended(failed)
	_ = failed.Close() // its watch detects that
}

// ended withdraws the connection from callers. It returns false when there is to be no other.
func (w *way) ended(conn rdma.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.conn == conn && !w.mu.closed {
		w.mu.conn, w.mu.attempt = nil, &attempt{done: make(chan struct{})}
	}
	return !w.mu.closed
}

// run dials, and dials again when a connection has ended.
func (w *way) run() {
	for pause := firstPause; ; {
		conn, err := w.dial(w.ctx)
		if !w.dialled(conn, err) {
			return
		}
		since := time.Now()
		select {
		case <-conn.Done():
		case <-w.ctx.Done():
		}
		more := w.ended(conn)
		_ = conn.Close() // it has ended
		if !more {
			return
		}
		if time.Since(since) >= wayLasts {
			pause = firstPause
			continue
		}
		w.rest(pause)
		pause = min(2*pause, lastPause)
	}
}

// dialled records the result of a dial. It returns false if there is nothing to watch.
func (w *way) dialled(conn rdma.Conn, err error) bool {
	w.mu.Lock()
	a := w.mu.attempt
	w.mu.attempt = nil
	if err == nil && w.mu.closed {
		err = net.ErrClosed
	}
	a.err = err
	if err == nil {
		a.conn, w.mu.conn = conn, conn
	}
	w.mu.Unlock()
	close(a.done)
	select {
	case <-w.wanted: // the waiters have the result
	default:
	}
	if err != nil && conn != nil {
		_ = conn.Close()
	}
	return err == nil
}

// rest waits, unless the connection has a waiter already.
func (w *way) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wanted:
	case <-w.ctx.Done():
	}
}

// close ends the connection, or the dial. When it returns, nothing touches the memory of
// operations any more. It is idempotent.
func (w *way) close() {
	w.mu.Lock()
	w.mu.closed, w.mu.conn = true, nil
	w.mu.Unlock()
	w.cancel()
	w.work.Wait()
}
