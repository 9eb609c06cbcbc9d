// Package populate touches memory in the background before its first use, since first touches cost ten times
// as much as copies. It must never depend on the use of the memory.
package populate

import (
	"slices"
	"sync"
)

// Step is how much one call populates. It is short enough for Close to wait for (40 ms at the
// slowest rate measured), and long enough to cost nothing.
const Step = 16 << 20

// Memory is memory that is populated in steps.
type Memory interface {
	comparable
	// Steps returns how many steps there are.
	Steps() int
	// PopulateStep does one of them. Steps of the same memory may be done at a time.
	PopulateStep(step int) error
}

type work[M Memory] struct {
	m    M
	step int
}

// Populator has the steps that are to be done. It owns its goroutines, which end when there is nothing to do.
type Populator[M Memory] struct {
	done func(m M, step int, err error)

	mu struct {
		sync.Mutex
		idle    sync.Cond // signalled when a step is done
		active  map[M]int
		queue   []work[M]
		workers int
		threads int
		closed  bool
	}
	wg sync.WaitGroup
}

// Start makes the populator ready. done is called after each step, by the goroutine that has done it.
func (p *Populator[M]) Start(threads int, done func(m M, step int, err error)) {
	p.done = done
	p.mu.threads = threads
	p.mu.active = map[M]int{}
	p.mu.idle.L = &p.mu
}

// Add queues the steps of some memory, in order, behind those already there.
func (p *Populator[M]) Add(m M) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	for i := range m.Steps() {
		p.mu.queue = append(p.mu.queue, work[M]{m, i})
	}
	for p.mu.workers < min(p.mu.threads, len(p.mu.queue)) {
		p.mu.workers++
		p.wg.Go(p.work)
	}
}

func (p *Populator[M]) next() (w work[M], ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.queue) == 0 {
		p.mu.workers--
		return w, false
	}
	w = p.mu.queue[0]
	p.mu.queue = p.mu.queue[1:]
	p.mu.active[w.m]++
	return w, true
}

// Busy reports whether something is being done.
func (p *Populator[M]) Busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.workers > 0
}

func (p *Populator[M]) work() {
	for {
		w, ok := p.next()
		if !ok {
			return
		}
		p.done(w.m, w.step, w.m.PopulateStep(w.step))
		p.mu.Lock()
		p.mu.active[w.m]--
		p.mu.idle.Broadcast()
		p.mu.Unlock()
	}
}

// Forget drops the queued steps of some memory and waits for those under way.
func (p *Populator[M]) Forget(m M) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue = slices.DeleteFunc(p.mu.queue, func(w work[M]) bool { return w.m == m })
	for p.mu.active[m] > 0 {
		p.mu.idle.Wait()
	}
	delete(p.mu.active, m)
}

// Close drops the queue and waits for steps in progress.
func (p *Populator[M]) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.queue = nil
	p.mu.Unlock()
	p.wg.Wait()
}
