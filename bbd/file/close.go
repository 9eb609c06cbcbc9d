package file

import (
	"context"
	"time"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Close commits extents and takes one writer away. The last one closes the generation. A close that fails may be
// repeated.
func (f *File) Close(ctx context.Context, c Commit) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("close"); err != nil {
		return 0, err // the handle stays open until it is aborted
	}
	extents := c.extents(f.visibleSize())
	if f.state.records(len(extents)) {
		if err := f.recordOnce(ctx, c.ID, extents); err != nil {
			return 0, err
		}
		f.entry.MTime = c.MTime
	}
	f.state.closed = true
	next := f.state.closing()
	if next == stepFinish {
		if err := f.finish(ctx, f.state.writers-1); err != nil {
			return 0, err
		}
		f.state.writers--
		return f.entry.Size, nil
	}
	if next == stepPublish {
		if err := f.publishSynced(ctx); err != nil {
			return 0, err
		}
	}
	f.state.writers--
	return f.size(), nil
}

// Abandon removes a writer that has not closed the file. Its commits stay. The rest was never part of the file.
func (f *File) Abandon(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
	if f.state.abandoned() {
		f.finishForNobody(ctx)
	}
}

// Pauses of finishLater.
const (
	finishPause    = time.Second
	maxFinishPause = time.Minute
)

// finishForNobody finishes a file that has no writer as a receiver of its failure. It is retried
// until it succeeds, the file has a writer again, or the daemon ends. f is locked.
func (f *File) finishForNobody(ctx context.Context) {
	err := f.finish(ctx, f.state.writers)
	if err == nil || f.finishing || f.state.phase.closed() || f.in.ctx.Err() != nil {
		return
	}
	f.in.o.Log.Warn("a file without writers was not closed; the close is retried", "buffer", f.in.name, "path", f.path, "err", err)
	f.finishing = true
	f.in.o.Go(f.finishLater)
}

// finishLater owns the retries of finishForNobody.
func (f *File) finishLater() {
	for pause := finishPause; ; pause = min(2*pause, maxFinishPause) {
		select {
		case <-time.After(pause):
		case <-f.in.ctx.Done():
			return
		}
		if f.finishAgain(f.in.ctx) {
			return
		}
	}
}

// finishAgain reports whether nothing is left to do.
func (f *File) finishAgain(ctx context.Context) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.abandoned() {
		err := f.finish(ctx, f.state.writers)
		if err != nil && !f.state.phase.closed() {
			f.in.o.Log.Debug("a file without writers was not closed", "buffer", f.in.name, "path", f.path, "err", err)
			return false
		}
	}
	f.finishing = false
	return true
}

// finish closes the generation. It takes one put, after which the file is immutable. Writers counts
// those that still have it open.
func (f *File) finish(ctx context.Context, writers int) error {
	switch f.state.finishing(f.published.Load()) {
	case stepNothing:
		return nil
	case stepVoid:
		f.removeFromOpen() // nothing was written; a present file stays as it was
		return nil
	}
	if err := f.record(ctx, nil); err != nil { // an exclusive create that nothing was written to
		return err
	}
	sum, size, err := f.checksum(ctx)
	if err != nil {
		return bb.Wrap("close", f.path, err)
	}
	e := f.entry
	e.Open, e.Generation, e.Checksum, e.Size, e.Lost, e.Reason = false, f.generation, sum, size, false, ""
	e.Closed = bb.Closing{}
	if f.state.whole(writers) && len(f.in.p.Spec().Flush) > 0 {
		e.Closed.Generation = f.generation
	}
	stored := f.stored()
	if stored != nil {
		e.SetFlushed(*stored)
	}
	f.addXattrs(&e)
	if err := f.put(ctx, e); err != nil {
		return f.superseded(err)
	}
	if stored == nil {
		f.identify()
	}
	f.published.Store(true)
	if err := f.in.o.Store.Seal(f.file, f.generation); err != nil {
		return bb.Wrap("close", f.path, err)
	}
	if f.old != 0 {
		f.dropOld()
	}
	if stored != nil {
		f.in.p.Queue.Changed(f.path)
		f.removeFromOpen()
		return f.in.o.Store.MarkClean(f.file, f.generation)
	}
	// It is queued before it leaves the open files, so that a drain finds it in one of the two at every moment.
	f.in.p.Queue.Closed(&f.entry, f.path, f.near, f.second)
	f.removeFromOpen()
	return nil
}

