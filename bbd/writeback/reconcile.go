package writeback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
)

// A daemon that was declared dead may be alive, but cut off or stopped for a while. The namespace
// refuses its later changes there. The store does not refuse them. Neither a rename over a file nor
// the PUT of an object has the condition "only if I am its owner still", so that a flush that it
// began before may end at any time later, and put older bytes in the place of newer ones. A check
// before a write cannot prevent that, only make it rare. Before a flush begins, before a flush that
// took long renames its object into place, and before each attempt at a rename or removal, the
// daemon checks in the namespace whether it is its own to do.
//
// So the store is made to agree afterwards, by the two daemons concerned:
//
//	the late daemon                         owner of the name's present file
//	 has written, requests its record
//	 in the namespace, and is refused
//	 no entry has the name: removes its
//	 object, and looks again
//	 an entry has it: Recheck ─────────────▶ holds the flushes of the name
//	  (again and again until                 does the store's content match the entry?
//	  it is answered)                        yes: nothing to do
//	                                         no: the file is dirty again, and is flushed
//	                 done ◀─────────────────
//
// Every write of the late daemon comes before its request, and the owner flushes after it. So the
// last writer is the owner, and the bytes are its own, checked as with every flush. That is true
// however late the write was, and after any renames and removals meanwhile. It needs the late
// daemon to run and send the request, or to be started again while it still holds the file's bytes
// (ReconcileStale). And it needs the owner to have the bytes. Content that was evicted, and
// replaced on the store after that, is gone, and is reported lost.

// uncertain has the names under which the store has to be looked at.
type uncertain struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	waiting map[Uncertain]bool // true; the object that was left under the name has been removed
	running bool               // a goroutine works them off
}

// Uncertain is a name under which the store may have something else than the namespace.
type Uncertain struct {
	Path string
	Tree bool // and all below it, of all daemons
}

// reconcilePause are the shortest and the longest wait between two failed attempts.
var reconcilePause = [2]time.Duration{200 * time.Millisecond, 30 * time.Second}

// reconcile makes the store's object under a path agree with the namespace. If the name waits already, an object that
// was left there counts as removed only if it does for both calls. The later one may repeat an attempt that failed,
// and that began before another object was left there.
func (b *Buffer) reconcile(what Uncertain, removed bool) {
	r := &b.uncertain
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[Uncertain]bool)
	}
	if was, ok := r.waiting[what]; ok {
		removed = removed && was
	}
	r.waiting[what] = removed
	if !r.running && b.ctx.Err() == nil {
		r.running = true
		b.o.Go(b.reconcileAll)
	}
}

// Changed checks whether the store's object under a path agrees with the namespace, after the object was changed
// late. A file of this or another node is flushed again, or is reported lost if its bytes are nowhere else. An
// object without an entry is left as it is.
func (b *Buffer) Changed(path string) { b.reconcile(Uncertain{Path: path}, true) }

// reconcileOp is reconcile of all that an operation which came late may have changed.
func (b *Buffer) reconcileOp(op *storeop.Op) {
	for _, path := range []string{op.Old, op.New} {
		if path != "" {
			b.reconcile(Uncertain{path, op.Tree}, false)
		}
	}
}

// reconcileAll works the names off until there are none.
func (b *Buffer) reconcileAll() {
	r := &b.uncertain
	for pause := reconcilePause[0]; ; {
		r.mu.Lock()
		todo := make(map[Uncertain]bool, len(r.waiting))
		for what, removed := range r.waiting {
			todo[what] = removed
			delete(r.waiting, what)
		}
		if r.running = len(todo) > 0 && b.ctx.Err() == nil; !r.running {
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		failed := false
		for what, removed := range todo {
			if err := b.reconcileNow(b.ctx, what, removed); err != nil && b.ctx.Err() == nil {
				b.o.Log.Warn("the check of a file on the store failed", "buffer", b.name, "path", what.Path, "err", err)
				b.reconcile(what, removed)
				failed = true
			}
		}
		if pause = min(2*pause, reconcilePause[1]); !failed {
			pause = reconcilePause[0]
			continue
		}
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
		}
	}
}

