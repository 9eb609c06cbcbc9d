package migrate

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// timeout bounds the move of one file, since its new owner may be full by then.
const timeout = time.Minute

// moveTo moves a closed file of this node to another one.
func (b *Buffer) moveTo(ctx context.Context, e *bb.Entry, to bb.NodeID) error {
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		return err
	}
	resume, err := b.p.Files.Hold(ctx, path)
	if err != nil {
		return err
	}
	defer resume()
	if err := b.p.Readers.SaveReaders(ctx, e.File, 0); err != nil {
		return err
	}
	// It is not written, renamed or removed meanwhile.
	release, free := b.p.Open.Reserve(e.Place(), path)
	if !free {
		return bb.E(bb.Busy, "move", b.address(path), "the file is open for writing, or is being changed")
	}
	defer release()
	err = b.o.Cluster.Ask(ctx, to, access.Daemon(), wire.Type_TYPE_TAKE, &wire.Take{
		Buffer: b.name, Dir: uint64(e.Parent), Name: e.Name, File: uint64(e.File), Generation: uint64(e.Generation),
	}, nil)
	if err != nil {
		// The answer may have got lost after the other node became the owner.
		now, lookupErr := b.p.Names.Lookup(b.ctx, e.Parent, e.Name)
		if lookupErr != nil || now.File != e.File || now.Generation != e.Generation || !b.o.Owners.OwnedElsewhere(&now) {
			return err
		}
	}
	// If the file is not this node's any more, its new owner may make its second copy here, which
	// is recorded under the same generation.
	unlock, err := b.p.Replicas.Lock(b.ctx, e.File)
	if err != nil {
		return err
	}
	defer unlock()
	b.p.Dirty.Forget(e.File, e.Generation)
	b.o.Forget(flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation})
	b.o.Store.DropGeneration(e.File, e.Generation)
	b.o.Alloc.Wake()
	return nil
}

// moveToOne moves a file to the first of some nodes that accepts it.
func (b *Buffer) moveToOne(ctx context.Context, e *bb.Entry, nodes []bb.NodeID) error {
	var err error = bb.E(bb.Unavailable, "move", b.address(e.Name), "no other node has room for it").WithRemedy("see bbctl nodes")
	for _, to := range nodes {
		arrived := b.o.Cluster.Sending(to, e.Size)
		err = b.moveTo(ctx, e, to)
		arrived(err)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
