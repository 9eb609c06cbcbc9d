package bbd

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/rpc"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// daemonsBuffer is buffer for requests that only daemons may make.
func (d *Daemon) daemonsBuffer(ctx context.Context, r *rpc.Request, op, name string) (*buffer, error) {
	if !r.Caller().Relayed || !r.Caller().System {
		return nil, access.Denied(op, bb.Address{Buffer: name}.String(), "ask what daemons ask of each other")
	}
	return d.buffer(ctx, name)
}

// discard forgets bytes that do not count any more, unless the namespace says that they do.
func (d *Daemon) discard(ctx context.Context, r *rpc.Request, m *wire.Discard) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "discard", m.Buffer)
	if err != nil {
		return nil, err
	}
	file := bb.FileID(m.File)
	unlock, err := b.lockCopies(ctx, file)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := d.mayDiscard(ctx, r, b, file, bb.Generation(m.Generation)); err != nil {
		return nil, err
	}
	if m.Generation == 0 {
		dirty, _ := b.dirty.Of(file)
		b.dropFile(&bb.Entry{File: file, Generation: dirty.Generation})
		return &wire.Empty{}, nil
	}
	n := bb.Generation(m.Generation)
	b.dirty.Forget(file, n)
	b.d.flusher.Forget(flusher.Key{Buffer: b.name, File: file, Generation: n})
	b.d.store.DropGeneration(file, n)
	return &wire.Empty{}, nil
}

// mayDiscard refuses to drop bytes that count. The request may be late, or come from a node
// that was declared dead: this one is the file's home by now. The namespace has the last
// word, and its server is asked, because a cache may be behind the request.
func (d *Daemon) mayDiscard(ctx context.Context, r *rpc.Request, b *buffer, file bb.FileID, n bb.Generation) error {
	id, ok := b.d.store.IdentityOf(file)
	if !ok {
		return nil // a second copy that was never this node's own
	}
	e, err := b.ns.LookupAgain(ctx, id.Dir, id.Name)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	x := discarded{file: file, generation: n, acked: id.Generation, node: b.d.cfg.Node, asks: r.Session().Peer()}
	if err == nil && e.File == file {
		x.entry, x.home, x.second = &e, b.owners.Of(&e), owner.Replica(&e)
	}
	if !x.counts() {
		return nil
	}
	b.d.log.Warn("refused to discard bytes that count", "path", b.address(id.Path), "file", file, "generation", n, "asked by", r.Session().Peer())
	return bb.E(bb.Busy, "discard", b.address(id.Path), "the namespace does not have these bytes anywhere else").
		WithRemedy("none is needed: this node keeps the file")
}

// discarded is what a request to discard is about.
type discarded struct {
	file       bb.FileID
	generation bb.Generation // 0: all
	acked      bb.Generation // the generation that was acknowledged here
	entry      *bb.Entry     // nil: the file has none where this node knows it
	home       bb.NodeID
	second     bb.NodeID
	node, asks bb.NodeID // this one, and the one that asks
}

// counts reports whether the bytes may be the only copy, or a copy that the namespace
// relies on. The home of a file decides about its second copy. All of a file is discarded
// only after its removal. Without an entry, what was acknowledged here is not dropped for
// less: the namespace may have forgotten it.
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
	return x.home == x.node || x.second == x.node && x.asks != x.home
}

// dropOld forgets the generation that a newer one of this node has taken the place of,
// here and where the file was before.
func (b *buffer) dropOld(file bb.FileID, n bb.Generation, was ...bb.NodeID) {
	b.d.store.DropGeneration(file, n)
	for _, node := range was {
		b.discardAt(node, file, n)
	}
}

// discardAt tells another node in the background that a generation (0: all) does not
// count any more. If it does not hear, it finds out when it is started again.
func (b *buffer) discardAt(node bb.NodeID, file bb.FileID, n bb.Generation) {
	if b.d.cluster == nil || node == "" || node == b.d.cfg.Node {
		return
	}
	b.d.wg.Go(func() {
		ctx, cancel := context.WithTimeout(b.d.ctx, 10*time.Second)
		defer cancel()
		_ = b.d.cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_DISCARD,
			&wire.Discard{Buffer: b.name, File: uint64(file), Generation: uint64(n)}, nil)
	})
}

// discardReplaced tells the home of a file that a rename replaced, while it is held.
func (b *buffer) discardReplaced(ctx context.Context, e *bb.Entry) {
	if e == nil || e.IsDir() || !b.owners.Foreign(e) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := b.d.cluster.Ask(ctx, b.owners.Of(e), access.Daemon(), wire.Type_TYPE_DISCARD, &wire.Discard{Buffer: b.name, File: uint64(e.File)}, nil)
	if err != nil {
		b.d.log.Warn("telling a file's home that it was replaced", "file", e.File, "node", b.owners.Of(e), "err", err)
	}
}