// reconcileTimeout bounds one request to a daemon.
const reconcileTimeout = 30 * time.Second

// reconcileNow makes one attempt. The error is Busy if the file that has the name is moving to
// another node.
func (b *Buffer) reconcileNow(ctx context.Context, what Uncertain, removed bool) error {
	if what.Tree {
		return b.reconcileTree(ctx, what)
	}
	if b.files.Destroyed(ctx) {
		return nil
	}
	if err := b.quiet(ctx, what.Path); err != nil {
		return err // this node's own work there comes first
	}
	e, err := b.names.Resolve(ctx, what.Path)
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory:
		if !removed {
			b.o.Flusher.RemoveOrphan(b.name, what.Path)
		}
		return nil
	case err != nil:
		return err
	case e.IsDir() || nodeLocal(&e) || e.Lost:
		return nil
	}
	node := b.o.Owners.Self
	if b.o.Owners.OwnedElsewhere(&e) { // a daemon that is alone owns entries that name another node too
		node = b.o.Owners.Of(&e)
	}
	return b.reconcileAt(ctx, node, what)
}

// reconcileTree is reconcileNow of a tree. First the nodes that answer check their own files, then those that
// are away and own something below the path. When such a node comes back, it compares only its dirty files with
// the store by itself. A node that owns nothing there may be gone for good.
func (b *Buffer) reconcileTree(ctx context.Context, what Uncertain) error {
	nodes := append(b.o.Cluster.Others(), b.o.Owners.Self)
	for _, node := range nodes {
		if err := b.reconcileAt(ctx, node, what); err != nil {
			return err
		}
	}
	away, err := b.ownersBelow(ctx, what.Path, nodes)
	for i := 0; i < len(away) && err == nil; i++ {
		err = b.reconcileAt(ctx, away[i], what)
	}
	return err
}

// ownersBelow returns the owners of the files at a path or below it, but for some nodes.
func (b *Buffer) ownersBelow(ctx context.Context, path string, but []bb.NodeID) (owners []bb.NodeID, err error) {
	err = b.names.ScanAll(ctx, func(e bb.Entry) error {
		node := b.o.Owners.Of(&e)
		if e.IsDir() || nodeLocal(&e) || e.Lost || slices.Contains(but, node) || slices.Contains(owners, node) {
			return nil
		}
		at, err := b.pathAt(ctx, e.Place())
		if err == nil && bb.Within(at, path) {
			owners = append(owners, node)
		}
		return ignoreNotFound(err)
	})
	return owners, err
}

// quiet waits until this node has nothing left to do on the store at a path.
func (b *Buffer) quiet(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	held, err := b.o.Flusher.Hold(ctx, b.name, path)
	if err != nil {
		return err
	}
	defer held.Release()
	return held.Quiet(ctx)
}

// reconcileAt makes a daemon check its own files.
func (b *Buffer) reconcileAt(ctx context.Context, node bb.NodeID, what Uncertain) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if node == b.o.Owners.Self {
		return b.ReconcileHere(ctx, what)
	}
	err := b.o.Cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_RECHECK, &wire.Recheck{Buffer: b.name, Path: what.Path, Tree: what.Tree}, nil)
	if bb.KindOf(err) == bb.Unsupported {
		b.o.Log.Error("a daemon of an older version cannot check that its file is on the store", "node", node, "path", b.address(what.Path))
		return nil
	}
	return err
}

