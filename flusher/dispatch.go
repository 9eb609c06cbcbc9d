package flusher

import (
	"context"
	"time"

	"forebay/flusher/plan"
)

// dispatch gives free workers what the plan picks, until Close.
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
	}
}

// next starts flushes and returns when to look again.
func (f *Flusher) next() (wake time.Time) {
	pressure := f.opts.Pressure()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed || f.mu.paused || f.mu.flying >= f.opts.Workers {
		return time.Time{} // a landing kicks, and so does Resume
	}
	in, byID := f.candidates(pressure)
	picks, fair, wake := plan.Next(in)
	f.mu.fair = fair
	for _, p := range picks {
		f.launch(f.mu.queues[p.Buffer], byID[p.ID])
	}
	return wake
}

// candidates gathers the oldest entries of each buffer, as many as there are free
// workers, and the first that waits after a failure, for the sake of its time.
func (f *Flusher) candidates(pressure bool) (plan.Input, map[uint64]*entry) {
	in := plan.Input{
		Buffers: map[string]plan.Buffer{}, Pressure: pressure, Fair: f.mu.fair, Now: f.opts.Now(),
		Limits: plan.Limits{
			Free: f.opts.Workers - f.mu.flying, PerBuffer: f.opts.PerBuffer, DirtyAge: f.opts.DirtyAge, Idle: max(0, f.opts.Idle),
		},
	}
	byID := map[uint64]*entry{}
	for name, q := range f.mu.queues {
		q.rest()
		policy := f.opts.Policy(name)
		b := plan.Buffer{
			Draining: q.draining > 0, Paused: q.paused, DirtyAge: policy.DirtyAge, InFlight: len(q.flying),
			Due: policy.Due, Dirty: q.stats.bytes,
		}
		b.Pace, _ = q.stats.pace.at(in.Now, q.stats.failing > 0)
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

// retryDue makes ready what has waited long enough after a failure.
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
	fl := &flight{f: f, q: q, e: e, key: e.item.Key, size: e.item.Size, since: e.item.DirtySince, epoch: q.epoch, begun: f.opts.Now(), ended: make(chan struct{})}
	fl.ctx, fl.cancel = context.WithCancelCause(q.ctx)
	e.flight = fl
	q.flying[fl] = struct{}{}
	f.mu.flying++
	f.wg.Go(fl.run)
}
