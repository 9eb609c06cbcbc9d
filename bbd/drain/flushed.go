package drain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"forebay/bbd/access"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Flushed waits, in a buffer of durability "flushed", until the store has the files at a path and below it,
// under these names, except those kept back or still written. In other buffers it waits for nothing.
func (s *Service) Flushed(ctx context.Context, b Buffer, as access.Caller, op, path string) error {
	spec := b.Spec()
	if spec.Durability != bb.DurabilityFlushed || path == "" {
		return nil
	}
	if _, excluded := plan.Excluded(spec.NoFlush, path); excluded {
		return nil
	}
	c := s.scope(b, path)
	for {
		failure := c.flushShares(ctx, as)
		left, err := c.rest(ctx)
		switch {
		case failure == nil && ctx.Err() != nil:
			failure = ctx.Err()
		case failure == nil || err != nil:
			failure = err
		}
		if err == nil && len(left.dirty) == 0 {
			if failure = c.carriedOut(ctx); failure == nil {
				return nil
			}
		}
		if failure != nil {
			return c.notFlushed(op, failure)
		}
		select { // files went from node to node, or were closed a moment ago
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
}

// notFlushed is the error of a change that was made, and is not on the store.
func (c scope) notFlushed(op string, why error) error {
	return (&bb.Error{
		Kind: bb.KindOf(why), Op: op, Path: c.address(c.below), Err: fmt.Errorf("the change was made, but is not on the store yet: %w", why),
	}).WithRemedy("the buffer's files are flushed when the store accepts them: bbctl drain " + c.name)
}

// flushShares has each daemon flush its own files there, and returns why one of them was not saved.
func (c scope) flushShares(ctx context.Context, as access.Caller) error {
	var nodes []bb.NodeID
	if c.s.o.Cluster != nil {
		nodes = c.s.o.Cluster.Others()
	}
	errs := make([]error, len(nodes)+1)
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			var last *wire.Progress
			errs[i] = c.s.ask(ctx, as, node, &wire.Drain{Buffer: c.name, Local: true, Below: c.below}, func(now *wire.Progress) { last = now })
			if errs[i] == nil {
				errs[i] = firstFailure(last)
			}
		})
	}
	answer, err := c.flush(ctx, silent())
	if errs[len(nodes)] = err; err == nil {
		errs[len(nodes)] = firstFailure(answer)
	}
	group.Wait()
	for _, err := range errs {
		if err != nil && bb.KindOf(err) != bb.NotFound {
			return err
		}
	}
	return nil
}
