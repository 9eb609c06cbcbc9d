package bbd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// Where a buffer wants two copies, each commit is recorded at a second node too before
// it is acknowledged: the second of the entry's Holders.
//
//	home                                        second node
//	 record here
//	 write the bytes into leased segments ────▶ memory
//	 Replicate(extents) ──────────────────────▶ record under the same generation
//	 acknowledge ◀───────────────────────────── done
//
// The first commit of a generation, and the first after the second node was changed,
// sends all that the generation shows. The second copy goes when the file is flushed. One
// that is lost is made again (seconds.go). When the home is gone for good, the second node becomes the home, with what it has.

// replica is the second copy of a generation that is being written.
type replica struct {
	cluster.Incarnation
	behind bool // it lacks something: all is sent again
}

// replicaTries is how many nodes are tried before a commit fails.
const replicaTries = 3

// replicate brings the second copy up to date with a commit. f is locked.
func (f *openFile) replicate(ctx context.Context, extents []store.NewExtent) error {
	b := f.buf
	if b.Spec().Replicas < 2 || b.d.cluster == nil {
		return nil
	}
	var err error
	if r := f.replica; r != nil && !b.d.cluster.Remains(r.Incarnation) {
		r.behind = true // were it asked, it would have this commit and nothing before
	}
	if r := f.replica; r != nil && !r.behind {
		if err = f.sendExtents(ctx, r.Node, extents); err == nil {
			return nil
		}
		r.behind = true
		b.d.log.Warn("the second copy of a file", "path", f.path, "node", r.Node, "err", err)
	}
	tried := 0
	nodes := secondsFor(b.d.cluster, b.sizeOf(f), f.near)
	if r := f.replica; r != nil { // it may have most of it still
		nodes = append([]bb.NodeID{r.Node}, slices.DeleteFunc(nodes, func(n bb.NodeID) bool { return n == r.Node })...)
	}
	for _, node := range nodes {
		if ctx.Err() != nil || tried == replicaTries {
			break
		}
		tried++
		h := b.d.cluster.Incarnation(node)
		if err = f.sendWhole(ctx, node); err == nil {
			f.secondAt(h)
			return nil
		}
		b.d.log.Warn("a second copy of a file", "path", f.path, "node", node, "err", err)
	}
	if err == nil {
		err = fmt.Errorf("no other node has room")
	}
	return &bb.Error{
		Kind: bb.Unavailable, Op: "commit", Path: f.path, Err: fmt.Errorf("the second copy that the buffer wants cannot be made: %w", err),
		Remedy: "see bbctl nodes",
	}
}

func (b *buffer) sizeOf(f *openFile) int64 {
	n, err := b.d.store.Size(f.file, f.generation)
	if err != nil {
		return 0
	}
	return n
}

// secondAt makes a node the one with the second copy. The next put tells the namespace.
func (f *openFile) secondAt(h cluster.Incarnation) {
	if old := f.replica; old != nil && old.Node != h.Node {
		f.buf.discardAt(old.Node, f.file, f.generation)
	}
	if f.replica == nil || f.replica.Node != h.Node {
		f.published.Store(false)
	}
	f.replica = &replica{Incarnation: h}
	f.second.Store(&h)
	f.entry.Holders = []bb.NodeID{f.buf.d.cfg.Node, h.Node}
}

// sendExtents sends what a commit adds.
func (f *openFile) sendExtents(ctx context.Context, node bb.NodeID, extents []store.NewExtent) error {
	list := make([]*wire.NewExtent, len(extents))
	bytes := make([][]byte, len(extents))
	for i, e := range extents {
		var err error
		if bytes[i], err = f.buf.d.store.LeasedBytes(e.Lease, e.SegmentOffset, e.Length); err != nil {
			return err
		}
		list[i] = &wire.NewExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum}
	}
	return f.buf.sendReplica(ctx, node, f.file, f.generation, false, list, bytes)
}

// sendWhole sends all that the generation shows.
func (f *openFile) sendWhole(ctx context.Context, node bb.NodeID) error {
	e := f.entry
	e.Parent, e.Name, e.File, e.Generation = f.at.Dir, f.at.Name, f.file, f.generation
	return f.buf.sendWhole(ctx, &e, node)
}

// sendReplica puts bytes into another node's memory and has them recorded there.
func (b *buffer) sendReplica(ctx context.Context, node bb.NodeID, file bb.FileID, n bb.Generation, whole bool, extents []*wire.NewExtent, bytes [][]byte) (err error) {
	spec := b.Spec()
	s, err := b.d.cluster.Session(ctx, node, peer.Who{UID: spec.UID, GID: spec.GID, System: true})
	if err != nil {
		return err
	}
	m := &wire.Replicate{Buffer: b.name, File: uint64(file), Generation: uint64(n), Whole: whole, Extents: extents}
	var (
		total  int64
		inline []byte
	)
	for _, p := range bytes {
		total += int64(len(p))
	}
	arrived := b.d.cluster.Sending(node, total)
	defer func() { arrived(err) }()
	if total <= b.d.cfg.Limits.Inline && len(extents) <= replicaExtents {
		if inline, err = mapped.Gather(nil, b.address(""), bytes...); err != nil {
			return err
		}
	} else {
		placed, err := b.forward.Stage(ctx, s, bb.TierMemory, extents, bytes)
		if err != nil {
			return err
		}
		defer placed.Done()
		m.Extents = placed.Extents
	}
	messages, err := b.inParts(m, slices.Contains(s.Welcome().Capabilities, wire.CapabilityParts), b.d.nextID())
	for i := 0; err == nil && i < len(messages); i++ {
		_, err = s.Ask(ctx, wire.Type_TYPE_REPLICATE, messages[i], inline, nil)
	}
	return err
}

