package replica

import (
	"context"
	"fmt"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/owner"
	"forebay/bbd/retry"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// PromoteAt makes the node with the second copy a file's owner.
func (b *Buffer) PromoteAt(ctx context.Context, node bb.NodeID, e *bb.Entry) error {
	if node == b.o.Owners.Self {
		return b.Promote(ctx, e, e.File, e.Generation)
	}
	return b.o.Cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_TAKE, &wire.Take{
		Buffer: b.name, Dir: uint64(e.Parent), Name: e.Name, File: uint64(e.File), Generation: uint64(e.Generation), Replica: true,
	}, nil)
}

// PromoteOfDead makes the second copy of a dead node's file the file. False: there is none that can be, or
// the file is another's by now. After an error neither is certain. The node with the copy answers,
// and may have all of it. One request that failed proves no loss, which could not be undone.
func (b *Buffer) PromoteOfDead(ctx context.Context, e *bb.Entry) (promoted bool, err error) {
	second, state := owner.Replica(e), e.State()
	if second == "" || state != bb.StateDirty && state != bb.StateOpen {
		return false, nil
	}
	failed := b.PromoteAt(ctx, second, e)
	if failed == nil {
		return true, nil
	}
	b.o.Log.Error("the second copy of a dead node's file was not promoted", "file", e.File, "node", second, "err", failed)
	m, ok := b.o.Cluster.Member(second)
	if answered(failed) == copyLost || second != b.o.Owners.Self && !(ok && cluster.Reachable(&m)) {
		return false, nil
	}
	now, err := b.names.LookupAgain(ctx, e.Parent, e.Name)
	if bb.KindOf(err) == bb.NotFound || err == nil && (now.File != e.File || b.o.Owners.Of(&now) != b.o.Owners.Of(e)) {
		return false, nil
	}
	return false, &bb.Error{
		Kind: bb.KindOf(failed), Op: "node forget", Path: b.address(e.Name), Node: second,
		Err:    fmt.Errorf("its second copy cannot take its place now: %w", failed),
		Remedy: fmt.Sprintf("try again; bytes that only %s has are lost if it is stopped before", second),
	}
}

// Promote makes this node, which has the second copy, the owner of a file. A file that was being
// written is closed with its committed content. It returns bb.Busy if the entry is not that of the
// copy, and bb.Lost if the copy lacks something.
func (b *Buffer) Promote(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error {
	if e.File != file || e.Generation != n || owner.Replica(e) != b.o.Owners.Self {
		return owner.Changed("promote", b.address(e.Name))
	}
	unlock, err := b.Lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	sum, size, err := b.o.Store.Checksum(file, n)
	switch {
	case err != nil:
		return err
	case !e.Open && (sum != e.Checksum || size != e.Size):
		return bb.E(bb.Lost, "promote", b.address(e.Name), fmt.Sprintf("the second copy has %d bytes of %d, or others", size, e.Size))
	}
	if err := b.o.Store.Seal(file, n); err != nil {
		return err
	}
	// A rename here between the change of the entry and the record of where the file waits for its flush would find it
	// in no list. Nothing waits for the place, since its holder may wait for the file's lock.
	release, free := b.files.Reserve(e.Place(), e.Name)
	if !free {
		return bb.E(bb.Busy, "promote", b.address(e.Name), "its place is being changed").WithRemedy("try again")
	}
	defer release()
	// Where the answer of the namespace is lost, too. If this node is the owner, the file has to wait here for its
	// flush.
	now, err := retry.Update(b.ctx, func(uncertain bool) (bb.Entry, error) {
		return b.names.Update(b.ctx, e.Parent, e.Name, func(now *bb.Entry) error {
			is := now.File == file && now.Generation == n && !now.Lost
			if is && uncertain && b.o.Owners.Of(now) == b.o.Owners.Self {
				return nil
			}
			if !is || owner.Replica(now) != b.o.Owners.Self {
				return errNotConcerned
			}
			if now.Open {
				now.MTime = time.Now() // its last commits may be in its records and not in its entry
			}
			now.Open, now.Size, now.Checksum = false, size, sum
			now.Holders = []bb.NodeID{b.o.Owners.Self}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if now.State() == bb.StateDirty {
		b.files.Requeue(ctx, &now)
	}
	return nil
}

// promotePause is how long this node waits before its next request to the second node.
const promotePause = 2 * time.Second

// PromoteLater makes the second node the owner of a file whose bytes this node has
// lost, as soon as that node answers. If it has lost them too, they are lost.
func (b *Buffer) PromoteLater(e *bb.Entry) {
	b.o.Go(func() {
		for {
			err := b.PromoteAt(b.ctx, owner.Replica(e), e)
			switch answered(err) {
			case promoted:
				return
			case copyLost:
				if err := b.files.ReportLost(b.ctx, e); err != nil && b.ctx.Err() == nil {
					b.o.Log.Error("the loss of a file was not recorded", "file", e.File, "err", err)
				}
				return
			case unclear:
				b.o.Log.Warn("the state of a second copy is not known", "file", e.File, "node", owner.Replica(e), "err", err)
			case away:
			}
			select {
			case <-time.After(promotePause):
			case <-b.ctx.Done():
				return
			}
			now, err := b.names.Lookup(b.ctx, e.Parent, e.Name)
			if err == nil && (now.File != e.File || b.o.Owners.Of(&now) != b.o.Owners.Self) || bb.KindOf(err) == bb.NotFound {
				return // it has another owner, or is gone
			}
		}
	})
}

// answer is the answer of the node with the second copy to a promotion.
type answer uint8

const (
	promoted answer = iota
	copyLost        // the copy is not there either
	away            // it does not answer, or cannot now
	unclear
)

// answered returns the meaning of an error of PromoteAt.
func answered(err error) answer {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Busy, bb.Cancelled:
		return away
	case bb.NotFound, bb.Lost, bb.Checksum, bb.Invalid:
		return copyLost
	}
	if err == nil {
		return promoted
	}
	return unclear
}
