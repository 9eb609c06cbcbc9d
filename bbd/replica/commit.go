package replica

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// Copy is the second copy of a generation that is being written. Its methods are called under the lock of
// the generation's commits, but for At. The zero value is none.
type Copy struct {
	at     atomic.Pointer[cluster.Incarnation] // nil: there is none yet
	behind bool                                // it lacks something; all is sent again
}

// At returns where the copy is, or zero if there is none. It may be called concurrently.
func (c *Copy) At() cluster.Incarnation {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return cluster.Incarnation{}
}

// Outdate notes that the copy may lack something.
func (c *Copy) Outdate() { c.behind = true }

// Found notes that a generation that was found open has a copy at a node. Its content is unknown.
func (c *Copy) Found(at cluster.Incarnation) {
	c.at.Store(&at)
	c.behind = true
}

// Closed notes in which memory the copy of a closed file is. Its node may have another one by now, which
// gossip names, and which has nothing.
func (c *Copy) Closed(f *dirty.File) {
	if at := c.At(); at.Node != "" {
		f.Second = at
	}
}

// Generation is one that is being written.
type Generation struct {
	Entry bb.Entry  // with the file's place, and the generation
	Path  string    // for messages
	Near  bb.NodeID // the other node that opened it last; "": none has
}

// tries is how many nodes are tried before a commit fails.
const tries = 3

// Wanted reports whether the buffer's files are to have second copies.
func (b *Buffer) Wanted() bool { return b.files.Spec().Replicas > 1 && b.o.Cluster != nil }

// Commit brings the second copy up to date with a commit that is recorded here, in a buffer that requires
// that. Whole: all was sent, and the namespace is to have the node that c names as the entry's second. It
// returns bb.Unavailable if no node has taken it.
func (b *Buffer) Commit(ctx context.Context, c *Copy, g *Generation, extents []store.NewExtent) (whole bool, err error) {
	at := c.at.Load()
	if at != nil && !b.o.Cluster.Remains(*at) {
		c.behind = true // if it got the request, it would have this commit and nothing before
	}
	if at != nil && !c.behind {
		if err = b.sendExtents(ctx, *at, &g.Entry, extents); err == nil {
			return false, nil
		}
		c.behind = true
		b.o.Log.Warn("a commit did not reach the second copy of a file", "path", g.Path, "node", at.Node, "err", err)
	}
	var now bb.NodeID
	if at != nil {
		now = at.Node
	}
	tried := 0
	for _, node := range currentFirst(now, targets(b.o.Cluster, b.size(&g.Entry), g.Near)) {
		if ctx.Err() != nil || tried == tries {
			break
		}
		tried++
		var h cluster.Incarnation
		if h, err = b.sendWhole(ctx, &g.Entry, node, nil); err == nil {
			if at != nil && at.Node != node {
				b.Discard(at.Node, g.Entry.File, g.Entry.Generation)
			}
			c.at.Store(&h)
			c.behind = false
			return true, nil
		}
		b.o.Log.Warn("a second copy of a file was not made", "path", g.Path, "node", node, "err", err)
	}
	if err == nil {
		err = fmt.Errorf("no other node has room")
	}
	return false, &bb.Error{
		Kind: bb.Unavailable, Op: "commit", Path: g.Path, Err: fmt.Errorf("the second copy of the file cannot be made: %w", err),
		Remedy: "see bbctl nodes",
	}
}

// Settled reports whether the second copy of a generation of so many bytes has all committed bytes, by gossip. One
// that lacks a commit, or went with the other node's memory, is to be sent again before the file is closed. The
// entry would claim bytes that the copy does not have. Without a node to send it to, one that is
// gone stays gone. It is counted as lacking, and made again later.
func (b *Buffer) Settled(c *Copy, bytes int64, near bb.NodeID) bool {
	switch {
	case !b.Wanted():
		return true
	case b.o.Cluster.Remains(c.At()):
		return !c.behind
	}
	return !b.HasTargets(bytes, near)
}

// currentFirst puts the node with the present copy before the others, since it may have most of it still.
// A node "" is none.
func currentFirst(now bb.NodeID, nodes []bb.NodeID) []bb.NodeID {
	if now == "" {
		return nodes
	}
	return append([]bb.NodeID{now}, slices.DeleteFunc(nodes, func(n bb.NodeID) bool { return n == now })...)
}

// targets returns the nodes to request a second copy of so many bytes from.
func targets(c Cluster, bytes int64, near bb.NodeID) []bb.NodeID {
	return slices.DeleteFunc(c.Candidates(bytes, near), func(node bb.NodeID) bool {
		m, ok := c.Member(node)
		return !ok || !cluster.Supports(&m, wire.VersionReplicas)
	})
}

