package bbd

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/bbd/transfer"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// In a buffer of durability "flushed" a close, a rename and the commit of a transaction are
// acknowledged when the store has what they have made visible:
//
//	close    of the last writer      the flush of the file
//	         of an earlier one       the close of the last one, and then the flush
//	         under a kept name       nothing: the rename waits
//	rename   to a name that is not   the flush of the file, or of all files of the
//	         kept                    directory, and the rename of what the store had
//	commit   of a transaction        the same for its destination

// flushedClose waits for what a close has to wait for. The close itself is done: an error
// says that the store may not have the file yet.
func (h *handle) flushedClose(ctx context.Context, f *openFile) error {
	b := f.buf
	if b.Spec().Durability != bb.DurabilityFlushed {
		return nil
	}
	f.mu.Lock()
	path, ended, own := f.path, f.ended, f.clients[h.s]
	f.mu.Unlock()
	if _, kept := plan.Kept(b.Spec().Keep, path); kept {
		return nil
	}
	if err := b.lastClose(ctx, path, ended, own); err != nil {
		return err
	}
	f.mu.Lock()
	e, at, removed := f.entry, f.at, f.removed
	f.mu.Unlock()
	if removed || e.Generation != f.generation {
		return nil // it was removed meanwhile, or nothing was written
	}
	return b.contentFlushed(ctx, e, at)
}

// closedFlushed is flushedClose for a generation that was closed, which a client whose
// connection broke does not know.
func (b *buffer) closedFlushed(ctx context.Context, e *bb.Entry, path string) error {
	if _, kept := plan.Kept(b.Spec().Keep, path); kept {
		return nil
	}
	return b.contentFlushed(ctx, *e, place{e.Parent, e.Name})
}

// lastClose waits until the generation is closed by its last writer. A client that has
// the file open itself cannot wait for that, and ranks that close in turn cannot for ever.
func (b *buffer) lastClose(ctx context.Context, path string, ended <-chan struct{}, own int) error {
	select {
	case <-ended:
		return nil
	default:
	}
	const why = "what was written is committed, and not on the store, since the file is still open for writing"
	if own > 0 {
		return bb.E(bb.Busy, "close", b.address(path), why+" by this client").WithRemedy("the last close of the file waits for the store: check that one")
	}
	patience := cmp.Or(b.Spec().DirtyAge, b.d.cfg.Flush.DirtyAge, defaultDirtyAge)
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return bb.Wrap("close", b.address(path), context.Cause(ctx))
	case <-time.After(patience):
		return bb.E(bb.Busy, "close", b.address(path), fmt.Sprintf("%s by others after %v", why, patience)).
			WithRemedy("have all writers close it at the same time; or raise the buffer's dirty age")
	}
}

// defaultDirtyAge is how long the flusher leaves a file dirty if nothing else is said.
const defaultDirtyAge = 5 * time.Minute

// contentFlushed waits until the store has a closed generation, or a newer one of the file.
func (b *buffer) contentFlushed(ctx context.Context, e bb.Entry, at place) error {
	for {
		if err := b.d.flusher.Wait(ctx, b.key(&e)); err != nil {
			return err
		}
		// What is not queued is on the store, or on its way to another node, or renamed.
		now, err := b.ns.Lookup(ctx, at.dir, at.name)
		switch {
		case bb.KindOf(err) == bb.NotFound || err == nil && now.File != e.File:
			return nil // renamed or removed, which waits for the store itself
		case err != nil:
			return err
		case now.Lost:
			return lost("close", b.address(at.name), &now)
		case now.State() != bb.StateDirty || now.Generation != e.Generation:
			return nil
		}
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return bb.Wrap("close", b.address(at.name), context.Cause(ctx))
		}
	}
}

// flushedBelow waits until the store has what lies at a path and below it, under these
// names, except what is kept back or still written. Of other buffers it waits for nothing.
func (b *buffer) flushedBelow(ctx context.Context, c access.Caller, op, path string) error {
	spec := b.Spec()
	if spec.Durability != bb.DurabilityFlushed || path == "" {
		return nil
	}
	if _, kept := plan.Kept(spec.Keep, path); kept {
		return nil
	}
	of := drained{b, path}
	for {
		failure := b.flushShares(ctx, c, path)
		left, err := of.rest(ctx)
		switch {
		case failure == nil && ctx.Err() != nil:
			failure = ctx.Err()
		case failure == nil || err != nil:
			failure = err
		}
		if err == nil && len(left.dirty) == 0 {
			if failure = of.carriedOut(ctx); failure == nil {
				return nil
			}
		}
		if failure != nil {
			return b.notFlushed(op, path, failure)
		}
		select { // files went from node to node, or were closed a moment ago
		case <-time.After(settling):
		case <-ctx.Done():
		}
	}
}

// notFlushed says that a change was made, which is not on the store.
func (b *buffer) notFlushed(op, path string, why error) error {
	return (&bb.Error{
		Kind: bb.KindOf(why), Op: op, Path: b.address(path), Err: fmt.Errorf("it is done, and not on the store yet: %w", why),
	}).WithRemedy("what is in the buffer is flushed when the store takes it: bbctl drain " + b.name)
}

// flushShares has each daemon flush what it is the home of at a path and below it, and
// returns why something of that was not saved.
func (b *buffer) flushShares(ctx context.Context, c access.Caller, path string) error {
	var nodes []bb.NodeID
	if b.d.cluster != nil {
		nodes = b.d.cluster.Others()
	}
	errs := make([]error, len(nodes)+1)
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() { errs[i] = b.flushShareAt(ctx, c, node, path) })
	}
	answer, err := b.drainHere(ctx, path, transfer.NewProgress(func(*wire.Progress) error { return nil }))
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

// flushShareAt has one other daemon flush.
func (b *buffer) flushShareAt(ctx context.Context, c access.Caller, node bb.NodeID, path string) error {
	s, err := b.d.cluster.Session(ctx, node, cluster.Who(c))
	if err != nil {
		return err
	}
	var last wire.Progress
	err = s.Stream(ctx, wire.Type_TYPE_DRAIN, &wire.Drain{Buffer: b.name, Local: true, Below: path}, nil, func(a peer.Answer) error {
		last.Reset()
		return a.Decode(&last)
	})
	if err != nil {
		return err
	}
	return firstFailure(&last)
}

// firstFailure is why a drain did not save a file; nil if it saved all that were closed.
func firstFailure(p *wire.Progress) error {
	if p == nil || len(p.Failed) == 0 {
		return nil
	}
	f := p.Failed[0]
	return bb.E(bb.Kind(f.Kind), "flush", f.Path, f.Reason)
}