// ReconcileHere compares the store with those clean files at a path, or below it, whose
// owner this node is.
func (b *Buffer) ReconcileHere(ctx context.Context, what Uncertain) error {
	if b.files.Spec().Backing == "" {
		return nil
	}
	held, err := b.quiesce(ctx, what.Path)
	if err != nil {
		return err
	}
	defer held.Release()
	if !what.Tree {
		e, err := b.names.Resolve(ctx, what.Path)
		if err != nil || e.IsDir() || nodeLocal(&e) {
			return err
		}
		if b.o.Owners.OwnedElsewhere(&e) {
			return owner.Changed("reconcile", b.address(what.Path))
		}
		return b.reconcileFile(ctx, &e, what.Path)
	}
	return b.names.ScanAll(ctx, func(e bb.Entry) error {
		if e.IsDir() || nodeLocal(&e) || b.o.Owners.OwnedElsewhere(&e) {
			return nil
		}
		path, err := b.pathAt(ctx, e.Place())
		if err != nil || !bb.Within(path, what.Path) {
			return nil
		}
		return b.reconcileFile(ctx, &e, path)
	})
}

// reconcileFile compares the store with one file of this node. The flushes of its path are
// held. A file that is not clean is flushed anyway, or is lost.
func (b *Buffer) reconcileFile(ctx context.Context, e *bb.Entry, path string) error {
	switch e.State() {
	case bb.StateClean:
	case bb.StateDirty:
		b.EnqueueFound(ctx, e)
		return nil
	default:
		return nil
	}
	s, err := b.o.Open(ctx, b.name)
	if err != nil {
		return err
	}
	o, err := s.Stat(ctx, path+codec.Suffix(e.Flushed.Codec))
	if err == nil && o.Size == e.Flushed.Size && o.ETag == e.Flushed.ETag {
		return nil
	}
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	evicted, err := b.makeDirty(e)
	if evicted {
		return b.reconcileEvicted(ctx, e, path, &o)
	}
	if err == nil {
		b.o.Log.Warn("the store lacks a file that was flushed to it: the file is flushed again", "path", b.address(path), "file", e.File, "generation", e.Generation)
	}
	return err
}

// makeDirty makes a clean file dirty, for another flush. The error is Evicted if not all of it is
// in memory. Its place is locked from before the change of its entry until it is queued. A rename
// in between would find it among no dirty files, and it would wait under its old name, where no
// flush finds it. The daemon's context is used. Once the file is dirty, it has to be queued, though
// the requesting daemon may be gone.
func (b *Buffer) makeDirty(e *bb.Entry) (evicted bool, err error) {
	defer b.files.Lock(e.Place())()
	now, err := b.names.Lookup(b.ctx, e.Parent, e.Name)
	if err == nil {
		err = b.asCompared(&now, e) // else a rename was followed before
	}
	if err != nil {
		return false, err
	}
	// Memory comes first, so that nothing of it is evicted from now on. A link is in its entry.
	if e.Type != bb.TypeSymlink && b.o.Store.MarkDirty(e.File, e.Generation) != nil {
		return true, nil
	}
	now, err = b.updateFlushed(b.ctx, e, func(now *bb.Entry) {
		now.Flushed.Generation-- // not this one, but something is there
	})
	if err != nil {
		return false, b.madeDirty(e, err)
	}
	b.enqueueLooked(b.ctx, &now, b.addFound(&now))
	return false, nil
}

// madeDirty ends an attempt whose change of the entry has failed, or has lost its answer. Memory,
// which is dirty already, then follows the present state of the namespace. Its place is locked.
func (b *Buffer) madeDirty(e *bb.Entry, failed error) error {
	now, err := b.names.Lookup(b.ctx, e.Parent, e.Name)
	switch {
	case err != nil && bb.KindOf(err) != bb.NotFound:
		b.enqueueLooked(b.ctx, e, b.addFound(e)) // the flusher retries until it is answered, and marks a clean file clean
	case err != nil || now.File != e.File:
	case due(b.o.Owners, &now, e.Generation) == flushIt:
		b.enqueueLooked(b.ctx, &now, b.addFound(&now))
		return nil
	case due(b.o.Owners, &now, e.Generation) == isStored && e.Type != bb.TypeSymlink:
		failed = errors.Join(failed, b.o.Store.MarkClean(e.File, e.Generation))
	}
	return failed
}

