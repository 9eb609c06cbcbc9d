package bbd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/peer"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta"
	"forebay/meta/gossip"
	"forebay/rdma"
	"forebay/rdma/route"
)

// A file has a home: the daemon that it was first written on, the first of its entry's
// Holders. That daemon alone decides about the file's bytes: it orders the commits of
// all writers, closes its generations, flushes them, and renames and removes the file.
//
//	client ──▶ its daemon ──▶ home
//	              │  writes: a relay (relay.go) puts the bytes into the home's memory
//	              │  reads: a copy (copy.go) fetches extents from there as they are read
//	              └  rename, remove: are asked of the home
//
// Every daemon may make entries and directories; that two do not make the same one,
// and that a home which was given up cannot change the file any more, is decided by
// compare-and-set in the namespace.

// Members says which daemons there are: hints, never truth about data. It may be
// called concurrently.
type Members interface {
	// Member returns what is known of a node.
	Member(bb.NodeID) (gossip.Member, bool)
	// Members returns all that are known, sorted by name.
	Members() []gossip.Member
	// Addr returns the address at which the others find this node, host:port.
	Addr() string
}

// cluster is this daemon's view of the others; nil where it is alone.
type cluster struct {
	d       *Daemon
	members Members
	pool    *peer.Pool
	sent    sent
}

func newCluster(d *Daemon) *cluster {
	if d.cfg.Members == nil {
		return nil
	}
	self := &peer.Identity{
		Node: d.cfg.Node, Instance: d.store.Instance(), Version: d.cfg.Version, Keys: d.cfg.Keys, TLS: d.cfg.TLS, Log: d.log,
		Silence: d.cfg.silence(),
	}
	return &cluster{d: d, members: d.cfg.Members, pool: peer.NewPool(self, d.dialFabric)}
}

// answers reports whether it is worth asking a daemon in a state: one that is merely
// suspected may only be slow.
func answers(s gossip.State) bool { return !s.Gone() && s != gossip.Unknown }

// takesFiles reports whether a daemon in a state takes in what it is not the home of.
func takesFiles(s gossip.State) bool { return s == gossip.Ready }

// session returns a session with a node's daemon. bb.Unavailable, naming the node, if
// it is not there; bb.Unsupported if it speaks other versions.
func (c *cluster) session(ctx context.Context, node bb.NodeID, who peer.Who) (*peer.Session, error) {
	m, ok := c.members.Member(node)
	switch {
	case !ok:
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("no daemon of that name has been seen"),
		}).WithRemedy(bb.DidYouMean(string(node), c.names(), "see bbctl nodes; if it is gone for good: bbctl node forget "+string(node)))
	case m.Session == "":
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("the daemon is starting and takes no sessions yet"),
		}).WithRemedy("try again soon")
	case !answers(m.State):
		c.pool.Drop(node)
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("the daemon is %s", m.State),
		}).WithRemedy("it may come back; if it is gone for good: bbctl node forget " + string(node))
	case !speaks(&m):
		return nil, c.d.refusal(&m)
	}
	return c.pool.Session(ctx, node, m.Session, who)
}

// names returns the names of all nodes that are known.
func (c *cluster) names() []string {
	var names []string
	for _, m := range c.members.Members() {
		names = append(names, string(m.Node))
	}
	return names
}

// reachable reports whether a node's daemon is worth asking.
func (c *cluster) reachable(node bb.NodeID) bool {
	m, ok := c.members.Member(node)
	return node == c.d.cfg.Node || ok && answers(m.State)
}

// ask makes a request of a node's daemon on behalf of a user.
func (c *cluster) ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error {
	s, err := c.session(ctx, node, whoOf(as))
	if err != nil {
		return err
	}
	_, err = s.Ask(ctx, typ, m, nil, reply)
	return err
}

// others returns the nodes besides this one whose daemons answer, and can be asked.
func (c *cluster) others() []bb.NodeID { return c.nodes(asks) }

