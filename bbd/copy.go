package bbd

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	"forebay/rdma"
)

// fileCopy is a clean copy of one generation of a file whose home is another node: its
// extents are known with their checksums, and fetched into this node's memory as they
// are read, once for all readers of the node. It is evicted like everything clean.
//
//	      first reader        last reader closes          copies take too much
//	(new) ───────────▶ used ─────────────────────▶ idle ─────────────────────▶ dropped
//	                    ▲        a reader comes      │
//	                    └────────────────────────────┘
//
// While it is used, the generation is open at its home, which so keeps it. What is not
// in memory when the home does not answer is read from the store, if it is there.
type fileCopy struct {
	b          *buffer
	node       bb.NodeID     // where it is copied from
	entry      bb.Entry      // as it was opened
	generation bb.Generation // as this store knows it: the file's own, or one for an open file's readers alone
	size       int64
	private    bool // of a file that is being written: for one reader, dropped after it

	users int       // guarded by copies.mu
	idle  time.Time // since when nobody uses it, likewise

	mu struct {
		lockorder.Mutex[lockrank.FileCopy]
		session *peer.Session
		handle  uint64
		second  remoteHandle // of the second copy; zero: not asked yet
		alone   bool         // there is no second copy to read from
	}
}

// remoteHandle is a generation that is open in a session with a node that has it.
type remoteHandle struct {
	session *peer.Session
	handle  uint64
}

// fetchAhead bounds the extents of a copy that are fetched at once, in bytes and requests.
const (
	fetchWindow   = 8 << 20
	fetchParallel = 4
)

// open returns a session in which the generation is open at its home.
func (c *fileCopy) open(ctx context.Context) (*peer.Session, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.session != nil && !c.mu.session.Broken() {
		return c.mu.session, c.mu.handle, nil
	}
	ask := &wire.Open{Path: c.entry.Name, File: uint64(c.entry.File), Generation: uint64(c.entry.Generation)}
	s, handle, opened, err := c.b.openAtHome(ctx, c.node, ask)
	if err != nil && !c.private && c.moved(ctx) {
		s, handle, opened, err = c.b.openAtHome(ctx, c.node, ask)
	}
	if err != nil {
		return nil, 0, err
	}
	if bb.Generation(opened.Generation) != c.entry.Generation || c.private {
		s.CloseHandle(handle)
		return nil, 0, bb.E(bb.Unavailable, "read", c.b.address(c.entry.Name), "its home was restarted, and has another content of the file now").
			WithRemedy("open the file again")
	}
	c.mu.session, c.mu.handle = s, handle
	return s, handle, nil
}

// holders returns who can be read from at the same time: the home, and, if there is a
// second copy whose node answers, that.
func (c *fileCopy) holders(ctx context.Context) ([]remoteHandle, error) {
	s, handle, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	all := []remoteHandle{{s, handle}}
	c.mu.Lock()
	defer c.mu.Unlock()
	second := replicaOf(&c.entry)
	if second == "" || second == c.node || second == c.b.d.cfg.Node || c.private || c.mu.alone {
		return all, nil
	}
	if c.mu.second.session == nil || c.mu.second.session.Broken() {
		ask := &wire.Open{Path: c.entry.Name, File: uint64(c.entry.File), Generation: uint64(c.entry.Generation)}
		s, handle, _, err := c.b.openAtHome(ctx, second, ask)
		if err != nil { // the home has it all
			c.mu.alone = ctx.Err() == nil
			return all, nil
		}
		c.mu.second = remoteHandle{s, handle}
	}
	return append(all, c.mu.second), nil
}

// moved reports whether the generation has another home by now, and goes there. c.mu is held.
func (c *fileCopy) moved(ctx context.Context) bool {
	e, err := c.b.ns.Lookup(ctx, c.entry.Parent, c.entry.Name)
	if err != nil || e.File != c.entry.File || e.Generation != c.entry.Generation || !c.b.foreign(&e) {
		return false
	}
	to := c.b.home(&e)
	if second := replicaOf(&e); to == c.node && second != "" {
		to = second
	}
	was := c.node
	c.node = to
	return to != was
}