// EnqueueFound queues a dirty file that was looked up a while ago and may be in no queue. Its present state
// counts. It is added to the dirty files first. A rename in progress moves it along, or a removal removes it.
func (b *Buffer) EnqueueFound(ctx context.Context, e *bb.Entry) {
	added := b.addFound(e)
	defer b.files.Lock(e.Place())()
	b.enqueueLooked(ctx, e, added)
}

// addFound adds a file to the dirty ones, and reports whether it was not among them. One that was may have been renamed
// since its entry was looked up, and keeps its place.
func (b *Buffer) addFound(e *bb.Entry) (added bool) {
	if f, waits := b.dirty.Of(e.File); waits && f.Generation >= e.Generation {
		return false
	}
	b.addDirty(e)
	return true
}

// enqueueLooked queues one of the dirty files, if it still is one by its entry. Its place is locked. It was added
// before its entry is looked up here. If it moves to another node, either the lookup finds that, or the move removes
// it again. Else the flusher would drop the second copy that may be here.
func (b *Buffer) enqueueLooked(ctx context.Context, e *bb.Entry, added bool) {
	now, err := b.names.Lookup(ctx, e.Parent, e.Name)
	due := err != nil || due(b.o.Owners, &now, e.Generation) == flushIt
	if missing(&now, err, e.File) {
		at, waits := b.dirtyAt(e.File)
		due = waits && at != e.Place() // it was renamed
	}
	switch {
	case due:
		b.o.Flusher.Enqueue(flusher.Item{Key: b.key(e), Size: e.Size})
	case added:
		b.dirty.Forget(e.File, e.Generation)
	}
}

// updateFlushed changes an entry if it is as it was compared with the store.
func (b *Buffer) updateFlushed(ctx context.Context, e *bb.Entry, change func(*bb.Entry)) (bb.Entry, error) {
	return b.names.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if err := b.asCompared(now, e); err != nil {
			return err
		}
		change(now)
		return nil
	})
}

// asCompared returns an error if an entry is not as it was compared with the store.
func (b *Buffer) asCompared(now, e *bb.Entry) error {
	if now.File != e.File || now.Generation != e.Generation || now.State() != bb.StateClean || b.o.Owners.OwnedElsewhere(now) || now.Flushed.ETag != e.Flushed.ETag {
		return owner.Changed("reconcile", b.address(e.Name))
	}
	return nil
}

// reconcileEvicted is reconcileFile of a file that is not all in memory. Only the store's object is
// there. It may have the right bytes all the same.
func (b *Buffer) reconcileEvicted(ctx context.Context, e *bb.Entry, path string, o *backing.Object) error {
	sum, size, err := b.objectSum(ctx, e, path)
	switch kind := bb.KindOf(err); {
	case err == nil && sum == e.Checksum && size == e.Size:
		_, err := b.updateFlushed(ctx, e, func(now *bb.Entry) { now.Flushed.ETag, now.Flushed.Size = o.ETag, o.Size })
		return err
	case err != nil && kind != bb.NotFound && kind != bb.Checksum:
		return err
	}
	what := "was replaced by another writer, or by a node that had been declared dead"
	if bb.KindOf(err) == bb.NotFound {
		what = "is not there under its name"
	}
	e.Reason = fmt.Sprintf("its object on the store %s, after node %s had evicted it", what, b.o.Owners.Self)
	return b.files.ReportLost(ctx, e)
}

// ReconcileStale checks the store under the names of files that this node has in memory, dirty,
// while another node has a newer generation. If this node died after it was declared dead, it may
// have been flushing them. Old are the generations that memory has.
func (b *Buffer) ReconcileStale(ctx context.Context, files []bb.Entry, old map[bb.FileID]bb.Generation) {
	for i := range files {
		e := &files[i]
		if n, ok := old[e.File]; !ok || n >= e.Generation || b.files.Spec().Backing == "" {
			continue
		}
		if path, err := b.pathAt(ctx, e.Place()); err == nil {
			b.reconcile(Uncertain{Path: path}, false)
		}
	}
}
