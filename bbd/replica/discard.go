package replica

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Drop drops bytes that do not count any more, by the request of the node asks. These are a
// generation of a file, or all of it (0). bb.Busy: the namespace relies on them.
func (b *Buffer) Drop(ctx context.Context, asks bb.NodeID, file bb.FileID, n bb.Generation) error {
	unlock, err := b.Lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.mayDrop(ctx, asks, file, n); err != nil {
		return err
	}
	if n == 0 {
		closed, _ := b.dirty.Of(file)
		b.files.DropFile(&bb.Entry{File: file, Generation: closed.Generation})
		return nil
	}
	b.dirty.Forget(file, n)
	b.o.Forget(flusher.Key{Buffer: b.name, File: file, Generation: n})
	b.o.Store.DropGeneration(file, n)
	return nil
}

// mayDrop refuses to drop bytes that count. The request may be late, or come from a node that was
// declared dead. This one is the file's owner by now. The namespace decides. Its server is queried,
// because a cache may be behind the request.
func (b *Buffer) mayDrop(ctx context.Context, asks bb.NodeID, file bb.FileID, n bb.Generation) error {
	id, ok := b.o.Store.IdentityOf(file)
	if !ok {
		return nil // a second copy that was never this node's own
	}
	e, err := b.names.LookupAgain(ctx, id.Dir, id.Name)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	x := discarded{file: file, generation: n, acked: id.Generation, node: b.o.Owners.Self, asks: asks}
	if err == nil && e.File == file {
		x.entry, x.owner, x.second = &e, b.o.Owners.Of(&e), owner.Replica(&e)
	}
	if !x.counts() {
		return nil
	}
	b.o.Log.Warn("the discard of needed bytes was refused", "path", b.address(id.Path), "file", file, "generation", n, "asked by", asks)
	return bb.E(bb.Busy, "discard", b.address(id.Path), "the namespace does not have these bytes anywhere else").
		WithRemedy("none is needed: this node keeps the file")
}

// discarded is the subject of a request to discard.
type discarded struct {
	file       bb.FileID
	generation bb.Generation // 0: all
	acked      bb.Generation // the generation that was acknowledged here
	entry      *bb.Entry     // nil: this node finds no entry of the file
	owner      bb.NodeID
	second     bb.NodeID
	node, asks bb.NodeID // this one, and the requesting one
}

// counts reports whether the bytes may be the only copy, or a copy that the namespace relies on.
// The owner of a file decides about its second copy. All of a file is discarded only after its
// removal. Without an entry, content that was acknowledged here is not dropped for less. The
// namespace may have forgotten it.
func (x *discarded) counts() bool {
	switch {
	case x.entry == nil:
		return x.generation != 0 && x.generation == x.acked
	case x.generation != 0 && x.generation < x.entry.Generation:
		return false // a newer one has taken its place
	}
	state := x.entry.State()
	if state != bb.StateDirty && state != bb.StateOpen {
		return false
	}
	return x.owner == x.node || x.second == x.node && x.asks != x.owner
}

// Discard notifies another node in the background that a generation (0: all) does not
// count any more. If the node does not receive it, its next start detects that. A node "" is none.
func (b *Buffer) Discard(node bb.NodeID, file bb.FileID, n bb.Generation) {
	if b.o.Cluster == nil || node == "" || node == b.o.Owners.Self {
		return
	}
	b.o.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
		defer cancel()
		_ = b.o.Cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_DISCARD,
			&wire.Discard{Buffer: b.name, File: uint64(file), Generation: uint64(n)}, nil)
	})
}

// DiscardReplaced notifies the owner of a file that a rename replaced, while the name is held. An entry nil is
// of none.
func (b *Buffer) DiscardReplaced(ctx context.Context, e *bb.Entry) {
	if e == nil || e.IsDir() || !b.o.Owners.OwnedElsewhere(e) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := b.o.Cluster.Ask(ctx, b.o.Owners.Of(e), access.Daemon(), wire.Type_TYPE_DISCARD, &wire.Discard{Buffer: b.name, File: uint64(e.File)}, nil)
	if err != nil {
		b.o.Log.Warn("the message to a file's owner that the file was replaced failed", "file", e.File, "node", b.o.Owners.Of(e), "err", err)
	}
}
