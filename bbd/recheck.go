package bbd

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/lockrank"
	"forebay/bbd/rpc"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
)

// A daemon that was declared dead may be alive: cut off, or stopped for a while. What it
// then does in the namespace is refused there. What it does on the store is not: neither
// a rename over a file nor the PUT of an object can be told "only if I am its home
// still", so that a flush that it began before may end at any time later, and put older
// bytes in the place of newer ones. No look before a write can prevent that, only make
// it rare: before a flush begins, before a flush that took long gives its object the
// name, and before each attempt at a rename or removal, the daemon looks into the
// namespace whether it is its own to do.
//
// So the store is made to agree afterwards, by the two who know:
//
//	who was late                            home of what has the name now
//	 has written, asks the namespace to
//	 record it, and is refused
//	 no entry has the name: removes what
//	 it wrote, and looks again
//	 an entry has it: Recheck ─────────────▶ holds the flushes of the name
//	  (again and again until                 what the store has is what the entry says?
//	  it is answered)                        yes: nothing to do
//	                                         no: the file is dirty again, and is flushed
//	                 done ◀─────────────────
//
// Every write of the late one comes before its request, and the home flushes after it;
// so the last who writes is the home, and the bytes are its own, checked as with every
// flush. That is true however late the write was, and whatever was renamed or removed
// meanwhile. It takes that the late one lives to ask, or is started again while it still
// holds the file's bytes (recoverStrays). And it takes that the home has the bytes: what
// was evicted, and replaced on the store after that, is gone, and is reported lost.

// rechecks are names under which the store has to be looked at.
type rechecks struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	waiting map[doubt]bool // true: what was left under the name has been removed
	running bool           // somebody works them off
}

// doubt is one of them.
type doubt struct {
	path string
	tree bool // and all below it, at all daemons
}

// recheckPause are the shortest and the longest wait between two looks that fail.
var recheckPause = [2]time.Duration{200 * time.Millisecond, 30 * time.Second}

// recheck sees to it that the store has under a path what the namespace says.
func (b *buffer) recheck(what doubt, removed bool) {
	r := &b.rechecks
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[doubt]bool)
	}
	r.waiting[what] = removed
	if !r.running && b.d.ctx.Err() == nil {
		r.running = true
		b.d.wg.Go(b.recheckAll)
	}
}

// recheckOp is recheck of all that an operation which came late may have changed.
func (b *buffer) recheckOp(op *flusher.StoreOp) {
	for _, path := range []string{op.Old, op.New} {
		if path != "" {
			b.recheck(doubt{path, op.Tree}, false)
		}
	}
}

// recheckAll works the names off until there are none.
func (b *buffer) recheckAll() {
	r := &b.rechecks
	for pause := recheckPause[0]; ; {
		r.mu.Lock()
		todo := make(map[doubt]bool, len(r.waiting))
		for what, removed := range r.waiting {
			todo[what] = removed
			delete(r.waiting, what)
		}
		if r.running = len(todo) > 0 && b.d.ctx.Err() == nil; !r.running {
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		failed := false
		for what, removed := range todo {
			if err := b.recheckNow(b.d.ctx, what, removed); err != nil && b.d.ctx.Err() == nil {
				b.d.log.Warn("looking whether the store has what it should", "buffer", b.name, "path", what.path, "err", err)
				b.recheck(what, removed)
				failed = true
			}
		}
		if pause = min(2*pause, recheckPause[1]); !failed {
			pause = recheckPause[0]
			continue
		}
		select {
		case <-time.After(pause):
		case <-b.d.ctx.Done():
		}
	}
}

// recheckTimeout bounds what one daemon is asked.
const recheckTimeout = 30 * time.Second

// recheckNow is one attempt. Busy: what has the name is on its way elsewhere.
func (b *buffer) recheckNow(ctx context.Context, what doubt, removed bool) error {
	if what.tree {
		for _, node := range append(b.d.cluster.Others(), b.d.cfg.Node) {
			if err := b.recheckAt(ctx, node, what); err != nil {
				return err
			}
		}
		return nil
	}
	if now, err := b.d.buffer(ctx, b.name); now != b && (err == nil || bb.KindOf(err) == bb.NotFound) {
		return nil // the buffer was destroyed
	}
	if err := b.quiet(ctx, what.path); err != nil {
		return err // what this node does there itself comes first
	}
	e, err := b.ns.Resolve(ctx, what.path)
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory:
		if !removed {
			b.d.flusher.RemoveStray(b.name, what.path)
		}
		return nil
	case err != nil:
		return err
	case e.IsDir() || e.Lost:
		return nil
	}
	return b.recheckAt(ctx, b.home(&e), what)
}

