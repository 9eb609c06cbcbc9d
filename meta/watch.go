package meta

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

const (
	// A watcher reads all buffers again so often, and whenever the connection came
	// back: what it missed, it learns by then at the latest.
	watchResync  = 30 * time.Second
	watchWaiting = 1024 // changes that have not been looked at
)

// BufferChange says how a buffer is now.
type BufferChange struct {
	Name   string
	Buffer *bb.Buffer // nil: it has been destroyed
}

// WatchBuffers calls fn with every buffer that there is, and from then on with each
// that was made, changed or destroyed by anybody, until ctx ends; it returns why. fn
// runs on the caller's goroutine and sees the revisions of a buffer in their order,
// but not every one of them. It costs one consumer on the server.
func (m *Meta) WatchBuffers(ctx context.Context, fn func(BufferChange)) error {
	w := &bufferWatch{m: m, fn: fn, newest: map[string]uint64{}, exist: map[string]bool{}, msgs: make(chan *nats.Msg, watchWaiting)}
	for {
		// First the consumer, then the list: what comes after the list is not missed.
		sub, err := m.system.subscribe(ctx, bufferPrefix+"*", func(msg *nats.Msg) {
			select {
			case w.msgs <- msg:
			default:
				w.missed.Store(true)
			}
		}, nats.DeliverNew())
		if err != nil {
			return opError("watch buffers", "", err)
		}
		err = w.follow(ctx)
		_ = sub.Unsubscribe()
		if err != nil {
			return opError("watch buffers", "", err)
		}
	}
}

// bufferWatch is what a watcher has told its caller.
type bufferWatch struct {
	m      *Meta
	fn     func(BufferChange)
	newest map[string]uint64 // revisions, of deleted buffers too
	exist  map[string]bool
	msgs   chan *nats.Msg
	missed atomic.Bool // there were more than msgs holds
}

// follow lists the buffers and then tells changes, until the next list is due.
func (w *bufferWatch) follow(ctx context.Context) error {
	reconnects := w.m.conn.currentStatus().Reconnects
	w.missed.Store(false)
	if err := w.list(ctx); err != nil {
		return err
	}
	due := time.NewTimer(watchResync)
	defer due.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case msg := <-w.msgs:
			if r, _, ok := w.m.system.pushed(msg); ok && !isBarrier(r.key) {
				w.tell(&r)
			}
		case <-look.C:
			if w.missed.Load() || w.m.conn.currentStatus().Reconnects != reconnects {
				return nil
			}
		case <-due.C:
			return nil
		case <-w.m.conn.closed:
			return bb.E(bb.Cancelled, "watch buffers", "", "the connection was closed")
		case <-ctx.Done():
			return &bb.Error{Kind: bb.Cancelled, Op: "watch buffers", Err: ctx.Err()}
		}
	}
}

// list tells how the buffers differ from what is known.
func (w *bufferWatch) list(ctx context.Context) error {
	found := map[string]record{}
	err := w.m.system.scan(ctx, bufferPrefix+"*", func(r *record) error {
		found[r.key] = *r
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		w.tell(&r)
	}
	return nil
}

// tell passes on a record that is newer than what is known. A deleted one stays, so
// that no list lacks it.
func (w *bufferWatch) tell(r *record) {
	name := r.key[len(bufferPrefix):]
	if r.seq <= w.newest[name] {
		return
	}
	w.newest[name] = r.seq
	if !r.live() {
		if w.exist[name] {
			delete(w.exist, name)
			w.fn(BufferChange{Name: name})
		}
		return
	}
	b, _, err := openBuffer(r.key, r.data, r.seq)
	if err != nil {
		w.m.garbage(r.key, err)
		return
	}
	w.exist[name] = true
	w.fn(BufferChange{name, &b})
}