// rest closes the generation at its home, unless somebody has begun to read again.
func (c *fileCopy) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.b.copies.used(c) {
		return
	}
	if s := c.mu.session; s != nil {
		s.CloseHandle(c.mu.handle)
	}
	if s := c.mu.second.session; s != nil {
		s.CloseHandle(c.mu.second.handle)
	}
	c.mu.session, c.mu.second, c.mu.alone = nil, remoteHandle{}, false
}

// openAtHome opens a file for reading in a session of the daemon's own.
func (b *buffer) openAtHome(ctx context.Context, node bb.NodeID, m *wire.Open) (*peer.Session, uint64, *wire.Opened, error) {
	s, err := b.d.cluster.Session(ctx, node, cluster.Who(access.Daemon()))
	if err != nil {
		return nil, 0, nil, err
	}
	opened := new(wire.Opened)
	m.Buffer, m.Handle = b.name, s.NewHandle()
	if _, err := s.Ask(ctx, wire.Type_TYPE_OPEN, m, nil, opened); err != nil {
		peer.CloseUnheard(ctx, b.d.wg.Go, s, m.Handle)
		return nil, 0, nil, err
	}
	return s, m.Handle, opened, nil
}

// mirror makes a copy of what a file's home has.
func (b *buffer) mirror(ctx context.Context, e *bb.Entry, path string) (*fileCopy, error) {
	node := b.home(e)
	ask := &wire.Open{Path: path}
	if !e.Open {
		ask.File, ask.Generation = uint64(e.File), uint64(e.Generation)
	}
	s, handle, opened, err := b.openAtHome(ctx, node, ask)
	if second := replicaOf(e); second != "" && bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil {
		node = second
		ask.File, ask.Generation = uint64(e.File), uint64(e.Generation)
		s, handle, opened, err = b.openAtHome(ctx, node, ask)
	}
	if err != nil {
		return nil, err
	}
	c := &fileCopy{b: b, node: node, entry: *e, generation: e.Generation, private: e.Open}
	c.mu.session, c.mu.handle = s, handle
	c.size = opened.GetEntry().GetSize()
	if c.private {
		c.generation = bb.Generation(b.d.nextID())
		c.entry.File, c.users = bb.FileID(opened.GetEntry().GetFile()), 1
	}
	extents, err := b.layout(ctx, s, handle)
	if err == nil {
		err = b.d.store.Mirror(c.entry.File, c.generation, b.name, extents)
	}
	if err != nil {
		s.CloseHandle(handle)
		return nil, err
	}
	b.copies.add(c)
	return c, nil
}

// layout asks for the extents of an open file, with their checksums.
func (b *buffer) layout(ctx context.Context, s *peer.Session, handle uint64) (list []store.MirrorExtent, err error) {
	for offset := int64(0); ; {
		var m wire.Extents
		ask := &wire.ExtentsRequest{Handle: handle, Offset: offset, Length: bb.MaxFileSize - offset, Layout: true}
		if _, err := s.Ask(ctx, wire.Type_TYPE_EXTENTS, ask, nil, &m); err != nil {
			return nil, err
		}
		for _, e := range m.Extents {
			if e.FileOffset < offset || e.Length <= 0 {
				return nil, bb.E(bb.Internal, "read", b.name, "a layout that is not in order")
			}
			offset = e.FileOffset + e.Length
			if e.Region != 0 {
				list = append(list, store.MirrorExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum})
			}
		}
		if len(m.Extents) == 0 || offset >= m.Size {
			return list, nil
		}
	}
}

// layoutPage is how many extents an answer holds: they fit a message.
const layoutPage = 8192