// quiet waits until this node has nothing left to do on the store at a path.
func (b *buffer) quiet(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	held, err := b.d.flusher.Hold(ctx, b.name, path)
	if err != nil {
		return err
	}
	defer held.Release()
	return held.Quiet(ctx)
}

// recheckAt has a daemon look at what is its own.
func (b *buffer) recheckAt(ctx context.Context, node bb.NodeID, what doubt) error {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	if node == b.d.cfg.Node {
		return b.recheckHere(ctx, what)
	}
	err := b.d.cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_RECHECK, &wire.Recheck{Buffer: b.name, Path: what.path, Tree: what.tree}, nil)
	if bb.KindOf(err) == bb.Unsupported {
		b.d.log.Error("a daemon of an older version cannot look whether its file is on the store", "node", node, "path", b.address(what.path))
		return nil
	}
	return err
}

// recheckFiles answers another daemon.
func (d *Daemon) recheckFiles(ctx context.Context, r *rpc.Request, m *wire.Recheck) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "recheck", m.Buffer)
	if err == nil {
		_, err = bb.CleanPath(m.Path)
	}
	if err == nil {
		err = b.recheckHere(ctx, doubt{m.Path, m.Tree})
	}
	return &wire.Empty{}, err
}

// recheckHere compares the store with those clean files at a path, or below it, whose
// home this node is.
func (b *buffer) recheckHere(ctx context.Context, what doubt) error {
	if b.Spec().Backing == "" {
		return nil
	}
	held, err := b.settled(ctx, what.path)
	if err != nil {
		return err
	}
	defer held.Release()
	if !what.tree {
		e, err := b.ns.Resolve(ctx, what.path)
		if err != nil || e.IsDir() {
			return err
		}
		if b.foreign(&e) {
			return errMoved("recheck", b.address(what.path))
		}
		return b.recheckFile(ctx, &e, what.path)
	}
	return b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.IsDir() || b.foreign(&e) {
			return nil
		}
		path, err := b.pathAt(ctx, place{e.Parent, e.Name})
		if err != nil || !bb.Within(path, what.path) {
			return nil
		}
		return b.recheckFile(ctx, &e, path)
	})
}

// recheckFile compares the store with one file of this node. The flushes of its path are
// held. What is not clean is flushed anyway, or is lost.
func (b *buffer) recheckFile(ctx context.Context, e *bb.Entry, path string) error {
	if e.State() != bb.StateClean {
		return nil
	}
	s, err := b.d.stores.Get(ctx, b.name)
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
	// In memory it is held first: from now on nothing of it is evicted.
	if err := b.d.store.MarkDirty(e.File, e.Generation); err != nil {
		return b.recheckEvicted(ctx, e, path, &o)
	}
	now, err := b.updateFlushed(ctx, e, func(now *bb.Entry) {
		now.Flushed.Generation-- // not this one, but something is there
	})
	if err != nil {
		return err // asked again; it is clean until then
	}
	b.d.log.Warn("the store does not have what was flushed to it: flushing it again", "path", b.address(path), "file", e.File, "generation", e.Generation)
	b.enqueue(now, flusher.Item{Key: b.key(&now), Size: now.Size})
	return nil
}