// nodes returns those besides this one that fit.
func (c *cluster) nodes(fits func(*gossip.Member) bool) []bb.NodeID {
	var nodes []bb.NodeID
	for _, m := range c.members.Members() {
		if m.Node != c.d.cfg.Node && fits(&m) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// whoOf is whom a session with another daemon acts for.
func whoOf(c access.Caller) peer.Who { return peer.Who{UID: c.UID, GID: c.GIDs[0], System: c.System} }

// home returns the node that decides about a file.
func (b *buffer) home(e *bb.Entry) bb.NodeID {
	if len(e.Holders) == 0 {
		return b.d.cfg.Node
	}
	return e.Holders[0]
}

// foreign reports whether another daemon is a file's home.
func (b *buffer) foreign(e *bb.Entry) bool {
	return b.d.cluster != nil && !e.IsDir() && !e.Lost && b.home(e) != b.d.cfg.Node
}

// adoptable reports whether a file whose home is another daemon may be changed without
// it: it has nothing to lose, and nothing on its way to the store.
func adoptable(e *bb.Entry) bool { return e.State() == bb.StateClean || e.Lost }

// errMoved says that the home of a file is not the daemon that was asked: the one who
// asks looks again.
func errMoved(op, path string) error {
	return bb.E(bb.Busy, op, path, "the file has moved to another node meanwhile").WithRemedy("try again")
}

// maxMoves is how often a file's home is looked up again for one request.
const maxMoves = 5

// atHome carries an operation on a name out where the home of what has the name is:
// there with ask, or here with local. A clean file whose home does not answer is
// changed here.
func (b *buffer) atHome(ctx context.Context, c access.Caller, op, path string, at place, ask func(*peer.Session) error, local func() error) error {
	if b.d.cluster == nil {
		return local()
	}
	var (
		asked   bb.NodeID
		refused error
	)
	for range maxMoves {
		e, err := b.ns.Lookup(ctx, at.dir, at.name)
		switch {
		case err != nil:
			return bb.Wrap(op, b.address(path), err)
		case !b.foreign(&e):
			err := local()
			if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
				return err
			}
			if now, lookupErr := b.ns.Lookup(ctx, at.dir, at.name); lookupErr != nil || !b.foreign(&now) {
				return err
			}
			refused = err // it has moved meanwhile
			continue
		case c.Relayed:
			return errMoved(op, b.address(path))
		case b.home(&e) == asked:
			return refused // it is there still, and busy
		}
		s, err := b.d.cluster.session(ctx, b.home(&e), whoOf(c))
		if bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil && adoptable(&e) {
			return local()
		}
		if err == nil {
			err = ask(s)
		}
		if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
			return err
		}
		asked, refused = b.home(&e), err
	}
	return refused
}

// lookUpBuffer takes a buffer up that another daemon has made.
func (d *Daemon) lookUpBuffer(ctx context.Context, name string) (*buffer, error) {
	unlock, err := d.buffers.changing.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d.buffers.Lock()
	b := d.buffers.byName[name]
	d.buffers.Unlock()
	if b != nil {
		return b, nil
	}
	spec, err := d.meta.Buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	return d.takeUp(ctx, spec)
}

// followBuffers hears of the buffers that other daemons change and destroy; also of those that
// they have destroyed since this one took them up.
func (d *Daemon) followBuffers() {
	for d.ctx.Err() == nil {
		d.buffers.Lock()
		known := slices.Collect(maps.Keys(d.buffers.byName))
		d.buffers.Unlock()
		err := d.meta.WatchBuffers(d.ctx, known, d.bufferChanged)
		if d.ctx.Err() == nil {
			d.log.Warn("following the buffers that others change", "err", err)
			select {
			case <-time.After(time.Second):
			case <-d.ctx.Done():
			}
		}
	}
}

func (d *Daemon) bufferChanged(now meta.BufferChange) {
	unlock, err := d.buffers.changing.lock(d.ctx, now.Name)
	if err != nil {
		return // the daemon stops
	}
	defer unlock()
	d.buffers.Lock()
	b := d.buffers.byName[now.Name]
	d.buffers.Unlock()
	if b == nil {
		return // taken up when somebody asks for it
	}
	known := b.current.Load()
	same := now.Buffer != nil && now.Buffer.Created.Equal(known.Created)
	if same && now.Buffer.Revision > known.Revision {
		spec := *now.Buffer
		b.current.Store(&spec)
	}
	older := now.Buffer != nil && now.Buffer.Created.Before(known.Created)
	if same || older {
		return
	}
	if now.Buffer == nil {
		// It may have been made anew under its name since.
		if _, err := d.meta.Buffer(d.ctx, now.Name); bb.KindOf(err) != bb.NotFound {
			return // the watch tells of that, too
		}
	}
	d.buffers.Lock()
	delete(d.buffers.byName, now.Name)
	d.buffers.Unlock()
	d.dropBuffer(b)
}

