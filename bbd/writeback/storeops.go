package writeback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"forebay/flusher"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// The store's part of renames and removals is carried out by the daemon that made them
// (namespace.StoreOp.By), or that has adopted them from one that was declared dead. Daemons do not
// notify each other. The namespace keeps them in order:
//
//   - a file is not flushed under a name that a pending operation of another daemon
//     concerns;
//   - an operation waits for those of other daemons that came before it and concern
//     the same names;
//   - right before each attempt at an operation its daemon checks whether it still is
//     its own, since one that was declared dead may be alive. Both may be in the middle
//     of it all the same, or one may have been stopped between check and change. Twice
//     is harmless: an object that is gone is not moved again. Late is not, if the
//     old name is in use again. A daemon that strikes an operation out and finds that it is
//     another's has been late: it has the store checked again (reconcile.go).

// carriesOut reports whether this daemon carries out the noted operations of a node.
func (b *Buffer) carriesOut(by bb.NodeID) bool {
	return b.o.Cluster == nil || by == "" || by == b.o.Owners.Self
}

// readPending brings in the operations that the namespace has noted for the store.
func (b *Buffer) readPending(ctx context.Context) error {
	return b.pending.read(ctx, func(op *namespace.StoreOp) bool { return b.carriesOut(op.By) })
}

// pathsOf returns the paths of which an operation changes the store's objects.
func pathsOf(op *namespace.StoreOp) []string {
	if op.NewPath == "" {
		return []string{op.OldPath}
	}
	return []string{op.OldPath, op.NewPath}
}

// othersPause is how long this daemon waits before it checks again whether another one
// has carried its operations out.
const othersPause = 200 * time.Millisecond

// replayLater is ReplayStoreOps after a while, again and again until it succeeds.
func (b *Buffer) replayLater() {
	if b.ctx.Err() != nil || !b.pending.replaying.CompareAndSwap(false, true) {
		return // it is on its way already
	}
	b.o.Go(func() {
		for pause := othersPause; ; pause = min(2*pause, reconcilePause[1]) {
			select {
			case <-time.After(pause):
			case <-b.ctx.Done():
				return
			}
			b.pending.replaying.Store(false) // this replay may miss operations that wait from now on
			if b.files.Destroyed(b.ctx) {
				return
			}
			err := b.replay(b.ctx)
			if err == nil || b.ctx.Err() != nil {
				return
			}
			b.o.Log.Warn("operations that the store has to follow", "buffer", b.name, "err", err)
			if !b.pending.replaying.CompareAndSwap(false, true) {
				return
			}
		}
	})
}

// noPendingElsewhere fails while another daemon has a store operation to carry out that concerns a
// path, since it could undo a flush of the path now. Two operations of this daemon could, too: one
// that it has adopted a moment ago and not submitted to its flusher yet, which keeps the order from
// then on, and one that it could not submit when it was noted. If a daemon is alone, it checks only
// the latter.
func (b *Buffer) noPendingElsewhere(ctx context.Context, path string) error {
	if b.o.Cluster == nil && !b.pending.behind() {
		return nil
	}
	if err := b.readPending(ctx); err != nil {
		return err
	}
	if op := b.pending.concerning(path); op != nil {
		return bb.E(bb.Busy, "flush", b.address(path), "node "+string(op.By)+" has a rename or removal pending on the store")
	}
	return nil
}

