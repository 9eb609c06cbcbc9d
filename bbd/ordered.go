package bbd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// What renames and removals have to do on the store is carried out by the daemon that
// made them (namespace.StoreOp.By), or that has taken them over from one that was declared
// dead. Daemons do not tell each other; the namespace keeps them in order:
//
//   - a file is not flushed under a name that a pending operation of another daemon
//     concerns;
//   - an operation waits for those of other daemons that came before it and concern
//     the same names;
//   - right before each attempt at an operation its daemon looks whether it still is
//     its own, since one that was declared dead may be alive. Both may be in the middle
//     of it all the same, or one may have been stopped between looking and acting. Twice
//     is harmless: what is not there any more is not moved again. Late is not, if the
//     old name is in use again. A daemon that strikes an operation out and finds that it is
//     another's has been late: it has the store looked at again (recheck.go).

// carriesOut reports whether this daemon carries out what is noted as a node's.
func (b *buffer) carriesOut(by bb.NodeID) bool {
	return b.d.cluster == nil || by == "" || by == b.d.cfg.Node
}

// readNoted brings in what the namespace has noted for the store.
func (b *buffer) readNoted(ctx context.Context) error {
	return b.noted.read(ctx, func(op *namespace.StoreOp) bool { return b.carriesOut(op.By) })
}

// pathsOf returns the paths of which an operation changes what is in the store.
func pathsOf(op *namespace.StoreOp) []string {
	if op.NewPath == "" {
		return []string{op.OldPath}
	}
	return []string{op.OldPath, op.NewPath}
}

// othersPause is how long this daemon waits before it looks again whether another one
// has carried its operations out.
const othersPause = 200 * time.Millisecond

// applyLater is applyNoted after a while.
func (b *buffer) applyLater() {
	if !b.noted.applying.CompareAndSwap(false, true) {
		return // it is on its way already
	}
	b.d.wg.Go(func() {
		select {
		case <-time.After(othersPause):
		case <-b.d.ctx.Done():
			return
		}
		b.noted.applying.Store(false)
		if err := b.applyNoted(b.d.ctx); err != nil && b.d.ctx.Err() == nil {
			b.d.log.Warn("operations that the store has to follow", "buffer", b.name, "err", err)
			b.applyLater()
		}
	})
}

// noneElsewhere fails while another daemon has to carry out on the store what concerns
// a path: a flush of it now could be undone by that. So could it be by what this daemon has
// taken over a moment ago and not handed to its flusher yet, which keeps the order from then on.
func (b *buffer) noneElsewhere(ctx context.Context, path string) error {
	if b.d.cluster == nil {
		return nil
	}
	if err := b.readNoted(ctx); err != nil {
		return err
	}
	if op := b.noted.concerning(path); op != nil {
		return bb.E(bb.Busy, "flush", b.address(path), "node "+string(op.By)+" has yet to rename or remove what the store has there")
	}
	return nil
}

// settled holds the flushes of a path when no daemon has anything left to do on the store
// there, so that the store has under the path what was flushed of the file, or nothing.
// bb.Unavailable if a daemon that has does not answer, or if it takes too long.
func (b *buffer) settled(ctx context.Context, path string) (*flusher.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	for {
		held, err := b.d.flusher.Hold(ctx, b.name, path)
		if err != nil {
			return nil, err
		}
		if err = held.Quiet(ctx); err == nil {
			err = b.noneElsewhere(ctx, path)
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

// unrenamed returns the names under which the store may have a file still that the
// namespace has at a path: those from before renames that were not carried out there yet.
// Who of the daemons that have to is not reachable is named too.
func (b *buffer) unrenamed(ctx context.Context, path string) (names []string, away bb.NodeID, err error) {
	ops, err := b.ns.StoreOps(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, op := range slices.Backward(ops) {
		if op.NewPath == "" || !bb.Within(path, op.NewPath) {
			continue
		}
		path = op.OldPath + strings.TrimPrefix(path, op.NewPath)
		names = append(names, path)
		if !b.carriesOut(op.By) && !b.d.cluster.Serves(op.By) {
			away = op.By
		}
	}
	return names, away, nil
}

// inherit carries out what a dead node has left to do on the store, from now on and
// whatever becomes of this process: the namespace says that it is this node's.
func (b *buffer) inherit(ctx context.Context, dead bb.NodeID) error {
	if _, err := b.ns.TakeOverStoreOps(ctx, dead); err != nil {
		return err
	}
	return b.applyNoted(ctx)
}
