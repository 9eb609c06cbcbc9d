package nodes

import (
	"context"
	"errors"
	"fmt"

	"forebay/bbd/owner"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	ScanAll(ctx context.Context, fn func(bb.Entry) error) error
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Replicas are the second copies of a buffer's files.
type Replicas interface {
	// PromoteOfDead makes the node with the second copy of a dead node's file its owner. False: there is no
	// copy that can be, or the file is another node's by now. After an error neither is certain.
	PromoteOfDead(ctx context.Context, e *bb.Entry) (promoted bool, err error)
}

// Writeback is the store of a buffer.
type Writeback interface {
	// AdoptStoreOps makes the changes of names this daemon's that a dead node has left to carry out on the store,
	// and carries them out.
	AdoptStoreOps(ctx context.Context, dead bb.NodeID) error
	// Unrecorded returns the store's content of a dirty file if that is all of it, or nil if it is not.
	Unrecorded(ctx context.Context, e *bb.Entry) (*bb.Flushed, error)
}

// BufferOptions are the parts of a buffer. Its functions may be called concurrently.
type BufferOptions struct {
	Name      string
	Owners    owner.Node
	Names     Names
	Replicas  Replicas
	Writeback Writeback
	Reachable func(bb.NodeID) bool           // whether a node answers
	Lost      func(e *bb.Entry, path string) // publishes a loss that the namespace has
	// Lock keeps others from renaming and removing the entry at a place, until unlock is called.
	Lock func(at ...bb.Place) (unlock func())
	// Requeue queues a symbolic link for its flush, which this node owns by now. Its place is locked.
	Requeue func(ctx context.Context, e *bb.Entry)
}

// Buffer takes dead nodes out of the entries of one buffer. Its methods may be called concurrently.
type Buffer struct{ o BufferOptions }

// NewBuffer returns the part that removes dead nodes from a buffer's entries.
func NewBuffer(o BufferOptions) *Buffer { return &Buffer{o} }

// loss adds the counts that forget would. A second copy counts as kept if its node answers. A file
// of which the dead node had yet to rename the flushed name counts as lost, although forget may
// find it. Nothing is renamed here.
func (b *Buffer) loss(ctx context.Context, node bb.NodeID, answer *wire.NodeForgotten) error {
	owned, err := b.ownedBy(ctx, node)
	for i := 0; i < len(owned) && err == nil; i++ {
		err = b.lossOf(ctx, &owned[i], answer)
	}
	return err
}

func (b *Buffer) lossOf(ctx context.Context, e *bb.Entry, answer *wire.NodeForgotten) error {
	replica := owner.Replica(e)
	copied := replica != "" && (replica == b.o.Owners.Self || b.o.Reachable(replica))
	var flushed *bb.Flushed
	if e.State() == bb.StateDirty && !copied && e.Type == bb.TypeFile {
		var err error
		if flushed, err = b.o.Writeback.Unrecorded(ctx, e); err != nil {
			return err
		}
	}
	if e.State() == bb.StateClean || copied || flushed != nil || e.Type == bb.TypeSymlink {
		answer.KeptTotal++
		return nil
	}
	path, err := b.pathOf(ctx, e)
	if bb.KindOf(err) == bb.NotFound {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	b.addLost(answer, e, path)
	return nil
}

// ownedBy returns the files that a node owns, except those that are lost already.
func (b *Buffer) ownedBy(ctx context.Context, node bb.NodeID) (owned []bb.Entry, err error) {
	err = b.o.Names.ScanAll(ctx, func(e bb.Entry) error {
		if !e.IsDir() && !e.Lost && b.o.Owners.Of(&e) == node {
			owned = append(owned, e)
		}
		return nil
	})
	return owned, err
}

// forget removes a dead node from the entries of a buffer. A file that is on the store or on a second node gets
// a new owner. One that was in the dead node's memory alone is lost. The changes of names that the node had yet
// to carry out on the store come first. Then its flushed objects have their names.
func (b *Buffer) forget(ctx context.Context, node bb.NodeID, answer *wire.NodeForgotten) error {
	if err := b.o.Writeback.AdoptStoreOps(ctx, node); err != nil {
		return err
	}
	for {
		owned, err := b.ownedBy(ctx, node)
		if err != nil || len(owned) == 0 { // none is left, also of those that were renamed during the last scan
			return err
		}
		for i := range owned {
			if err := b.reassign(ctx, &owned[i], node, answer); err != nil {
				return err
			}
		}
	}
}

// errNotConcerned ends an update of an entry that has changed.
var errNotConcerned = errors.New("the entry has changed")

// reassign makes another node the owner of one file of a dead node, or marks the file lost.
func (b *Buffer) reassign(ctx context.Context, e *bb.Entry, dead bb.NodeID, answer *wire.NodeForgotten) error {
	if e.Type == bb.TypeSymlink {
		return b.reassignLink(ctx, e, dead, answer)
	}
	if promoted, err := b.o.Replicas.PromoteOfDead(ctx, e); err != nil {
		return err
	} else if promoted {
		answer.KeptTotal++
		return nil
	}
	i := takeover{file: e.File, dead: dead, heir: b.o.Owners.Self}
	if e.State() == bb.StateDirty {
		var err error
		if i.flushed, err = b.o.Writeback.Unrecorded(ctx, e); err != nil {
			return err
		}
	}
	now, err := b.o.Names.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error { return i.apply(b.o.Owners, now) })
	switch {
	case errors.Is(err, errNotConcerned) || bb.KindOf(err) == bb.NotFound:
		return nil
	case err != nil:
		return err
	case !now.Lost:
		answer.KeptTotal++
		return nil
	}
	path, err := b.pathOf(ctx, &now)
	if err != nil {
		path = now.Name
	}
	b.o.Lost(&now, path)
	b.addLost(answer, &now, path)
	return nil
}

// reassignLink makes this daemon the owner of a dead node's symbolic link. If that node had not
// flushed it, this daemon does.
func (b *Buffer) reassignLink(ctx context.Context, e *bb.Entry, dead bb.NodeID, answer *wire.NodeForgotten) error {
	defer b.o.Lock(e.Place())()
	i := takeover{file: e.File, dead: dead, heir: b.o.Owners.Self}
	now, err := b.o.Names.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error { return i.apply(b.o.Owners, now) })
	if errors.Is(err, errNotConcerned) || bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	answer.KeptTotal++
	if now.State() == bb.StateDirty {
		b.o.Requeue(ctx, &now)
	}
	return nil
}