// dialFabric connects to the one-sided fabric of another daemon.
func (d *Daemon) dialFabric(ctx context.Context, w *wire.Welcome, address string) (rdma.Conn, error) {
	to := route.New(route.Offer{
		TCP: address, OFI: w.OfiAddress,
		Provider: w.OfiProvider, Endpoint: w.OfiEndpoint, Network: w.OfiNetwork,
	}, route.Options{
		PeerTimeout: fabricSilence, Log: d.log, TLS: d.cfg.TLS.Client(),
		Authenticate: func(_ context.Context, stream net.Conn) error {
			return wire.ShowTicket(stream, w.Session, w.DataTicket)
		},
	})
	conn, way, err := to.Dial(ctx)
	if err != nil {
		to.Close()
		return nil, err
	}
	return &ownedConn{conn, to, way}, nil
}

// transfer carries one-sided operations out, and counts what they have moved.
func (d *Daemon) transfer(ctx context.Context, conn rdma.Conn, ops []rdma.Op) error {
	if err := rdma.Do(ctx, conn, ops); err != nil {
		return err
	}
	var read, written int64
	for i := range ops {
		if ops[i].Kind == rdma.OpRead {
			read += int64(len(ops[i].Local))
		} else {
			written += int64(len(ops[i].Local))
		}
	}
	way := "tcp"
	if c, ok := conn.(*ownedConn); ok {
		way = c.way
	}
	d.observe.metrics.Moved(way, read, written)
	return nil
}

// fabricSilence is how long another daemon's fabric may be silent.
const fabricSilence = 10 * time.Second

// ownedConn is a connection whose route was made for it alone.
type ownedConn struct {
	rdma.Conn
	route *route.Route
	way   string // as route.Dial names it
}

// Close closes both.
func (c *ownedConn) Close() error { return errors.Join(c.Conn.Close(), c.route.Close()) }

// heldThere are flushes that rest at other daemons.
type heldThere struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	nodes  sync.Map // bb.NodeID: those that hold
}

// holds reports whether a node was asked, and still holds.
func (h *heldThere) holds(node bb.NodeID) bool {
	_, ok := h.nodes.Load(node)
	return ok
}

// holdAt has daemons rest their flushes under some paths, until release is called.
func (b *buffer) holdAt(ctx context.Context, nodes []bb.NodeID, paths ...string) (*heldThere, error) {
	return b.holdWith(ctx, nodes, &wire.Hold{Buffer: b.name, Paths: paths})
}

// holdWith makes a request to hold of daemons, which lasts until release is called.
func (b *buffer) holdWith(ctx context.Context, nodes []bb.NodeID, m *wire.Hold) (*heldThere, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &heldThere{cancel: cancel}
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		h.ended.Go(func() {
			s, err := b.d.cluster.session(ctx, node, whoOf(access.Daemon()))
			if m, ok := b.d.cluster.members.Member(node); err != nil && ok && (m.State == gossip.Starting || m.State == gossip.Leaving) {
				answers <- nil // it does not serve: it looks its paths up before it flushes, or is done
				return
			}
			if err != nil {
				answers <- err
				return
			}
			told := false
			err = s.Stream(ctx, wire.Type_TYPE_HOLD, m, nil, func(peer.Answer) error {
				if !told {
					h.nodes.Store(node, true)
					answers <- nil
				}
				told = true
				return nil
			})
			h.nodes.Delete(node)
			if !told {
				answers <- err
			}
		})
	}
	for range nodes {
		if err := <-answers; err != nil {
			h.release()
			return nil, err
		}
	}
	return h, nil
}

func (h *heldThere) release() {
	h.cancel()
	h.ended.Wait()
}

// hold rests flushes while another daemon renames or removes names.
func (d *Daemon) hold(ctx context.Context, r *request, m *wire.Hold) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "hold", m.Buffer)
	if err != nil {
		return nil, err
	}
	if m.Freeze {
		thaw, err := b.freeze(ctx)
		if err != nil {
			return nil, err
		}
		defer func() {
			if r.s.ctx.Err() == nil {
				thaw()
			} else {
				b.d.thawLater(thaw)
			}
		}()
	}
	held, err := d.flusher.Hold(ctx, b.name, m.Paths...)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	// An object that a cancelled flush left should be removed before the other daemon may
	// have one there. If the store does not answer, the other one does not wait for that:
	// whether it may be removed is asked again when it comes to it (stray). Renames and
	// removals that are still to be carried out are kept in order by the namespace.
	patience, cancel := context.WithTimeout(ctx, sweptPatience)
	err = held.Swept(patience)
	cancel()
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err := r.more(&wire.Empty{}, nil); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return &wire.Empty{}, nil
}