// updateFlushed changes an entry if it is as it was compared with the store.
func (b *buffer) updateFlushed(ctx context.Context, e *bb.Entry, change func(*bb.Entry)) (bb.Entry, error) {
	now, err := b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if now.File != e.File || now.Generation != e.Generation || now.State() != bb.StateClean || b.foreign(now) || now.Flushed.ETag != e.Flushed.ETag {
			return errMoved("recheck", b.address(e.Name))
		}
		change(now)
		return nil
	})
	return now, err
}

// recheckEvicted is recheckFile of a file that is not all in memory: the store's object
// is what there is. It may have the right bytes all the same.
func (b *buffer) recheckEvicted(ctx context.Context, e *bb.Entry, path string, o *backing.Object) error {
	sum, size, err := b.objectSum(ctx, e, path)
	switch kind := bb.KindOf(err); {
	case err == nil && sum == e.Checksum && size == e.Size:
		_, err := b.updateFlushed(ctx, e, func(now *bb.Entry) { now.Flushed.ETag, now.Flushed.Size = o.ETag, o.Size })
		return err
	case err != nil && kind != bb.NotFound && kind != bb.Checksum:
		return err
	}
	e.Reason = fmt.Sprintf("what the store had of it was replaced by a node that had been declared dead, after memory of node %s had let go of it", b.d.cfg.Node)
	return b.reportLost(ctx, e)
}

// objectSum returns checksum and size of what the store has of a file, decompressed.
func (b *buffer) objectSum(ctx context.Context, e *bb.Entry, path string) (sum uint64, size int64, err error) {
	from, err := b.d.flusher.Read(ctx, b.name, path, e.Flushed.Codec, 0)
	if err != nil {
		return 0, 0, err
	}
	defer from.Close()
	var all summed
	size, err = io.Copy(&all, from)
	return uint64(all), size, err
}

// summed is the checksum of what is written to it.
type summed uint64

func (s *summed) Write(p []byte) (int, error) {
	*s = summed(checksum.Update(uint64(*s), p))
	return len(p), nil
}

// recoverStrays has the store looked at under the names of files that this node has in
// memory, dirty, while another one has a newer generation: it may have been flushing
// them when it died, after it was declared dead. Old are the generations that memory has.
func (b *buffer) recoverStrays(ctx context.Context, files []bb.Entry, old map[bb.FileID]bb.Generation) {
	for i := range files {
		e := &files[i]
		if n, ok := old[e.File]; !ok || n >= e.Generation || b.Spec().Backing == "" {
			continue
		}
		if path, err := b.pathAt(ctx, place{e.Parent, e.Name}); err == nil {
			b.recheck(doubt{path: path}, false)
		}
	}
}

// dirtyGenerations returns the newest generation of each file that memory has something
// of which is not known to be on the store.
func (d *Daemon) dirtyGenerations() map[bb.FileID]bb.Generation {
	newest := make(map[bb.FileID]bb.Generation)
	for f := range d.store.Files() {
		for _, g := range f.Generations {
			if g.Dirty > 0 {
				newest[f.File] = max(newest[f.File], g.Generation)
			}
		}
	}
	return newest
}

// stray decides about an object that this daemon may have left under a path: false, if
// what has the name now is somebody's. It is looked at again in any case, since what has
// the name may change between the answer and the removal.
func (d *Daemon) stray(ctx context.Context, name, path string) (remove bool, err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return false, err
	}
	e, err := b.ns.Resolve(ctx, path)
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory:
		remove = true
	case err != nil:
		return false, err
	default:
		// This node's, and the name was never durable: the object cannot be of any use, and
		// the flush waits for the removal.
		remove = !b.foreign(&e) && !e.IsDir() && !e.Lost && e.Stored().Generation == 0
	}
	b.recheck(doubt{path: path}, remove)
	return remove, nil
}

// mine reports whether an operation is still this node's to carry out.
func (d *Daemon) mine(ctx context.Context, name string, op flusher.StoreOp) (bool, error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return false, err
	}
	return b.ns.StoreOpPending(ctx, op.ID)
}