// replicate records extents of a file whose home is the daemon that asks.
func (d *Daemon) replicate(ctx context.Context, r *rpc.Request, m *wire.Replicate) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "replicate", m.Buffer)
	if err != nil {
		return nil, err
	}
	h := &handle{d: d, s: r.Session(), buf: b, path: b.address("")}
	extents, written, err := h.newExtents(ctx, r.Data(), m.Extents)
	if err != nil {
		return nil, err
	}
	defer written()
	file, n := bb.FileID(m.File), bb.Generation(m.Generation)
	if m.Parts != 0 {
		if extents, err = clientOf(r.Session()).joinParts(file, m, extents); err != nil || m.More {
			return &wire.Empty{}, bb.Wrap("replicate", b.address(""), err)
		}
	}
	if m.Whole {
		if err := b.makeWay(file, n); err != nil {
			return nil, err
		}
	}
	c := store.Commit{File: file, Generation: n, Whole: m.Whole, Buffer: b.name, Extents: extents}
	err = b.d.store.Commit(c)
	if bb.KindOf(err) == bb.Exists && m.Whole {
		// What is here is no earlier state of the same content, so it is no second copy either.
		if err = b.d.store.Void(file, n); err == nil {
			err = b.d.store.Commit(c)
		}
	}
	return &wire.Empty{}, bb.Wrap("replicate", b.address(""), err)
}

// promoteAt has the node with the second copy become a file's home.
func (b *buffer) promoteAt(ctx context.Context, node bb.NodeID, e *bb.Entry) error {
	if node == b.d.cfg.Node {
		return b.promote(ctx, e, e.File, e.Generation)
	}
	return b.d.cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_TAKE, &wire.Take{
		Buffer: b.name, Dir: uint64(e.Parent), Name: e.Name, File: uint64(e.File), Generation: uint64(e.Generation), Replica: true,
	}, nil)
}

// promote makes this node, which has the second copy, the home of a file. A file that
// was being written is closed with what was committed.
func (b *buffer) promote(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error {
	if e.File != file || e.Generation != n || owner.Replica(e) != b.d.cfg.Node {
		return owner.Changed("promote", b.address(e.Name))
	}
	unlock, err := b.lockCopies(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	sum, size, err := b.d.store.Checksum(file, n)
	switch {
	case err != nil:
		return err
	case !e.Open && (sum != e.Checksum || size != e.Size):
		return bb.E(bb.Lost, "promote", b.address(e.Name), fmt.Sprintf("the second copy has %d bytes of %d, or others", size, e.Size))
	}
	if err := b.d.store.Seal(file, n); err != nil {
		return err
	}
	now, err := b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if now.File != file || now.Generation != n || now.Lost || owner.Replica(now) != b.d.cfg.Node {
			return errNotConcerned
		}
		if now.Open {
			now.MTime = foundOpen()
		}
		now.Open, now.Size, now.Checksum = false, size, sum
		now.Holders = []bb.NodeID{b.d.cfg.Node}
		return nil
	})
	if err != nil {
		return err
	}
	if now.State() == bb.StateDirty {
		b.requeue(ctx, &now)
	}
	return nil
}

// lockCopies waits for the lock that is held from the question what counts of a file's bytes on
// this node until the answer is carried out: one request may discard a second copy that
// another one makes the file.
func (b *buffer) lockCopies(ctx context.Context, file bb.FileID) (unlock func(), err error) {
	return b.copyLocks.Lock(ctx, strconv.FormatUint(uint64(file), 16))
}

// recoverReplica keeps the second copy of a file that recovery found, if it counts.
func (b *buffer) recoverReplica(e *bb.Entry) bool {
	state := e.State()
	if owner.Replica(e) != b.d.cfg.Node || state != bb.StateDirty && state != bb.StateOpen {
		return false
	}
	var err error
	if e.Open {
		if missing := b.missing(e); missing != "" {
			err = errors.Join(errors.New(missing), b.yield(e))
		}
	} else {
		err = b.d.store.Adopt(e.File, e.Generation) // promote compares it with the entry
	}
	if err != nil {
		b.d.log.Warn("the second copy of a file was lost with this node's memory", "file", e.File, "home", b.owners.Of(e), "err", err)
	}
	return err == nil
}

// promotePause is how long this node waits before it asks the second node again.
const promotePause = 2 * time.Second

// promoteLater has the second node become the home of a file whose bytes this node has
// lost, as soon as that node answers. If it has lost them too, so they are.
func (b *buffer) promoteLater(e *bb.Entry) {
	b.d.wg.Go(func() {
		for {
			err := b.promoteAt(b.d.ctx, owner.Replica(e), e)
			switch bb.KindOf(err) {
			case bb.Unavailable, bb.Busy, bb.Cancelled:
			case bb.NotFound, bb.Lost, bb.Checksum, bb.Invalid:
				if err := b.reportLost(b.d.ctx, e); err != nil && b.d.ctx.Err() == nil {
					b.d.log.Error("reporting a lost file", "file", e.File, "err", err)
				}
				return
			default:
				if err == nil {
					return
				}
				b.d.log.Warn("asking for the second copy of a file", "file", e.File, "node", owner.Replica(e), "err", err)
			}
			select {
			case <-time.After(promotePause):
			case <-b.d.ctx.Done():
				return
			}
			now, err := b.ns.Lookup(b.d.ctx, e.Parent, e.Name)
			if err == nil && (now.File != e.File || b.owners.Of(&now) != b.d.cfg.Node) || bb.KindOf(err) == bb.NotFound {
				return // it has another home, or is gone
			}
		}
	})
}