// takeover is a dead node's file without a second copy, whose next owner is the daemon with the
// request.
type takeover struct {
	file       bb.FileID
	dead, heir bb.NodeID
	flushed    *bb.Flushed // the store's content of a generation that was dirty; nil: not all of it
}

// apply makes the heir the owner of an entry, which becomes lost unless the store has all of the file. It is
// a function of its arguments alone.
//
//	the file now      on the store                 it becomes
//	another's, lost   any                          errNotConcerned
//	clean             yes                          clean
//	dirty             that generation, unrecorded  clean
//	dirty, open       not all of it                lost
//	a dirty link      any                          dirty: its entry is all of it
func (i *takeover) apply(owners owner.Node, now *bb.Entry) error {
	if now.File != i.file || now.Lost || owners.Of(now) != i.dead {
		return errNotConcerned
	}
	if i.flushed != nil && now.State() == bb.StateDirty && now.Generation == i.flushed.Generation {
		now.SetFlushed(*i.flushed)
	}
	if now.State() != bb.StateClean && now.Type == bb.TypeFile {
		now.Lost, now.Open = true, false
		now.Reason = fmt.Sprintf("its bytes were in the memory of node %s, which was declared dead before they were flushed", i.dead)
	}
	now.Holders = []bb.NodeID{i.heir}
	return nil
}

// pathOf returns the path of an entry now.
func (b *Buffer) pathOf(ctx context.Context, e *bb.Entry) (string, error) {
	dir, err := b.o.Names.PathOf(ctx, e.Parent)
	if err != nil {
		return "", err
	}
	return e.Place().In(dir), nil
}

func (b *Buffer) addLost(answer *wire.NodeForgotten, e *bb.Entry, path string) {
	answer.LostTotal++
	answer.LostBytes += e.Size
	if len(answer.Lost) < transfer.MaxNamed {
		m := wire.FromEntry(e)
		m.Path = bb.Address{Buffer: b.o.Name, Path: path}.String()
		answer.Lost = append(answer.Lost, m)
	}
}
