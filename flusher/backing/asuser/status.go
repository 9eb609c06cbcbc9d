package asuser

import (
	"cmp"
	"slices"
	"time"
)

// State is the state of a store worker.
type State string

// The states.
const (
	Serving State = "serving" // it has requests
	Idle    State = "idle"    // it has none, and will end if it gets none for long
	Hanging State = "hanging" // it has answered no request for long, a request to it was abandoned, or it has not ended on order
	Ending  State = "ending"  // it was ordered to end, or killed, just now
)

const (
	hangsFrom  = 2 * time.Second // how long a process that was ordered to end, or killed, may take
	silentFrom = 5 * time.Second // and one that has requests, to answer one of them
)

// Process describes the process of a store worker.
type Process struct {
	UID   uint32
	Root  string
	State State
	Since time.Time // when it began to hang; else zero
}

// Counts are of all store workers since New.
type Counts struct {
	Restarts int64 // workers that were started in place of one that was killed, or ended by itself
	Kills    int64
}

// Status describes all processes.
func (w *Workers) Status() (all []Process) {
	now := time.Now()
	w.mu.Lock()
	pools := make([]*pool, 0, len(w.pools))
	for _, p := range w.pools {
		pools = append(pools, p)
	}
	w.mu.Unlock()
	for _, p := range pools {
		all = append(all, p.status(now)...)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Root, b.Root), a.Since.Compare(b.Since))
	})
	return all
}

// Counts returns the counts so far.
func (w *Workers) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

func (p *pool) status(now time.Time) (all []Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(state State, since time.Time) {
		all = append(all, Process{UID: p.key.uid, Root: p.key.dir, State: state, Since: since})
	}
	if p.current != nil {
		add(p.current.state(now))
	}
	for _, since := range p.left {
		if now.Sub(since) < hangsFrom {
			add(Ending, time.Time{})
		} else {
			add(Hanging, since)
		}
	}
	return all
}

// state is that of a worker that takes requests. It hangs if a request was abandoned, or if none of
// its requests was answered for long.
func (w *worker) state(now time.Time) (State, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return Idle, time.Time{}
	}
	var begun, left time.Time
	for _, c := range w.calls {
		begun = earlier(begun, c.begun)
		left = earlier(left, c.left)
	}
	if w.heard.After(begun) {
		begun = w.heard
	}
	if now.Sub(begun) < silentFrom {
		begun = time.Time{}
	}
	if since := earlier(begun, left); !since.IsZero() {
		return Hanging, since
	}
	return Serving, time.Time{}
}

// earlier returns the earlier of two times, of which zero ones do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// maxLost bounds the records of workers that are to be started again.
const maxLost = 1024

// lose records that a worker ended which should not have. The next one of its user and root is a
// restart.
func (w *Workers) lose(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if len(w.lost) >= maxLost {
		clear(w.lost)
	}
	w.lost[k] = struct{}{}
}

// begun records the start of a worker.
func (w *Workers) begun(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, lost := w.lost[k]; lost {
		delete(w.lost, k)
		w.counts.Restarts++
	}
}

func (w *Workers) countKill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Kills++
}
