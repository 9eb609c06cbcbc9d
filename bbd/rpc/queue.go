package rpc

import (
	"context"
	"sync"
)

// Queue has the requests on one resource, which are carried out one after the other, in the order in
// which they were read. The zero value is empty.
type Queue struct {
	mu struct {
		sync.Mutex
		busy    bool // a worker is carrying requests out
		waiting []func()
	}
}

// enqueue carries run out after the requests before it. When nothing is queued and
// quick reports that run will not wait, it runs on the calling goroutine, the session's
// reader. This saves a small request two switches.
func (q *Queue) enqueue(r *Request, quick func() bool, run func(context.Context)) {
	q.mu.Lock()
	idle := !q.mu.busy
	q.mu.Unlock()
	if idle && quick() {
		run(r.session.ctx) // only the reader enqueues, so nothing can come meanwhile
		r.done()
		return
	}
	ctx, finish := r.track()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.waiting = append(q.mu.waiting, func() { run(ctx); finish() })
	if !q.mu.busy {
		q.mu.busy = true
		r.session.work(q.work)
	}
}

// work carries requests out until none is waiting.
func (q *Queue) work() {
	for {
		q.mu.Lock()
		if len(q.mu.waiting) == 0 {
			q.mu.busy = false
			q.mu.waiting = nil
			q.mu.Unlock()
			return
		}
		run := q.mu.waiting[0]
		q.mu.waiting = q.mu.waiting[1:]
		q.mu.Unlock()
		run()
	}
}

// queued reports whether another request waits for the one that is carried out.
func (q *Queue) queued() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.waiting) > 0
}
