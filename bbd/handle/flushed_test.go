package handle

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// names is a namespace of one name. Each lookup returns the next of its entries, and the last one again and again.
type names struct{ looks []bb.Entry }

func (n *names) Lookup(_ context.Context, _ bb.DirID, name string) (bb.Entry, error) {
	if len(n.looks) == 0 {
		return bb.Entry{}, bb.E(bb.NotFound, "lookup", name, "it is not there")
	}
	e := n.looks[0]
	if len(n.looks) > 1 {
		n.looks = n.looks[1:]
	}
	return e, nil
}

func newBuffer(n Entries, flushed func(context.Context, *bb.Entry) error) *Buffer {
	spec := bb.Buffer{Name: "b", Durability: bb.DurabilityFlushed, NoFlush: []string{"*.tmp"}}
	return NewBuffer("b", Parts{Spec: func() bb.Buffer { return spec }, Names: n, Flushed: flushed, DirtyAge: time.Minute})
}

// TestContentFlushed: a close waits until the store has the generation or a newer one of the file, and ends with the
// error that keeps it from there.
func TestContentFlushed(t *testing.T) {
	t.Parallel()
	dirty := bb.Entry{Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6}
	with := func(change func(*bb.Entry)) bb.Entry { e := dirty; change(&e); return e }
	clean := with(func(e *bb.Entry) { e.Flushed.Generation = 6 })
	for name, c := range map[string]struct {
		looks []bb.Entry
		queue error // of the wait for the queue
		want  error
		waits int // for the queue
	}{
		"flushed":                       {looks: []bb.Entry{clean}, waits: 1},
		"recorded later":                {looks: []bb.Entry{dirty, dirty, clean}, waits: 3},
		"removed or renamed":            {waits: 1},
		"another file has the name":     {looks: []bb.Entry{with(func(e *bb.Entry) { e.File = 9 })}, waits: 1},
		"a newer generation is written": {looks: []bb.Entry{with(func(e *bb.Entry) { e.Generation, e.Open = 7, true })}, waits: 1},
		"lost":                          {looks: []bb.Entry{with(func(e *bb.Entry) { e.Lost = true })}, want: bb.Lost, waits: 1},
		"the store fails":               {looks: []bb.Entry{dirty}, queue: bb.E(bb.Unavailable, "put", "x", "no"), want: bb.Unavailable, waits: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			waits := 0
			b := newBuffer(&names{slices.Clone(c.looks)}, func(context.Context, *bb.Entry) error { waits++; return c.queue })
			err := b.contentFlushed(t.Context(), dirty, dirty.Place())
			if c.want == nil && err != nil || c.want != nil && bb.KindOf(err) != c.want || waits != c.waits {
				t.Errorf("%s: %v after %d waits for the queue, want %v after %d", name, err, waits, c.want, c.waits)
			}
		})
	}
}

// TestContentFlushedCancelled: a client that is gone waits no more.
func TestContentFlushedCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dirty := bb.Entry{Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6}
		b := newBuffer(&names{[]bb.Entry{dirty}}, func(context.Context, *bb.Entry) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := b.contentFlushed(ctx, dirty, dirty.Place()); bb.KindOf(err) != bb.Cancelled {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestLastClose: an earlier close waits for the last one, for so long as a byte may stay dirty, and not at all for a
// close of its own client.
func TestLastClose(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		endsAfter time.Duration // negative: it has ended; 0: it does not end
		own       int
		want      error
		took      time.Duration
	}{
		"it was the last one":                {endsAfter: -1},
		"it was the last one of this client": {endsAfter: -1, own: 1},
		"the last one comes":                 {endsAfter: time.Second, took: time.Second},
		"the client has it open itself":      {endsAfter: time.Second, own: 1, want: bb.Busy},
		"nobody closes it":                   {want: bb.Busy, took: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended, began := make(chan struct{}), time.Now()
			switch {
			case c.endsAfter < 0:
				close(ended)
			case c.endsAfter > 0:
				time.AfterFunc(c.endsAfter, func() { close(ended) })
			}
			err := newBuffer(&names{}, nil).lastClose(t.Context(), "x", ended, c.own)
			if c.want == nil && err != nil || c.want != nil && bb.KindOf(err) != c.want || time.Since(began) != c.took {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, time.Since(began), c.want, c.took)
			}
		})
	}
}

// TestClosedFlushed: under a name that is kept nothing is waited for.
func TestClosedFlushed(t *testing.T) {
	t.Parallel()
	e := bb.Entry{Parent: bb.RootDir, Name: "x.tmp", Type: bb.TypeFile, File: 5, Generation: 6}
	b := newBuffer(&names{[]bb.Entry{e}}, func(context.Context, *bb.Entry) error { return bb.E(bb.Internal, "wait", "x", "it waits") })
	if err := b.closedFlushed(t.Context(), &e, "x.tmp"); err != nil {
		t.Error(err)
	}
	if err := b.closedFlushed(t.Context(), &e, "x"); bb.KindOf(err) != bb.Internal {
		t.Errorf("under another name it ends with %v", err)
	}
}
