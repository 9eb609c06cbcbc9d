// Package gossip spreads the members of the cluster, their addresses and their usage: hints for placement and
// suspicion, never truth about data. It spreads one small record a daemon with memberlist, whose only
// importer it is. It must never depend on buffers, files or leases.
package gossip

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"forebay/internal/bb"
)

const (
	// remember is the time for which absent members are listed, and searched if they left without a
	// goodbye.
	remember = 24 * time.Hour
	// maxGone bounds the number of absent members on record.
	maxGone = 16384
	// reclaim is the time that a member must have been dead before another address may take its
	// name. It is short, since memberlist has waited already.
	reclaim = time.Second
	// leaveTime bounds a goodbye whose context has no deadline.
	leaveTime = 5 * time.Second
)

// Options are our own record in gossip, and the members to contact.
type Options struct {
	Node bb.NodeID
	// Listen is host:port for UDP and TCP. Port 0 takes any that is free.
	Listen string
	// Advertise is the address for others, host:port. "" for Listen, or a private
	// address of this node where Listen is every one.
	Advertise string
	// Join lists addresses of other members. Any one of them is enough:
	//
	//	host:port,host:port   these, all addresses of each name
	//	dns:name:port         all addresses of a name
	//	file:/path            one of these a line, # for comments
	//	slurm:NODELIST:port   the nodes of a job; slurm:port uses SLURM_JOB_NODELIST
	Join []string
	// JoinWait bounds the wait of Start for the first answer. 0: 3 seconds. Without
	// an answer, joining continues in the background.
	JoinWait time.Duration
	// Keys are of 16, 24 or 32 bytes. The first encrypts, all decrypt. See Key.
	Keys [][]byte
	// Insecure allows to listen beyond loopback without keys.
	Insecure bool
	// WAN has more patience, for members far apart.
	WAN    bool
	Logger *slog.Logger // default: discard

	tune      func(*memberlist.Config)                         // for tests
	transport func(*slog.Logger) (memberlist.Transport, error) // for tests
	retry     time.Duration                                    // for tests: the longest pause between attempts to join
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	bad := func(what, why, remedy string) {
		errs = append(errs, bb.E(bb.Invalid, "gossip", what, why).WithRemedy(remedy))
	}
	if o.Node == "" || len(o.Node) > bb.MaxName {
		bad(string(o.Node), "is not the name of a node", "set one of at most "+strconv.Itoa(bb.MaxName)+" bytes")
	}
	if o.transport == nil {
		host, _, err := net.SplitHostPort(o.Listen)
		if err != nil {
			bad(o.Listen, "is not host:port", "such as 10.0.0.1:7946")
		} else if len(o.Keys) == 0 && !o.Insecure && !loopback(host) {
			bad(o.Listen, "is beyond loopback and there is no cluster key", "make one with bbctl cluster init")
		}
	}
	if o.Advertise != "" {
		if _, _, ok := splitAddress(o.Advertise); !ok {
			bad(o.Advertise, "is not host:port", "such as 10.0.0.1:7946")
		}
	}
	for _, j := range o.Join {
		if _, err := parseSources(j); err != nil {
			errs = append(errs, err)
		}
	}
	if err := checkKeys(o.Keys); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Gossip is one member's part in it. Its methods may be called concurrently.
//
// Its goroutines are memberlist's, one that publishes and one that joins. The last two are waited
// for by Close.
type Gossip struct {
	options   Options
	log       *slog.Logger
	list      *memberlist.Memberlist
	keyring   *memberlist.Keyring // nil: no encryption
	keysMu    sync.Mutex
	pace      pace
	stats     counters
	kick      chan struct{} // something to publish
	firstTry  chan struct{} // closed after the first round of joining
	joining   atomic.Bool   // a join is under way and none has succeeded yet
	ctx       context.Context
	cancel    context.CancelFunc
	wait      sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
	address   string
	spreading sync.Mutex // held by spread; of two at once, the older record might win

	// down orders memberlist's Leave before its Shutdown, after which Leave panics.
	down struct {
		sync.Mutex
		is bool
	}

	mu struct {
		sync.Mutex
		self    Member
		said    Member // the part of it that has been spread
		saidAt  uint32
		rumours rumours
		members map[bb.NodeID]*seen
		sorted  []*seen // the same by node, as thousands are listed often and change seldom
		there   int     // of them are not gone
		byHash  map[uint64]bb.NodeID
		changed chan struct{}
		leaving bool
		closed  bool
		err     error
	}
}

// seen is our record of another member.
type seen struct {
	Member
	said    State // its own word
	address string
	usage   usage // its own report
	readErr bool  // its record could not be read
}

type counters struct {
	garbage, conflicts, suspicions, suppressed, published atomic.Uint64
}

// Stats are figures since the start.
type Stats struct {
	Members    int    // that are there, this one included
	Gone       int    // on record
	Garbage    uint64 // records that could not be read
	Conflicts  uint64 // times that two daemons had one name
	Suspicions uint64 // times that a member did not answer this one
	Published  uint64 // times that this one spread its record
	Suppressed uint64 // log lines left out
	Health     int    // memberlist's score of this node's own reaction time: 0 is good
}

// Start joins gossip until Close. It tries once and then returns. Joining continues until a member answers, and after
// partitions.
//
// A daemon with the name of another one is refused. Start returns bb.Exists, or, where that is
// found out later, Done is closed and Err returns it. It leaves without a goodbye, which would be
// the other one's. If both were members already (two halves that meet), neither is put out. Each
// member keeps the one in its list, and every meeting is counted and logged.
func Start(ctx context.Context, o Options, self Member) (*Gossip, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gossip{options: o, log: o.Logger, kick: make(chan struct{}, 1), firstTry: make(chan struct{})}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.mu.members, g.mu.byHash = map[bb.NodeID]*seen{}, map[uint64]bb.NodeID{}
	g.mu.changed = make(chan struct{})
	if err := g.set(self); err != nil {
		return nil, err
	}
	// Its life is from here to Close. ctx bounds only the start.
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := g.create(ctx); err != nil {
		g.cancel()
		return nil, err
	}
	g.wait.Go(g.publish)
	g.wait.Go(g.join)
	wait := time.NewTimer(cmp.Or(o.JoinWait, 3*time.Second))
	defer wait.Stop()
	select {
	case <-g.firstTry:
	case <-wait.C:
	case <-ctx.Done():
		return nil, errors.Join(bb.Wrap("gossip", string(o.Node), ctx.Err()), g.Close())
	}
	if err := g.Err(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// create starts memberlist.
func (g *Gossip) create(ctx context.Context) error {
	o := &g.options
	c := memberlist.DefaultLANConfig()
	if o.WAN {
		c = memberlist.DefaultWANConfig()
	}
	g.pace = newPace(o)
	c.Name = string(o.Node)
	c.Logger = newLogger(&logWriter{to: g.log, limit: rate.NewLimiter(2, 20), stats: &g.stats, suspect: g.suspected})
	// memberlist compresses each packet by itself, with a table of 80 KB made anew. It is off,
	// since records are small, and compute nodes have better uses for memory bandwidth.
	c.EnableCompression = false
	c.DeadNodeReclaimTime = reclaim
	d := &delegate{g}
	c.Delegate, c.Events, c.Conflict, c.Ping, c.Alive = d, d, d, d, d
	ring, err := newKeyring(o.Keys)
	if err != nil {
		return err
	}
	g.keyring, c.Keyring = ring, ring
	if o.tune != nil {
		o.tune(c)
	}
	if err := g.bind(ctx, c); err != nil {
		return err
	}
	if g.list, err = memberlist.Create(c); err != nil {
		return errors.Join((&bb.Error{Kind: bb.Unavailable, Op: "gossip", Path: o.Listen, Err: err}).
			WithRemedy("if it listens on every address, set the one to advertise"), c.Transport.Shutdown())
	}
	g.address = g.list.LocalNode().Address() // memberlist may write to it from here on
	return nil
}

// set makes m our own record.
func (g *Gossip) set(m Member) error {
	m.Node = g.options.Node
	m.Memory, m.Disk = m.Memory.rounded(), m.Disk.rounded()
	if !m.State.own() {
		return bb.E(bb.Invalid, "gossip", string(m.Node), "a daemon cannot call itself "+m.State.String())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.leaving {
		m.State = Leaving
	}
	if _, err := encode(&m, 0); err != nil { // so that NodeMeta cannot fail
		return err
	}
	old := &g.mu.self
	m.Since = old.Since
	if old.State != m.State {
		m.Since = time.Now()
	}
	if *old != m {
		*old = m
		g.announce()
	}
	return nil
}

// rounded returns a record as others will read it.
func (t Tier) rounded() Tier {
	down := func(n int64) int64 { return max(0, n) / mebibyte * mebibyte }
	return Tier{down(t.Capacity), down(t.Free), down(min(max(0, t.Dirty), math.MaxInt64-mebibyte) + mebibyte - 1)}
}

// announce wakes the waiters for changes. g.mu must be held.
func (g *Gossip) announce() {
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// Update replaces our own record. Others receive a new state or address at once, bytes in the pace
// that the cluster's size allows (see pace), and only their 255ths of the capacity. It does not
// block. An error means that nothing has changed. The record does not fit, or a daemon may not
// report its state of itself. After Leave the state stays leaving.
func (g *Gossip) Update(self Member) error {
	if err := g.set(self); err != nil {
		return err
	}
	select {
	case g.kick <- struct{}{}:
	default:
	}
	return nil
}

// Changed returns a channel that is closed at the next change of any member. Take it before looking
// at the members. Then no change is missed.
func (g *Gossip) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.changed
}

// Members lists all members by node: this one, the present ones, and those that
// were present within the last day.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Member, len(g.mu.sorted)+1)
	self, _ := g.find(g.mu.self.Node)
	for i, s := range g.mu.sorted[:self] {
		all[i] = s.Member
	}
	all[self] = g.mu.self
	for i, s := range g.mu.sorted[self:] {
		all[self+1+i] = s.Member
	}
	return all
}

// Member returns one of them.
func (g *Gossip) Member(node bb.NodeID) (Member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if node == g.options.Node {
		return g.mu.self, true
	}
	s, ok := g.mu.members[node]
	if !ok {
		return Member{}, false
	}
	return s.Member, true
}

// find returns where a node is, or would be, among the sorted. g.mu must be held.
func (g *Gossip) find(node bb.NodeID) (at int, there bool) {
	return slices.BinarySearchFunc(g.mu.sorted, node, func(s *seen, node bb.NodeID) int { return cmp.Compare(s.Node, node) })
}

// add adds a node that is new. g.mu must be held.
func (g *Gossip) add(node bb.NodeID) *seen {
	s := &seen{Member: Member{Node: node}}
	at, _ := g.find(node)
	g.mu.sorted = slices.Insert(g.mu.sorted, at, s)
	g.mu.members[node] = s
	g.mu.byHash[nodeHash(node)] = node
	return s
}

// drop removes a node. g.mu must be held.
func (g *Gossip) drop(node bb.NodeID) {
	if at, there := g.find(node); there {
		g.mu.sorted = slices.Delete(g.mu.sorted, at, at+1)
	}
	delete(g.mu.members, node)
	delete(g.mu.byHash, nodeHash(node))
}

// Stats returns figures.
func (g *Gossip) Stats() Stats {
	s := Stats{
		Garbage: g.stats.garbage.Load(), Conflicts: g.stats.conflicts.Load(), Suspicions: g.stats.suspicions.Load(),
		Published: g.stats.published.Load(), Suppressed: g.stats.suppressed.Load(), Health: g.list.GetHealthScore(),
	}
	s.Members, s.Gone = g.count()
	return s
}

// count returns how many members are there, this one included, and how many gone.
func (g *Gossip) count() (there, gone int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.there + 1, len(g.mu.members) - g.mu.there
}

// Addr is the address for others, host:port.
func (g *Gossip) Addr() string { return g.address }

// Done is closed when this member has left for good, after Close, or because another daemon has its
// name.
func (g *Gossip) Done() <-chan struct{} { return g.ctx.Done() }

// Err returns the reason why Done was closed, or nil after Close alone.
func (g *Gossip) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.err
}

// Leave sends a goodbye, so that the others need not detect the end by themselves, and waits
// until that has been sent or ctx ends, five seconds at most. Close comes after it.
func (g *Gossip) Leave(ctx context.Context) error {
	g.mu.Lock()
	if g.mu.leaving || g.mu.closed {
		g.mu.Unlock()
		return nil
	}
	g.mu.leaving = true
	self := g.mu.self
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	done := make(chan error, 1)
	g.wait.Go(func() {
		self.State = Leaving // without it, a goodbye resembles a death
		done <- errors.Join(g.set(self), g.goodbye(deadline))
	})
	g.mu.Unlock()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return &bb.Error{Kind: bb.Unavailable, Op: "leave gossip", Path: string(g.options.Node), Err: err}
	}
	return nil
}

func (g *Gossip) goodbye(deadline time.Time) error {
	g.spread(max(time.Until(deadline)/2, time.Millisecond))
	g.down.Lock()
	defer g.down.Unlock()
	if g.down.is {
		return nil
	}
	return g.list.Leave(max(time.Until(deadline), time.Millisecond))
}

// Close stops taking part, without a goodbye, for which there is Leave. It is idempotent.
func (g *Gossip) Close() error {
	g.closeOnce.Do(func() {
		g.mu.Lock()
		g.mu.closed = true
		g.mu.Unlock()
		g.cancel()
		g.wait.Wait()
		g.closeErr = g.shutdown()
	})
	return g.closeErr
}

func (g *Gossip) shutdown() error {
	g.down.Lock()
	defer g.down.Unlock()
	g.down.is = true
	return bb.Wrap("gossip", string(g.options.Node), g.list.Shutdown())
}

// refuse ends this member's part because another daemon has its name.
func (g *Gossip) refuse(other string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.err == nil {
		g.mu.err = bb.E(bb.Exists, "gossip", string(g.options.Node), "another daemon has this name, at "+other).
			WithRemedy("give one of them another name; if the other has stopped, start again in a minute")
		g.log.Error("gossip: refused", "error", g.mu.err)
	}
	g.cancel()
}

// jitter returns between half of d and d, so that nodes started together part.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