// layoutAnswer answers what a daemon asks for that makes a copy.
func (h *handle) layoutAnswer(ctx context.Context, offset int64) (proto.Message, error) {
	answer, err := h.layout(ctx, offset)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// layout answers with what is visible from an offset on, and its checksums.
func (h *handle) layout(ctx context.Context, offset int64) (*wire.Extents, error) {
	answer := &wire.Extents{Size: h.snap.Size()}
	extents := h.snap.Extents(offset, bb.MaxFileSize, layoutPage)
	for i := range extents {
		e := &extents[i]
		m := &wire.Extent{FileOffset: e.FileOffset, Length: e.Length}
		if e.State != store.Hole {
			sum, err := h.pieceSum(ctx, e)
			if err != nil {
				return nil, bb.Wrap("read", h.path, err)
			}
			m.Region, m.Checksum = 1, sum // any region: it is not a hole
		}
		answer.Extents = append(answer.Extents, m)
		if i+1 == layoutPage {
			break
		}
	}
	return answer, nil
}

// pieceSum returns the checksum of what an extent shows.
func (h *handle) pieceSum(ctx context.Context, e *store.Extent) (uint64, error) {
	if e.Length == e.WholeLength {
		return e.Checksum, nil
	}
	if e.State == store.Evicted {
		data, err := h.buf.through(ctx, &h.tap, h.snap, &h.entry, e)
		return checksum.Sum(data), err
	}
	pinned, err := h.snap.Pin(e.FileOffset, e.Length)
	if err != nil {
		return 0, err
	}
	defer pinned.Release()
	sum, err := h.snap.PieceSum(e)
	if bb.KindOf(err) != bb.Unavailable {
		return sum, err
	}
	data, err := h.buf.through(ctx, &h.tap, h.snap, &h.entry, e) // it was evicted meanwhile
	return checksum.Sum(data), err
}

// fetch brings extents of the copy in from those who hold it, in turns: several windows
// at a time, each asked for with one request, read one-sided into this node's segments,
// and checked. What the second copy's node cannot give, the home is asked for.
func (c *fileCopy) fetch(ctx context.Context, t *tap, snap *store.Snapshot, evicted []store.Extent) error {
	holders, err := c.holders(ctx)
	if err != nil {
		return err
	}
	home := holders[0]
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchParallel)
	for i := 0; len(evicted) > 0; i++ {
		n, bytes := 0, int64(0)
		for n < len(evicted) && (n == 0 || bytes+evicted[n].Length <= fetchWindow) {
			bytes += evicted[n].Length
			n++
		}
		window := evicted[:n]
		evicted = evicted[n:]
		from := holders[i%len(holders)]
		group.Go(func() error {
			err := c.fetchWindow(ctx, t, from, snap, window)
			if err != nil && from != home && ctx.Err() == nil && bb.KindOf(err) != bb.NoSpace {
				err = c.fetchWindow(ctx, t, home, snap, window)
			}
			return err
		})
	}
	return group.Wait()
}

// fetchWindow brings in a few extents that follow each other, perhaps with gaps.
func (c *fileCopy) fetchWindow(ctx context.Context, t *tap, of remoteHandle, snap *store.Snapshot, window []store.Extent) error {
	first, last := &window[0], &window[len(window)-1]
	from, to := first.FileOffset-first.Cut, last.FileOffset-last.Cut+last.WholeLength
	source, err := c.locate(ctx, of.session, of.handle, from, to)
	if err != nil {
		return err
	}
	defer source.release()
	for _, x := range wholesOf(window) {
		if err := c.fetchExtent(ctx, t, of.session, source, snap, x); err != nil {
			return err
		}
	}
	return nil
}