// quiesce holds the flushes of a path when no daemon has anything left to do on the store
// there, so that the store has the file's flushed content under the path, or nothing.
// bb.Unavailable if a daemon that has does not answer, or if it lasts too long.
func (b *Buffer) quiesce(ctx context.Context, path string) (*flusher.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	for {
		held, err := b.o.Flusher.Hold(ctx, b.name, path)
		if err != nil {
			return nil, err
		}
		if err = held.Quiet(ctx); err == nil {
			err = b.noPendingElsewhere(ctx, path)
		}
		if err == nil {
			return held, nil
		}
		held.Release()
		if bb.KindOf(err) != bb.Busy {
			return nil, err
		}
		select {
		case <-time.After(othersPause / 10):
		case <-ctx.Done():
			return nil, &bb.Error{Kind: bb.KindOf(ctx.Err()), Op: "store", Path: b.address(path), Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
		}
	}
}

// FormerNames returns the names under which the store may have a file still that the namespace has
// at a path. They are those from before renames that were not carried out there yet. Away is one of
// the daemons that have to and do not answer, or "" if all answer.
func (b *Buffer) FormerNames(ctx context.Context, path string) (names []string, away bb.NodeID, err error) {
	ops, err := b.names.StoreOps(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, op := range slices.Backward(ops) {
		if op.NewPath == "" || !bb.Within(path, op.NewPath) {
			continue
		}
		path = op.OldPath + strings.TrimPrefix(path, op.NewPath)
		names = append(names, path)
		if !b.carriesOut(op.By) && !b.o.Cluster.Serves(op.By) {
			away = op.By
		}
	}
	return names, away, nil
}

// AdoptStoreOps carries out the store operations that a dead node has left, from now on and even
// after this process's end. The namespace records them as this node's.
func (b *Buffer) AdoptStoreOps(ctx context.Context, dead bb.NodeID) error {
	if _, err := b.names.TakeOverStoreOps(ctx, dead); err != nil {
		b.replayLater() // some may be this node's now
		return err
	}
	return b.ReplayStoreOps(ctx)
}

// ReplayStoreOps submits to the flusher the renames and removals that the namespace has noted for the
// store, that were not submitted yet and that this daemon carries out, in their order. Unless they
// wait for another daemon's, those that were noted before it was called are submitted when it
// returns. After an error they are submitted later, and the paths that they concern are not flushed
// before.
func (b *Buffer) ReplayStoreOps(ctx context.Context) error {
	err := b.replay(ctx)
	if err != nil {
		b.replayLater()
	}
	return err
}

// replay is one attempt. A failure is noted before it returns, while the caller still holds the flushes of the
// operations' files (noPendingElsewhere).
func (b *Buffer) replay(ctx context.Context) error {
	_, err := b.pending.submits.Do(ctx, func(ctx context.Context) (struct{}, error) {
		// A caller may stop waiting for the run after this one. This run need not see the operation
		// of that caller, so it mends only the failures from before it began.
		failures := b.pending.failures.Load()
		err := b.submit(ctx)
		if err == nil {
			b.pending.mended.Store(failures)
		}
		return struct{}{}, err
	})
	if err != nil {
		b.pending.failures.Add(1)
	}
	return err
}

func (b *Buffer) submit(ctx context.Context) error {
	if err := b.readPending(ctx); err != nil {
		return err
	}
	next, others := b.pending.submittable()
	if others {
		b.replayLater()
	}
	codec := b.files.Spec().Codec
	for _, op := range next {
		done, err := b.KeepReplaced(ctx, op)
		if err != nil {
			return err
		}
		if !done {
			for _, o := range StoreOps(op, codec) {
				b.o.Flusher.Apply(b.name, o)
			}
		}
		b.pending.submitted(op)
	}
	return nil
}

// StoreOps returns the store's operations for a rename or removal, in a buffer that
// flushes with a codec. Only the last operation carries the id by which it is struck out.
func StoreOps(op *namespace.StoreOp, codec string) []storeop.Op {
	var ops []storeop.Op
	switch {
	case op.IsDir && op.Op == namespace.OpRemove:
		ops = []storeop.Op{{Kind: storeop.Remove, Old: op.OldPath, Tree: true}}
	case op.IsDir:
		ops = []storeop.Op{{Kind: storeop.Rename, Old: op.OldPath, New: op.NewPath, Tree: true}}
	case op.Flushed.Generation == 0:
		ops = unflushedOps(op, codec)
	case op.Op == namespace.OpRemove:
		ops = []storeop.Op{removal(op.OldPath, op.Flushed.Codec)}
	default:
		ops = []storeop.Op{{Kind: storeop.Rename, Old: op.OldPath, New: op.NewPath, Codec: op.Flushed.Codec}}
		// The rename replaces the store's object under the new name. If that object has another
		// name there, it is removed when the renamed file has its name.
		if op.Replaced.Generation != 0 && op.Replaced.Codec != op.Flushed.Codec {
			ops = append(ops, removal(op.NewPath, op.Replaced.Codec))
		}
	}
	for i := range ops {
		ops[i].ID, ops[i].More = op.Revision, i < len(ops)-1
		if op.IsDir {
			continue
		}
		ops[i].Was, ops[i].Attempts = []bb.Flushed{op.Flushed, op.Left}, op.Attempts
		ops[i].Replaces, ops[i].ReplacedAttempts = []bb.Flushed{op.Replaced}, op.ReplacedAttempts
		if ops[i].Old != op.OldPath { // a removal of the replaced object
			ops[i].Was, ops[i].Attempts = ops[i].Replaces, ops[i].ReplacedAttempts
		}
	}
	return ops
}

// unflushedOps is StoreOps of a file that the store does not have. The store may have the object that the
// file had replaced under the old name, and the rest of an attempt to flush it. The object that the file
// replaces under the new name stays until its flush.
func unflushedOps(op *namespace.StoreOp, codec string) []storeop.Op {
	if op.Op == namespace.OpRename && op.Replaced.Generation != 0 { // of an older release; see KeepReplaced
		return []storeop.Op{removal(op.NewPath, op.Replaced.Codec)}
	}
	ops := []storeop.Op{removal(op.OldPath, codec)}
	if op.Left.Generation != 0 && op.Left.Codec != codec {
		ops = append(ops, removal(op.OldPath, op.Left.Codec))
	}
	return ops
}

func removal(path, codec string) storeop.Op {
	return storeop.Op{Kind: storeop.Remove, Old: path, Codec: codec}
}

// KeepReplaced carries out a rename that an older release has noted, in which a file that was never
// flushed has replaced a flushed one. That release removed the old object then. Now it stays until
// the flush of the name's present file. False: the name has no file that would replace it.
func (b *Buffer) KeepReplaced(ctx context.Context, op *namespace.StoreOp) (done bool, err error) {
	if op.Op != namespace.OpRename || op.IsDir || op.Flushed.Generation != 0 || op.Replaced.Generation == 0 {
		return false, nil
	}
	e, err := b.names.Resolve(ctx, op.NewPath)
	if err == nil && !e.IsDir() {
		_, err = b.names.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
			if now.File != e.File || now.Flushed.Generation != 0 {
				return bb.E(bb.NotFound, "rename", op.NewPath, "another file has the name")
			}
			if now.Replaced().Generation == 0 {
				now.SetBefore(op.Replaced, now.Attempts())
			}
			return nil
		})
	}
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory || err == nil && e.IsDir():
		return false, nil
	case err != nil:
		return false, err
	}
	_, err = b.names.DoneStoreOp(ctx, op.Revision)
	return err == nil, err
}

// StoreFollows reports whether the store has to follow the rename or the removal of the file or directory at
// a path, as it does where it may have objects without an entry.
//
// The replaced file of a rename does not count. Once some content of a name is durable, some
// version of that name stays durable until the name's removal is requested. The store moves the
// renamed file over the old version, if it has the file. Otherwise the old version stays until the
// file's flush replaces it (bb.Entry.Replaced). In both cases that is one step of the store.
func StoreFollows(e *bb.Entry, path string) bool {
	if e.IsDir() {
		return !bb.Hidden(path) // the store has nothing of hidden files
	}
	// A flush whose end was not recorded may have put a content that was lost or superseded then.
	return e.Stored().Generation != 0 || e.Lost || len(e.Attempts()) > 0
}
