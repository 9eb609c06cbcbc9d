package origin

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/lockrank"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	"forebay/rdma"
)

// Nodes are the other nodes, as the daemon itself reaches them.
type Nodes interface {
	Session(ctx context.Context, node bb.NodeID) (Session, error)
	// Transfer carries one-sided operations out and waits for them.
	Transfer(ctx context.Context, conn rdma.Conn, ops []rdma.Op) error
	// Holders returns the node that owns a file, "" if that is this one, and the one with its second copy,
	// "" if there is none. That may be this node, which the owner's death leaves alone with an open file.
	Holders(e *bb.Entry) (owner, second bb.NodeID)
	Self() bb.NodeID
}

// Session is a session with another node (see peer.Session).
type Session interface {
	Node() bb.NodeID
	Broken() bool
	NewHandle() uint64
	CloseHandle(handle uint64)
	Ask(ctx context.Context, typ wire.Type, m proto.Message, data []byte, reply proto.Message) ([]byte, error)
	Fabric(ctx context.Context) (rdma.Conn, error)
	LoseFabric(conn rdma.Conn)
}

// Bounds of the bytes that are read at once of a file that another node owns.
const (
	window   = 8 << 20 // bytes of one request, unless one run is longer
	parallel = 4       // requests
)

// Owner is a generation of a file at the nodes that have it: its owner, which keeps it because it
// is open there while it is read, and the node with its second copy.
type Owner struct {
	of    *Sources
	entry bb.Entry // as it was opened
	once  bool     // of a file that is being written, which cannot be opened again as it was

	mu struct {
		lockorder.Mutex[lockrank.Owner]
		node   bb.NodeID // where it is open
		first  remote
		second remote // of the second copy; zero: not requested yet
		alone  bool   // there is no second copy to read from
	}
}

// remote is a generation that is open in a session with a node that has it.
type remote struct {
	session Session
	handle  uint64
}

func (r remote) usable() bool { return r.session != nil && !r.session.Broken() }

func (r remote) close() {
	if r.session != nil {
		r.session.CloseHandle(r.handle)
	}
}

// OpenAt opens at a node the generation that m describes. The handle has no second copy.
func (s *Sources) OpenAt(ctx context.Context, node bb.NodeID, m *wire.Open) (*Owner, *wire.Opened, error) {
	r, opened, err := s.open(ctx, node, m)
	if err != nil {
		return nil, nil, err
	}
	w := &Owner{of: s, entry: bb.Entry{Name: m.Path, File: bb.FileID(m.File), Generation: bb.Generation(m.Generation)}}
	w.mu.node, w.mu.first = node, r
	return w, opened, nil
}

// Open opens a file at its owner. It opens the generation that its entry names or, of a file that
// is being written, all that is committed. If the owner does not answer, the second copy is opened.
func (s *Sources) Open(ctx context.Context, e *bb.Entry, path string) (*Owner, *wire.Opened, error) {
	node, second := s.o.Nodes.Holders(e)
	ask := &wire.Open{Path: path}
	if !e.Open {
		ask.File, ask.Generation = uint64(e.File), uint64(e.Generation)
	}
	r, opened, err := s.open(ctx, node, ask)
	if second != "" && bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil {
		node = second
		ask.File, ask.Generation = uint64(e.File), uint64(e.Generation)
		r, opened, err = s.open(ctx, node, ask)
	}
	if err != nil {
		return nil, nil, err
	}
	w := &Owner{of: s, entry: *e, once: e.Open}
	w.mu.node, w.mu.first = node, r
	return w, opened, nil
}

// open opens a file for reading in a session of the daemon's own.
func (s *Sources) open(ctx context.Context, node bb.NodeID, m *wire.Open) (remote, *wire.Opened, error) {
	session, err := s.o.Nodes.Session(ctx, node)
	if err != nil {
		return remote{}, nil, err
	}
	opened := new(wire.Opened)
	m.Buffer, m.Handle = s.o.Buffer, session.NewHandle()
	if _, err := session.Ask(ctx, wire.Type_TYPE_OPEN, m, nil, opened); err != nil {
		peer.CloseUnheard(ctx, s.o.Go, session, m.Handle)
		return remote{}, nil, err
	}
	return remote{session, m.Handle}, opened, nil
}

// Entry returns the file's entry as it was opened.
func (w *Owner) Entry() *bb.Entry { return &w.entry }

// Reach makes sure that the generation is open, where the file is owned now.
func (w *Owner) Reach(ctx context.Context) error {
	_, err := w.reach(ctx)
	return err
}

func (w *Owner) reach(ctx context.Context) (remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.first.usable() {
		return w.mu.first, nil
	}
	r, opened, err := w.of.open(ctx, w.mu.node, w.byNumber())
	if err != nil && !w.once && w.moved(ctx) {
		r, opened, err = w.of.open(ctx, w.mu.node, w.byNumber())
	}
	if err != nil {
		return remote{}, err
	}
	if bb.Generation(opened.Generation) != w.entry.Generation || w.once {
		r.close()
		return remote{}, bb.E(bb.Unavailable, "read", w.of.address(w.entry.Name), "its owner was restarted, and has another content of the file now").
			WithRemedy("open the file again")
	}
	w.mu.first = r
	return r, nil
}

func (w *Owner) byNumber() *wire.Open {
	return &wire.Open{Path: w.entry.Name, File: uint64(w.entry.File), Generation: uint64(w.entry.Generation)}
}