// dropOld drops the generation that this one has taken the place of, here and where the file was before.
func (f *File) dropOld() {
	f.in.o.Store.DropGeneration(f.file, f.old)
	f.in.p.Replicas.Discard(f.was, f.file, f.old)
	f.in.p.Replicas.Discard(f.wasReplica, f.file, f.old)
}

// checksum returns that of the whole generation and its size. Where evicted bytes were partly
// overwritten, it needs the rest of them. They are read from the store's copy of the generation
// that this one builds on.
func (f *File) checksum(ctx context.Context) (sum uint64, size int64, err error) {
	s := f.in.o.Store
	sum, size, err = s.Checksum(f.file, f.generation)
	if bb.KindOf(err) != bb.Unavailable {
		return sum, size, err
	}
	e := f.entry
	e.Parent, e.Name = f.at.Dir, f.at.Name
	if err := f.in.p.Cache.SumEvicted(ctx, &e, f.file, f.generation); err != nil {
		return 0, 0, err
	}
	return s.Checksum(f.file, f.generation)
}

// AwaitReconnect removes a writer that may come back, as recovery does. If it does not in time, the file is
// closed with its committed content.
func (f *File) AwaitReconnect() {
	f.mu.Lock()
	f.leave()
	waits := f.state.abandoned()
	f.state.reconnects = f.state.reconnects || waits
	f.mu.Unlock()
	if waits {
		f.expireLater()
	}
}

// Stage records extents without showing them to readers before the close. It is for
// content that comes piece by piece from a store.
func (f *File) Stage(ctx context.Context, extents []store.NewExtent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("stage-in"); err != nil {
		return err
	}
	return f.record(ctx, extents)
}

// StagedSize is how much has been staged.
func (f *File) StagedSize() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size()
}

// SetFlushed records that the store has the content already. The file is clean when it is closed.
func (f *File) SetFlushed(flushed bb.Flushed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	flushed.Generation = f.generation
	f.staging().flushed = &flushed
}

// AddXattrs adds extended attributes to those of the file when it is closed.
func (f *File) AddXattrs(xattrs xattr.List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staging().xattrs = xattrs
}

func (f *File) staging() *staged {
	if f.staged == nil {
		f.staged = new(staged)
	}
	return f.staged
}

// stored returns the store's content of this generation, or nil if it has nothing.
func (f *File) stored() *bb.Flushed {
	if f.staged == nil {
		return nil
	}
	return f.staged.flushed
}

// addXattrs adds the extended attributes that came with the generation to those of an entry. A store that has the
// generation has them, and no others.
func (f *File) addXattrs(e *bb.Entry) {
	if f.staged == nil {
		return
	}
	stored := f.staged.flushed != nil
	there := xattr.List(e.Xattrs)
	if stored {
		there = there.Marked(nil)
	}
	e.Xattrs = string(there.With(f.staged.xattrs.Marked(func(xattr.Attr) bool { return stored })))
}

// Cancel abandons a generation that was staged and not published.
func (f *File) Cancel(ctx context.Context) {
	f.mu.Lock()
	unpublished := f.state.cancels(f.published.Load())
	if unpublished {
		if err := f.in.o.Store.Void(f.file, f.generation); err != nil {
			f.in.o.Log.Warn("a generation was not voided", "path", f.path, "err", err)
		}
		f.state.writers = 0
		f.removeFromOpen()
	}
	f.mu.Unlock()
	if !unpublished {
		f.Abandon(ctx)
	}
}
