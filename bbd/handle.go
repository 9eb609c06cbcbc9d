package bbd

import (
	"context"
	"sync"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// handle is one open file of a session. Requests on it are carried out one after
// the other, in the order in which they were read.
type handle struct {
	s  *session
	id uint64

	writes string // the buffer that it is opened for writing in; "": it is for reading

	queue struct {
		sync.Mutex
		busy    bool // a goroutine is carrying requests out
		waiting []func()
	}

	// Set by the open request, before any other runs; write and relay change with a
	// commit that finds the generation superseded.
	err    error // why the open failed
	opened *wire.Open
	buf    *buffer
	path   string          // as it was opened, for messages
	tier   bb.Tier         // where the bytes of the file belong
	write  *openFile       // for writing
	relay  *relay          // for writing a file whose home is another node
	snap   *store.Snapshot // for reading
	tap    tap             // for reading
	entry  bb.Entry        // for reading: as it was opened

	closed  bool // by the queue's requests alone
	entered bool // a change of the buffer is under way, likewise: see freezer
}

// enqueue carries run out after the requests before it. When nothing is queued and
// quick says that run will not wait, it runs on the calling goroutine, the session's
// reader: that saves a small commit two switches.
func (h *handle) enqueue(r *request, quick func() bool, run func(context.Context)) {
	q := &h.queue
	q.Lock()
	idle := !q.busy
	q.Unlock()
	if idle && quick() {
		run(r.s.ctx) // only the reader enqueues, so nothing can come meanwhile
		r.done()
		return
	}
	ctx, finish := r.track()
	q.Lock()
	defer q.Unlock()
	q.waiting = append(q.waiting, func() { run(ctx); finish() })
	if !q.busy {
		q.busy = true
		h.s.wg.Go(h.work)
	}
}

// work carries requests out until none is waiting.
func (h *handle) work() {
	q := &h.queue
	for {
		q.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			q.waiting = nil
			q.Unlock()
			return
		}
		run := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.Unlock()
		run()
	}
}

// queued reports whether another request waits for the one that is carried out.
func (h *handle) queued() bool {
	h.queue.Lock()
	defer h.queue.Unlock()
	return len(h.queue.waiting) > 0
}

func never() bool { return false }
