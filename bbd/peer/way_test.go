package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forebay/rdma"
)

// fakeConn is a connection that carries nothing, until it is killed or closed.
type fakeConn struct {
	rdma.Conn
	once sync.Once
	gone chan struct{}
	shut atomic.Bool
}

func (c *fakeConn) kill() { c.once.Do(func() { close(c.gone) }) }

func (c *fakeConn) Done() <-chan struct{} { return c.gone }

func (c *fakeConn) Close() error {
	c.shut.Store(true)
	c.kill()
	return nil
}

// fakeDial makes connections, as fails and hangs direct.
type fakeDial struct {
	mu    sync.Mutex
	made  []*fakeConn
	fails error         // not nil: the error of each dial
	hangs chan struct{} // not nil: closed when it stops hanging
	stale bool          // the new connection is dead already
}

func (d *fakeDial) dial(ctx context.Context) (rdma.Conn, error) {
	d.mu.Lock()
	fails, hangs := d.fails, d.hangs
	d.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fails != nil {
		return nil, fails
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &fakeConn{gone: make(chan struct{})}
	if d.stale {
		c.kill()
	}
	d.made = append(d.made, c)
	return c, nil
}

func (d *fakeDial) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *fakeDial) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.made)
}

func mustGet(t *testing.T, w *way) *fakeConn {
	t.Helper()
	c, err := w.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.(*fakeConn)
}

// A connection that ends is made anew without a caller, and the next caller gets the new one.
func TestWayIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDial{}
		w := newWay(d.dial)
		defer w.close()
		if d.count() != 0 {
			t.Error("dialled before it was needed")
		}
		first := mustGet(t, w)
		if mustGet(t, w) != first || d.count() != 1 {
			t.Error("another one, while there is one")
		}
		time.Sleep(time.Minute)
		first.kill()
		synctest.Wait()
		if d.count() != 2 || !first.shut.Load() {
			t.Fatalf("%d were dialled, the first closed: %v", d.count(), first.shut.Load())
		}
		second := mustGet(t, w)
		if second == first {
			t.Error("got one that has ended")
		}
		w.lose(first) // by a caller that detects it late
		if mustGet(t, w) != second {
			t.Error("lost another one than failed")
		}
		w.lose(second)
		start := time.Now()
		if third := mustGet(t, w); third == second || !second.shut.Load() || time.Since(start) > 0 {
			t.Errorf("after it was lost: the same %v, closed %v, after %v", third == second, second.shut.Load(), time.Since(start))
		}
	})
}

// A wait for a dial that hangs ends with its context, and with the session.
func TestWayThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDial{hangs: make(chan struct{})}
		w := newWay(d.dial)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := w.get(t.Context()); err == nil {
					t.Error("a connection that nobody made")
				}
			})
		}
		synctest.Wait()
		w.close()
		wg.Wait()
		if _, err := w.get(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		w.close()
	})
}

// A dial that fails is one error for all that wait, and the next caller has another.
func TestWayThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDial{fails: rdma.ErrPeerGone, hangs: make(chan struct{})}
		w := newWay(d.dial)
		defer w.close()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := w.get(t.Context()); !errors.Is(err, rdma.ErrPeerGone) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(d.hangs)
		wg.Wait()
		time.Sleep(time.Hour)
		d.set(func() { d.fails = nil })
		if mustGet(t, w); d.count() != 1 {
			t.Errorf("%d were made", d.count())
		}
	})
}

// A peer whose connections end as soon as they are made is not dialled all the time, but at once
// for a caller that needs one.
func TestWayThatDoesNotLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDial{stale: true}
		w := newWay(d.dial)
		defer w.close()
		mustGet(t, w)
		time.Sleep(time.Minute)
		before := d.count()
		if before < 5 || before > 20 {
			t.Errorf("dialled %d times in a minute", before)
		}
		start := time.Now()
		d.set(func() { d.stale = false })
		mustGet(t, w)
		if took := time.Since(start); took > 0 || d.count() != before+1 {
			t.Errorf("waited %v for dial %d", took, d.count())
		}
	})
}
