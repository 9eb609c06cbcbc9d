package kv

import (
	"context"
	"sync/atomic"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
)

const (
	// A watcher reads all keys again so often, and whenever the connection came back. Missed
	// changes arrive by then at the latest.
	watchResync  = 30 * time.Second
	watchPace    = 100 * time.Millisecond
	watchWaiting = 1024 // changes that have not been looked at
)

// watch is called with every record whose key matches a filter, deleted ones too, and from then on
// with each that changes. It gets the revisions of a key in their order, but not every one of them.
type watch struct {
	b      *Bucket
	filter string
	tell   func(*Record)
	round  func() bool // called after some records; true ends the watch
	newest map[string]uint64
	told   bool // since the last round
	msgs   chan conn.Fed
	missed atomic.Bool // there were more than msgs holds
}

// Watch runs until round reports true, or ctx ends. It costs one consumer on
// the server.
func (b *Bucket) Watch(ctx context.Context, filter string, tell func(*Record), round func() bool) error {
	w := &watch{b: b, filter: filter, tell: tell, round: round, newest: map[string]uint64{}, msgs: make(chan conn.Fed, watchWaiting)}
	for {
		// First the consumer, then the list, so that no change after the list is missed.
		feed, err := b.feed(ctx, filter, conn.FromNow, func(m conn.Fed) {
			select {
			case w.msgs <- m:
			default:
				w.missed.Store(true)
			}
		})
		if err != nil {
			return err
		}
		err = w.follow(ctx, feed)
		feed.Stop(ctx)
		if err != nil {
			return stopped(err)
		}
	}
}

// follow lists the records and then passes changes on, until the next list is due.
func (w *watch) follow(ctx context.Context, feed *conn.Feed) error {
	reconnects := w.b.c.Status().Reconnects
	w.missed.Store(false)
	if err := w.list(ctx); err != nil {
		return err
	}
	due := time.NewTimer(watchResync)
	defer due.Stop()
	pace := time.NewTicker(watchPace)
	defer pace.Stop()
	for {
		select {
		case m := <-w.msgs:
			if r, ok := w.b.fed(&m); ok && !IsBarrier(r.Key) {
				w.see(&r)
			}
		case <-pace.C:
			if w.told && w.round() {
				return ErrStop
			}
			w.told = false
			if w.missed.Load() || feed.Gap() || feed.Silent() || w.b.c.Status().Reconnects != reconnects {
				return nil
			}
		case <-due.C:
			return nil
		case <-w.b.c.Closed():
			return bb.E(bb.Cancelled, "watch", w.b.name, "the connection was closed")
		case <-ctx.Done():
			return &bb.Error{Kind: bb.Cancelled, Op: "watch", Path: w.b.name, Err: ctx.Err()}
		}
	}
}

func (w *watch) list(ctx context.Context) error {
	found := map[string]Record{}
	err := w.b.Scan(ctx, w.filter, func(r *Record) error {
		if old, seen := found[r.Key]; !seen || old.Seq < r.Seq {
			found[r.Key] = *r
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		w.see(&r)
	}
	if w.round() {
		return ErrStop
	}
	w.told = false
	return nil
}

// see passes on a record that is newer than the known one.
func (w *watch) see(r *Record) {
	if r.Seq > w.newest[r.Key] {
		w.newest[r.Key] = r.Seq
		w.told = true
		w.tell(r)
	}
}
