package flusher

import (
	"context"
	"time"

	"forebay/flusher/plan"
)

// dispatch starts the flushes that the plan picks while workers are free, until Close.
func (f *Flusher) dispatch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.kicked:
		case <-timer.C:
		}
		wake := f.next()
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(max(wake.Sub(f.opts.Now()), time.Millisecond))
		}
		if f.crowded() {
			time.Sleep(together)
		}
	}
}

// together is the time for which landings are gathered, while many small files are flushed, before
// the next decision.
const together = time.Millisecond

// crowded reports whether more files are in flight than there are workers.
func (f *Flusher) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.running) > f.opts.Workers
}

// next starts flushes and returns the time of the next check.
func (f *Flusher) next() (wake time.Time) {
	pressure := f.opts.Pressure()
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.mu.wake = wake }()
	if f.mu.closed || f.mu.paused {
		return time.Time{} // Resume kicks
	}
	units := f.opts.Workers * f.opts.SmallPerWorker
	busy, holds, stalls := f.busy(f.opts.Now())
	if busy >= units {
		return stalls // the end of an attempt kicks too
	}
	in, byID := f.candidates(pressure, units-busy)
	in.Holds = holds
	picks, fair, wake := plan.Next(in)
	f.mu.fair = fair
	for _, p := range picks {
		f.launch(f.mu.queues[p.Buffer], byID[p.ID])
	}
	_, _, stalls = f.busy(f.opts.Now()) // of the attempts begun just now, too, as their stores may never answer
	return plan.Soonest(wake, stalls)
}

// limits are those of the options, in units. See plan.Limits.
func (o *Options) limits(free int) plan.Limits {
	return plan.Limits{
		Free: free, Total: o.Workers * o.SmallPerWorker,
		PerBuffer: o.PerBuffer * o.SmallPerWorker, PerStore: o.PerStore * o.SmallPerWorker, PerUser: o.PerUser * o.SmallPerWorker,
		Small: o.Small, PerWorker: o.SmallPerWorker, DirtyAge: o.DirtyAge, Idle: max(0, o.Idle),
	}
}

// busy counts the units of the attempts that hold a worker, of all and of each user. It returns the
// time at which, without an answer of its store, the next of them frees its worker, or zero if
// there is none. mu is held.
func (f *Flusher) busy(now time.Time) (n int, holds map[uint32]int, stalls time.Time) {
	holds = map[uint32]int{}
	for fl := range f.mu.running {
		if until := fl.until(); until.After(now) {
			n += fl.units
			holds[fl.user] += fl.units
			stalls = plan.Soonest(stalls, until)
		}
	}
	return n, holds, stalls
}

// candidates gathers the oldest entries of each buffer, as many as there are free
// workers, and the first that waits after a failure, for the sake of its time.
func (f *Flusher) candidates(pressure bool, free int) (plan.Input, map[uint64]*entry) {
	in := plan.Input{
		Buffers: map[string]plan.Buffer{}, Stuck: f.stuck(), Pressure: pressure, Fair: f.mu.fair, Now: f.opts.Now(),
		Limits: f.opts.limits(free),
	}
	byID := map[uint64]*entry{}
	for name, q := range f.mu.queues {
		q.rest()
		policy := f.opts.Policy(name)
		b := plan.Buffer{
			Draining: q.draining > 0, Paused: q.paused, DirtyAge: policy.DirtyAge, InFlight: q.units(),
			Due: policy.Due, Dirty: q.stats.bytes, Store: policy.Store, User: policy.User,
			Small: policy.SmallUnits, Burst: q.arrivals.Burst(in.Now, in.Limits.Idle),
		}
		b.Pace, _ = q.stats.pace.At(in.Now, q.stats.failing)
		in.Buffers[name] = b
		q.retryDue(in.Now)
		if e, ok := q.waiting.Min(); ok {
			in.Items = append(in.Items, e.plan(q))
		}
		for _, ready := range q.ready {
			left := in.Limits.Free
			ready.Scan(func(e *entry) bool {
				in.Items = append(in.Items, e.plan(q))
				byID[e.id] = e
				left--
				return left > 0
			})
		}
	}
	return in, byID
}

// units counts the units of the attempts of a queue. mu is held.
func (q *queue) units() (n int) {
	for fl := range q.running {
		n += fl.units
	}
	return n
}

// stuck counts, by store, the units of the attempts of forgotten buffers. mu is held.
func (f *Flusher) stuck() map[string]int {
	stores := map[string]int{}
	for fl := range f.mu.running {
		if fl.store != "" && f.mu.queues[fl.q.buffer] != fl.q {
			stores[fl.store] += fl.units
		}
	}
	return stores
}

// retryDue makes entries ready that have waited long enough after a failure.
func (q *queue) retryDue(now time.Time) {
	for {
		e, ok := q.waiting.Min()
		if !ok || e.notBefore.After(now) {
			return
		}
		q.move(e, stateReady)
	}
}

// launch starts a flush. mu is held.
func (f *Flusher) launch(q *queue, e *entry) {
	q.move(e, stateFlying)
	limits, policy := f.opts.limits(0), f.opts.Policy(q.buffer)
	fl := &attempt{
		f: f, q: q, e: e, key: e.item.Key, size: e.item.Size, since: e.item.DirtySince, epoch: q.epoch, begun: f.opts.Now(),
		store: policy.Store, user: policy.User, ended: make(chan struct{}), units: limits.Units(e.item.Size, policy.SmallUnits),
	}
	fl.progress()
	fl.ctx, fl.cancel = context.WithCancelCause(q.ctx)
	e.attempt, e.outdated = fl, false
	q.running[fl] = struct{}{}
	f.mu.running[fl] = struct{}{}
	f.wg.Go(fl.run)
}