// HasTargets reports whether a node can get a request to keep a second copy of so many bytes.
func (b *Buffer) HasTargets(bytes int64, near bb.NodeID) bool {
	return len(targets(b.o.Cluster, bytes, near)) > 0
}

// size returns how many bytes a generation has here, or 0 if nothing of it was committed.
func (b *Buffer) size(e *bb.Entry) int64 {
	n, err := b.o.Store.Size(e.File, e.Generation)
	if err != nil {
		return 0
	}
	return n
}

// sendExtents sends the extents that a commit adds to the memory that has all before.
func (b *Buffer) sendExtents(ctx context.Context, to cluster.Incarnation, e *bb.Entry, extents []store.NewExtent) error {
	list := make([]*wire.NewExtent, len(extents))
	bytes := make([][]byte, len(extents))
	for i, x := range extents {
		var err error
		if bytes[i], err = b.o.Store.LeasedBytes(x.Lease, x.SegmentOffset, x.Length); err != nil {
			return err
		}
		list[i] = &wire.NewExtent{FileOffset: x.FileOffset, Length: x.Length, Checksum: x.Checksum}
	}
	_, err := b.send(ctx, to, &wire.Replicate{Extents: list}, e, bytes, nil)
	return err
}

// sendWhole sends a node all that a generation of this node shows, paced, and returns which memory has it.
func (b *Buffer) sendWhole(ctx context.Context, e *bb.Entry, node bb.NodeID, pace paced) (in cluster.Incarnation, err error) {
	snap, err := b.o.Store.Snapshot(e.File, e.Generation)
	if err != nil {
		return in, err
	}
	defer snap.Close()
	pinned, extents, err := b.files.Pin(ctx, e, snap)
	if err != nil {
		return in, err
	}
	defer pinned.Release()
	var list []*wire.NewExtent
	var bytes [][]byte
	for i := range extents {
		x := &extents[i]
		if x.State == store.Hole {
			continue
		}
		sum, err := snap.PieceSum(x)
		if err != nil {
			return in, err
		}
		pieces, err := snap.Slices(x.FileOffset, x.Length, nil)
		if err != nil {
			return in, err
		}
		list = append(list, &wire.NewExtent{FileOffset: x.FileOffset, Length: x.Length, Checksum: sum})
		bytes = append(bytes, pieces[0]) // an extent is one piece of memory
	}
	return b.send(ctx, cluster.Incarnation{Node: node}, &wire.Replicate{Whole: true, Extents: list}, e, bytes, pace)
}

// send puts the bytes of m's extents into another node's memory and has them recorded there, of the file and
// the generation that e names. It returns which memory that was, and bb.Lost if the node has another one
// than to names, of which 0 is any.
func (b *Buffer) send(ctx context.Context, to cluster.Incarnation, m *wire.Replicate, e *bb.Entry, bytes [][]byte, pace paced) (in cluster.Incarnation, err error) {
	spec := b.files.Spec()
	s, err := b.o.Cluster.Session(ctx, to.Node, peer.Who{UID: spec.UID, GID: spec.GID, System: true})
	if err != nil {
		return in, err
	}
	if in = memoryOf(s); !holds(to, in) {
		return in, &bb.Error{
			Kind: bb.Lost, Op: "replicate", Path: b.address(""), Node: to.Node,
			Err: fmt.Errorf("the node's memory is new and has nothing of the copy"),
		}
	}
	m.Buffer, m.File, m.Generation = b.name, uint64(e.File), uint64(e.Generation)
	var (
		total  int64
		inline []byte
	)
	for _, p := range bytes {
		total += int64(len(p))
	}
	arrived := b.o.Cluster.Sending(to.Node, total)
	defer func() { arrived(err) }()
	if total <= b.o.Inline && len(m.Extents) <= maxExtents {
		if inline, err = mapped.Gather(nil, b.address(""), bytes...); err != nil {
			return in, err
		}
	} else {
		staged, done, err := b.stage(ctx, s, m.Extents, bytes, pace)
		if err != nil {
			return in, err
		}
		defer done()
		m.Extents = staged
	}
	messages, err := b.inParts(m, slices.Contains(s.Welcome().Capabilities, wire.CapabilityParts), b.o.NextID())
	for i := 0; err == nil && i < len(messages); i++ {
		_, err = s.Ask(ctx, wire.Type_TYPE_REPLICATE, messages[i], inline, nil)
	}
	return in, err
}

