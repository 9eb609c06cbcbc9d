package rpc

import "sync/atomic"

// maxIdle is how many workers of a session wait for another request.
const maxIdle = 32

// workers are the goroutines that carry out the requests of a session. Once its request has ended, a
// worker waits for another: its stack has the size that requests need. The stack of a new goroutine
// grows in steps, and each step copies it.
type workers struct {
	next chan func()
	idle atomic.Int32
}

func newWorkers() *workers { return &workers{next: make(chan func())} }

// work has a worker carry run out. Only the session's reader calls it.
func (s *Session) work(run func()) {
	select {
	case s.workers.next <- run:
	default:
		s.wg.Go(func() { s.workers.serve(run) })
	}
}

// serve carries run out, then other requests, until the session ends or enough workers are idle.
func (w *workers) serve(run func()) {
	for more := true; more; {
		run()
		if w.idle.Add(1) <= maxIdle {
			run, more = <-w.next
		} else {
			more = false
		}
		w.idle.Add(-1)
	}
}

// end lets idle workers end. Nothing may call work afterwards.
func (w *workers) end() { close(w.next) }