// sweptPatience is how long a hold that another daemon asks for waits for the store.
const sweptPatience = time.Second

// daemonsBuffer is buffer for requests that only daemons may make.
func (d *Daemon) daemonsBuffer(ctx context.Context, r *request, op, name string) (*buffer, error) {
	if !r.s.cred.Relayed || !r.s.cred.System {
		return nil, access.Denied(op, bb.Address{Buffer: name}.String(), "ask what daemons ask of each other")
	}
	return d.buffer(ctx, name)
}

// discard forgets bytes that do not count any more, unless the namespace says that they do.
func (d *Daemon) discard(ctx context.Context, r *request, m *wire.Discard) (proto.Message, error) {
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
		dirty, _ := b.dirty.of(file)
		b.dropFile(&bb.Entry{File: file, Generation: dirty.generation})
		return &wire.Empty{}, nil
	}
	n := bb.Generation(m.Generation)
	b.dirty.forget(file, n)
	b.d.flusher.Forget(flusher.Key{Buffer: b.name, File: file, Generation: n})
	b.d.store.DropGeneration(file, n)
	return &wire.Empty{}, nil
}

// mayDiscard refuses to drop bytes that count. The request may be late, or come from a node
// that was declared dead: this one is the file's home by now. The namespace has the last
// word, and its server is asked, because a cache may be behind the request.
func (d *Daemon) mayDiscard(ctx context.Context, r *request, b *buffer, file bb.FileID, n bb.Generation) error {
	id, ok := b.d.store.IdentityOf(file)
	if !ok {
		return nil // a second copy that was never this node's own
	}
	e, err := b.ns.LookupAgain(ctx, id.Dir, id.Name)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	x := discarded{file: file, generation: n, acked: id.Generation, node: b.d.cfg.Node, asks: r.s.peer}
	if err == nil && e.File == file {
		x.entry, x.home, x.second = &e, b.home(&e), replicaOf(&e)
	}
	if !x.counts() {
		return nil
	}
	b.d.log.Warn("refused to discard bytes that count", "path", b.address(id.Path), "file", file, "generation", n, "asked by", r.s.peer)
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
		_ = b.d.cluster.ask(ctx, node, access.Daemon(), wire.Type_TYPE_DISCARD,
			&wire.Discard{Buffer: b.name, File: uint64(file), Generation: uint64(n)}, nil)
	})
}

// holdOthers has other daemons rest the flushes that a rename would meet: of a
// directory, all of them; of a file, the home of what it replaces.
func (b *buffer) holdOthers(ctx context.Context, at, target place, from, to string) (*heldThere, error) {
	none := &heldThere{cancel: func() {}}
	if b.d.cluster == nil || b.spec().Backing == "" {
		return none, nil
	}
	e, err := b.ns.Lookup(ctx, at.dir, at.name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		// One that serves, and cannot be asked to rest, has the rename fail.
		everybody := b.d.cluster.nodes(func(m *gossip.Member) bool { return answers(m.State) })
		return b.holdAt(ctx, everybody, from, to)
	}
	replaced, err := b.ns.Lookup(ctx, target.dir, target.name)
	if err == nil && b.foreign(&replaced) && !adoptable(&replaced) {
		return b.holdAt(ctx, []bb.NodeID{b.home(&replaced)}, to)
	}
	return none, nil
}

// discardReplaced tells the home of a file that a rename replaced, while it is held.
func (b *buffer) discardReplaced(ctx context.Context, e *bb.Entry) {
	if e == nil || e.IsDir() || !b.foreign(e) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := b.d.cluster.ask(ctx, b.home(e), access.Daemon(), wire.Type_TYPE_DISCARD, &wire.Discard{Buffer: b.name, File: uint64(e.File)}, nil)
	if err != nil {
		b.d.log.Warn("telling a file's home that it was replaced", "file", e.File, "node", b.home(e), "err", err)
	}
}