// stage writes the bytes of extents into memory that is leased in a session with another node, at
// once, or paced in pieces of repairBurst bytes, of which each has pieceTime. Done is called after
// the commit, or instead of it.
func (b *Buffer) stage(ctx context.Context, s *peer.Session, extents []*wire.NewExtent, bytes [][]byte, pace paced) (staged []*wire.NewExtent, done func(), err error) {
	if pace == nil {
		return b.files.Stage(ctx, s, extents, bytes)
	}
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	for len(extents) > 0 {
		n, total := 0, int64(0)
		for n < len(extents) && (n == 0 || total+int64(len(bytes[n])) <= repairBurst) {
			total += int64(len(bytes[n]))
			n++
		}
		if err = pace(ctx, total); err != nil {
			done()
			return nil, nil, err
		}
		piece, end, err := b.stagePiece(ctx, s, extents[:n], bytes[:n])
		if err != nil {
			done()
			return nil, nil, err
		}
		staged, ends = append(staged, piece...), append(ends, end)
		extents, bytes = extents[n:], bytes[n:]
	}
	return staged, done, nil
}

// stagePiece writes the bytes of extents as Stage does, within pieceTime. A node without room keeps a request
// for a lease waiting until the session ends.
func (b *Buffer) stagePiece(ctx context.Context, s *peer.Session, extents []*wire.NewExtent, bytes [][]byte) ([]*wire.NewExtent, func(), error) {
	within, cancel := context.WithTimeout(ctx, pieceTime)
	defer cancel()
	staged, done, err := b.files.Stage(within, s, extents, bytes)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("a piece of it was not written within %v: %w", pieceTime, err)
	}
	return staged, done, err
}

// memoryOf returns the memory that is reached in a session. Gossip may name one that the node had before.
func memoryOf(s *peer.Session) cluster.Incarnation {
	return cluster.Incarnation{Node: s.Node(), Memory: bb.InstanceID(s.Welcome().GetInstance())}
}

// holds reports whether bytes that were sent to a memory are in another one of the same node, as far as both are known.
func holds(sent, now cluster.Incarnation) bool {
	return sent.Memory == 0 || now.Memory == 0 || sent.Memory == now.Memory
}

// Record records the extents that the owner of a file has sent as this node's second copy of it or,
// if m has all, all of the generation. If the content that it would replace has readers, it returns
// bb.Busy. So it does if this node owns the file by now, and the sender has not received that yet.
func (b *Buffer) Record(ctx context.Context, m *wire.Replicate, extents []store.NewExtent) error {
	file, n := bb.FileID(m.File), bb.Generation(m.Generation)
	unlock, err := b.Lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	if own, ok := b.dirty.Of(file); ok && own.Generation >= n {
		return b.ownFile(file)
	}
	// The copy that readers have here is dropped before the second copy takes its place.
	if m.Whole && !b.files.ForgetIdle(file, n) {
		return bb.E(bb.Busy, "replicate", b.address(""), fmt.Sprintf("a client reads a copy of file %v here", file))
	}
	c := store.Commit{File: file, Generation: n, Whole: m.Whole, Buffer: b.name, Extents: extents}
	err = b.o.Store.Commit(c)
	if bb.KindOf(err) == bb.Exists && m.Whole {
		err = b.replace(ctx, c)
	}
	return bb.Wrap("replicate", b.address(""), err)
}

// replace records all of a generation where there is something that is no earlier state of the same content,
// and so no second copy either. It may be this node's own, and clean. The namespace has the last word. The
// file is locked.
func (b *Buffer) replace(ctx context.Context, c store.Commit) error {
	if id, ok := b.o.Store.IdentityOf(c.File); ok {
		e, err := b.names.LookupAgain(ctx, id.Dir, id.Name)
		switch {
		case bb.KindOf(err) == bb.NotFound:
		case err != nil:
			return err
		case e.File == c.File && e.Generation >= c.Generation && !b.o.Owners.OwnedElsewhere(&e):
			return b.ownFile(c.File)
		}
	}
	if err := b.o.Store.Void(c.File, c.Generation); err != nil {
		return err
	}
	return b.o.Store.Commit(c)
}

func (b *Buffer) ownFile(file bb.FileID) error {
	return bb.E(bb.Busy, "replicate", b.address(""), fmt.Sprintf("this node owns file %v by now", file)).
		WithRemedy("none is needed: its bytes are here")
}

// Complete reports whether this node has the second copy of a closed file, all of it, and seals it.
func (b *Buffer) Complete(e *bb.Entry) bool {
	if owner.Replica(e) != b.o.Owners.Self {
		return false
	}
	sum, size, err := b.o.Store.Checksum(e.File, e.Generation)
	return err == nil && sum == e.Checksum && size == e.Size && b.o.Store.Seal(e.File, e.Generation) == nil
}
