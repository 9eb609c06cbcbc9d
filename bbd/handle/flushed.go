package handle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"forebay/bbd/file"
	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// pollEvery is how long a wait for a state in the namespace lasts before it is looked up again.
const pollEvery = 20 * time.Millisecond

// In a buffer of durability "flushed" a close, a rename and the commit of a transaction are
// acknowledged when the store has the content that they have made visible:
//
//	close    of the last writer      the flush of the file
//	         of an earlier one       the close of the last one, and then the flush
//	         under a kept name       nothing: the rename waits
//	rename   to a name that is not   the flush of the file, or of all files of the
//	         kept                    directory, and the rename of the store's objects
//	commit   of a transaction        the same for its destination

// flushedClose waits for the flushes that a close has to wait for. The close itself is done. After
// an error the store may not have the file yet.
func (h *handle) flushedClose(ctx context.Context, f *file.File) error {
	b := h.buf
	if b.p.Spec().Durability != bb.DurabilityFlushed {
		return nil
	}
	path, ended, own := f.Ending(h.s)
	if _, excluded := plan.Excluded(b.p.Spec().NoFlush, path); excluded {
		return nil
	}
	if err := b.lastClose(ctx, path, ended, own); err != nil {
		return err
	}
	e, at, ok := f.Closed()
	if !ok {
		return nil // it was removed meanwhile, or nothing was written
	}
	return b.contentFlushed(ctx, e, at)
}

// closedFlushed is flushedClose for a generation that was closed, of which a client whose
// connection broke has no answer.
func (b *Buffer) closedFlushed(ctx context.Context, e *bb.Entry, path string) error {
	if _, excluded := plan.Excluded(b.p.Spec().NoFlush, path); excluded {
		return nil
	}
	return b.contentFlushed(ctx, *e, e.Place())
}

// lastClose waits until the generation is closed by its last writer. A client that has
// the file open itself cannot wait for that, and ranks that close in turn cannot for ever.
func (b *Buffer) lastClose(ctx context.Context, path string, ended <-chan struct{}, own int) error {
	select {
	case <-ended:
		return nil
	default:
	}
	const why = "the bytes are committed, but not on the store, since the file is still open for writing"
	if own > 0 {
		return bb.E(bb.Busy, "close", b.address(path), why+" by this client").WithRemedy("the last close of the file waits for the store: check that one")
	}
	patience := cmp.Or(b.p.Spec().DirtyAge, b.p.DirtyAge, defaultDirtyAge)
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

// defaultDirtyAge is how long the flusher leaves a file dirty where neither the buffer nor the daemon sets an age.
const defaultDirtyAge = 5 * time.Minute

// contentFlushed waits until the store has a closed generation, or a newer one of the file.
func (b *Buffer) contentFlushed(ctx context.Context, e bb.Entry, at bb.Place) error {
	for {
		if err := b.p.Flushed(ctx, &e); err != nil {
			return err
		}
		// A file that is not queued is on the store, or on its way to another node, or renamed.
		now, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
		switch {
		case bb.KindOf(err) == bb.NotFound || err == nil && now.File != e.File:
			return nil // renamed or removed, which waits for the store itself
		case err != nil:
			return err
		case now.Lost:
			return bb.E(bb.Lost, "close", b.address(at.Name), now.LostReason())
		case now.State() != bb.StateDirty || now.Generation != e.Generation:
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return bb.Wrap("close", b.address(at.Name), context.Cause(ctx))
		}
	}
}
