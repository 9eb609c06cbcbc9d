// Package rounds lets callers with the same request share one run of it. It must never depend on
// the request or the callers.
package rounds

import (
	"context"
	"sync"
)

// Group runs functions for its callers, one run at a time. A run that serves a caller began after
// the call, unlike one of singleflight. So it covers all earlier events. Calls that come while a
// run is under way share the next one. The zero value is ready. Do is safe for concurrent use.
type Group[T any] struct {
	mu   sync.Mutex
	next *round[T]     // has not begun; a call that comes now shares it
	slot chan struct{} // held by the round that runs
}

// round is one run and the calls that share it.
type round[T any] struct {
	done    chan struct{}
	value   T
	err     error
	skipped bool // its leader's context ended; the others begin another
}

// Do returns the result of a run that began after Do was called. It is of this call's function,
// with this call's context, or of another call's. A run that failed after the context of its
// leading call had ended counts for no other. One of them leads another. If the call's own context
// ends before that, its cause is returned.
func (g *Group[T]) Do(ctx context.Context, run func(context.Context) (T, error)) (T, error) {
	for {
		r, leads := g.join()
		if leads {
			g.lead(ctx, r, run)
			return r.value, r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
		if !r.skipped {
			return r.value, r.err
		}
	}
}

// join returns the next round, and whether the caller leads it.
func (g *Group[T]) join() (r *round[T], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slot == nil {
		g.slot = make(chan struct{}, 1)
	}
	if g.next != nil {
		return g.next, false
	}
	g.next = &round[T]{done: make(chan struct{})}
	return g.next, true
}

// lead runs a round when the one before it is done.
func (g *Group[T]) lead(ctx context.Context, r *round[T], run func(context.Context) (T, error)) {
	defer close(r.done)
	select {
	case g.slot <- struct{}{}:
		defer func() { <-g.slot }()
		g.begin()
		r.value, r.err = run(ctx)
		r.skipped = r.err != nil && ctx.Err() != nil
	case <-ctx.Done():
		g.begin()
		r.err, r.skipped = context.Cause(ctx), true
	}
}

// begin closes the next round to calls that come from now on.
func (g *Group[T]) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = nil
}