// fetchExtent brings one extent in.
func (c *fileCopy) fetchExtent(ctx context.Context, t *tap, s *peer.Session, source *source, snap *store.Snapshot, x run) error {
	w := c.b.writers.Of(c.b.Spec().UID, bb.TierMemory)
	room, err := t.reserve(ctx, w, x.to-x.from)
	if err != nil {
		return err
	}
	defer w.Done(room)
	var ops []rdma.Op
	err = store.Guard("read", c.b.address(c.entry.Name), func() (err error) {
		ops, err = source.read(nil, room.Mem, x)
		return err
	})
	if err != nil {
		return err
	}
	if len(ops) > 0 {
		fabric, err := s.Fabric(ctx)
		if err != nil {
			return err
		}
		if err := c.b.d.cluster.Transfer(ctx, fabric, ops); err != nil {
			s.LoseFabric(fabric)
			return &bb.Error{Kind: cluster.TransferKind(ctx), Op: "read", Path: c.b.address(c.entry.Name), Node: s.Node(), Err: err}
		}
	}
	err = snap.Fill(store.FillExtent{
		Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: x.from, Length: x.to - x.from,
	})
	if kind := bb.KindOf(err); kind == bb.Busy || kind == bb.Invalid {
		return nil // another reader was faster, or eviction joined it with others: the caller looks again
	}
	return err
}

// source is a range of a file as it lies at its home, pinned there.
type source struct {
	s       *peer.Session
	pins    []uint64
	extents []*wire.Extent
	inline  []inlineRun
	keys    map[uint64]rdma.RemoteKey
}

// inlineRun is bytes of the file that came with the answer.
type inlineRun struct {
	from int64
	data []byte
}

// locate asks where [from, to) lies.
func (c *fileCopy) locate(ctx context.Context, s *peer.Session, handle uint64, from, to int64) (*source, error) {
	at := &source{s: s, keys: make(map[uint64]rdma.RemoteKey)}
	for from < to {
		var m wire.Extents
		data, err := s.Ask(ctx, wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: handle, Offset: from, Length: to - from}, nil, &m)
		if err != nil {
			at.release()
			return nil, err
		}
		next := from + int64(len(data))
		if len(data) > 0 {
			at.inline = append(at.inline, inlineRun{from, data})
		}
		if m.Pin != 0 {
			at.pins = append(at.pins, m.Pin)
		}
		for _, region := range m.Regions {
			key, err := rdma.DecodeRemoteKey(region.Key)
			if err != nil {
				at.release()
				return nil, &bb.Error{Kind: bb.Internal, Op: "read", Path: c.b.address(c.entry.Name), Node: c.node, Err: err}
			}
			at.keys[region.Id] = key
		}
		for _, e := range m.Extents {
			at.extents = append(at.extents, e)
			next = max(next, e.FileOffset+e.Length)
		}
		if next <= from {
			at.release()
			return nil, bb.E(bb.Unavailable, "read", c.b.address(c.entry.Name), fmt.Sprintf("its home says nothing of byte %d", from))
		}
		from = next
	}
	return at, nil
}

// read adds the operations that bring bytes [x.from, x.to) into dst; what came with the
// answer is copied.
func (at *source) read(ops []rdma.Op, dst []byte, x run) ([]rdma.Op, error) {
	covered := int64(0)
	for _, r := range at.inline {
		from, to := max(x.from, r.from), min(x.to, r.from+int64(len(r.data)))
		if from < to {
			covered += int64(copy(dst[from-x.from:to-x.from], r.data[from-r.from:to-r.from]))
		}
	}
	for _, e := range at.extents {
		from, to := max(x.from, e.FileOffset), min(x.to, e.FileOffset+e.Length)
		if from >= to {
			continue
		}
		local := dst[from-x.from : to-x.from]
		covered += to - from
		if e.Region == 0 {
			clear(local)
			continue
		}
		ops = append(ops, rdma.Op{Kind: rdma.OpRead, Local: local, Remote: rdma.Remote{
			Key: at.keys[e.Region], Offset: uint64(e.Offset + from - e.FileOffset),
		}})
	}
	if covered != x.to-x.from {
		return ops, bb.E(bb.Unavailable, "read", "", fmt.Sprintf("the home named %d of %d bytes", covered, x.to-x.from))
	}
	return ops, nil
}

// release lets go of what is pinned at the home.
func (at *source) release() {
	if len(at.pins) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// Pins end with the session in any case.
	_, _ = at.s.Ask(ctx, wire.Type_TYPE_UNPIN, &wire.Unpin{Pins: at.pins}, nil, nil)
}