// moved reports whether another node owns the generation by now, and goes there. w.mu is held.
func (w *Owner) moved(ctx context.Context) bool {
	e, err := w.of.o.Entries.Lookup(ctx, w.entry.Parent, w.entry.Name)
	if err != nil || e.File != w.entry.File || e.Generation != w.entry.Generation {
		return false
	}
	to, second := w.of.o.Nodes.Holders(&e)
	if to == "" {
		return false
	}
	if to == w.mu.node && second != "" {
		to = second
	}
	was := w.mu.node
	w.mu.node = to
	return to != was
}

// holders returns the nodes that can be read from at the same time: the owner, and, if there is a
// second copy whose node answers, that.
func (w *Owner) holders(ctx context.Context) ([]remote, error) {
	first, err := w.reach(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, second := w.of.o.Nodes.Holders(&w.entry)
	if second == "" || second == w.mu.node || second == w.of.o.Nodes.Self() || w.once || w.mu.alone {
		return []remote{first}, nil
	}
	if !w.mu.second.usable() {
		r, _, err := w.of.open(ctx, second, w.byNumber())
		if err != nil { // the owner has it all
			w.mu.alone = ctx.Err() == nil
			return []remote{first}, nil
		}
		w.mu.second = r
	}
	return []remote{first, w.mu.second}, nil
}

// Layout requests the extents, with their checksums.
func (w *Owner) Layout(ctx context.Context) (list []store.MirrorExtent, err error) {
	from, err := w.reach(ctx)
	if err != nil {
		return nil, err
	}
	for offset := int64(0); ; {
		var m wire.Extents
		ask := &wire.ExtentsRequest{Handle: from.handle, Offset: offset, Length: bb.MaxFileSize - offset, Layout: true}
		if _, err := from.session.Ask(ctx, wire.Type_TYPE_EXTENTS, ask, nil, &m); err != nil {
			return nil, err
		}
		for _, e := range m.Extents {
			if e.FileOffset < offset || e.Length <= 0 {
				return nil, bb.E(bb.Internal, "read", w.of.o.Buffer, "a layout that is not in order")
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

// Read is of Origin. The runs are read from the nodes that have them, in turns, several windows at a time,
// each with one request, and read one-sided into the memory of place, which the fabric can reach.
// Runs that the second copy lacks are read from the owner.
func (w *Owner) Read(ctx context.Context, runs []Run, place Place) error {
	holders, err := w.holders(ctx)
	if err != nil {
		return err
	}
	first := holders[0]
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := 0; len(runs) > 0; i++ {
		n := atOnce(runs)
		some := runs[:n]
		runs = runs[n:]
		from := holders[i%len(holders)]
		group.Go(func() error {
			err := w.readWindow(ctx, from, some, place)
			if err != nil && from != first && ctx.Err() == nil && bb.KindOf(err) != bb.NoSpace {
				err = w.readWindow(ctx, first, some, place)
			}
			return err
		})
	}
	return group.Wait()
}

// atOnce is how many of some runs share one request: those that fit a window, at least one.
func atOnce(runs []Run) (n int) {
	for bytes := int64(0); n < len(runs); n++ {
		if bytes += runs[n].Size(); n > 0 && bytes > window {
			break
		}
	}
	return n
}

// readWindow reads a few runs that follow each other, perhaps with gaps.
func (w *Owner) readWindow(ctx context.Context, of remote, runs []Run, place Place) error {
	at := &source{w: w, of: of, to: runs[len(runs)-1].To}
	defer at.release()
	return placeAll(ctx, at, runs, place)
}

// Inline returns the generation as bytes that come with the answers, one run after the other, for memory
// that the fabric cannot reach.
func (w *Owner) Inline() Origin { return inline{w} }

type inline struct{ *Owner }

// Read is of Origin.
func (w inline) Read(ctx context.Context, runs []Run, place Place) error {
	if _, err := w.reach(ctx); err != nil {
		return err
	}
	return placeAll(ctx, w, runs, place)
}

// fill is of filler.
func (w inline) fill(ctx context.Context, p []byte, off int64) error {
	from, err := w.reach(ctx)
	if err != nil {
		return err
	}
	return w.ask(ctx, from, p, off)
}

// ask fills p with bytes that come with a node's answers.
func (w *Owner) ask(ctx context.Context, from remote, p []byte, off int64) error {
	for len(p) > 0 {
		var m wire.Extents
		ask := &wire.ExtentsRequest{Handle: from.handle, Offset: off, Length: int64(len(p)), Inline: true}
		data, err := from.session.Ask(ctx, wire.Type_TYPE_EXTENTS, ask, nil, &m)
		if err != nil {
			return err
		}
		if len(data) == 0 || len(data) > len(p) {
			return bb.E(bb.Unavailable, "read", w.of.address(w.entry.Name), fmt.Sprintf("the owner's answer lacks byte %d", off))
		}
		n := copy(p, data)
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Close is of Origin.
func (w *Owner) Close() { w.CloseUnless(func() bool { return false }) }

// CloseUnless is Close unless used reports that there is a reader again.
func (w *Owner) CloseUnless(used func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if used() {
		return
	}
	w.mu.first.close()
	w.mu.second.close()
	w.mu.first, w.mu.second, w.mu.alone = remote{}, remote{}, false
}

var (
	_ Origin = (*Object)(nil)
	_ Origin = (*Owner)(nil)
	_ Origin = inline{}
	_ Origin = (*Fallback)(nil)
)
