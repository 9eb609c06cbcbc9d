package shared_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLost = errors.New("the network has lost it")

// network carries calls between daemons of one process. It loses, repeats and delays some.
type network struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	odds    int // one message of so many is disturbed; 0: none
	daemons map[bb.NodeID]*daemon
	late    sync.WaitGroup
	served  atomic.Int64                      // calls to owners that arrived
	sees    func(to bb.NodeID, c *calls.Call) // of tests, is called with each call; nil: none is
	keeps   bool                              // revocations of leases are acknowledged, and do not arrive
}

func newNetwork(seed uint64, odds int) *network {
	return &network{rnd: rand.New(rand.NewPCG(seed, 9)), odds: odds, daemons: map[bb.NodeID]*daemon{}}
}

func (n *network) find(node bb.NodeID) (d *daemon, fault int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.odds > 0 && n.rnd.IntN(n.odds) == 0 {
		fault = 1 + n.rnd.IntN(4)
	}
	return n.daemons[node], fault
}

func (n *network) daemon(node bb.NodeID) *daemon {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.daemons[node]
}

func (n *network) Call(ctx context.Context, to bb.NodeID, c *calls.Call) (*calls.Answer, error) {
	d, fault := n.find(to)
	if d == nil {
		return nil, errLost
	}
	if n.keeps && c.Op == calls.OpRevoke {
		return &calls.Answer{Status: calls.Served}, nil
	}
	if c.Op != calls.OpHold && c.Op != calls.OpHeld && c.Op != calls.OpRevoke {
		n.served.Add(1)
	}
	if n.sees != nil {
		n.sees(to, c)
	}
	if sent, is := ctx.Value(listCalls{}).(*atomic.Int64); is && c.Op == calls.OpList {
		sent.Add(1)
	}
	message := callCopy(c)
	switch fault {
	case 1: // the call is lost
		return nil, errLost
	case 2: // the answer is lost
		_, _ = d.handle(ctx, message)
		return nil, errLost
	case 3: // it arrives twice, at the same time
		n.late.Go(func() { _, _ = d.handle(context.WithoutCancel(ctx), message) })
	case 4: // it arrives late, when no call waits for the answer any more
		n.late.Go(func() {
			time.Sleep(20 * time.Millisecond)
			_, _ = d.handle(context.WithoutCancel(ctx), message)
		})
		return nil, errLost
	}
	a, err := d.handle(ctx, message)
	if err != nil {
		return a, err
	}
	if ctx.Err() != nil { // nobody waits for the answer any more
		return nil, context.Cause(ctx)
	}
	return answerCopy(a), nil
}

// callCopy returns a call as it arrives.
func callCopy(c *calls.Call) *calls.Call {
	b, err := calls.EncodeCall(c)
	if err != nil {
		panic(err)
	}
	got, err := calls.DecodeCall(b)
	if err != nil {
		panic(err)
	}
	return got
}

// answerCopy returns an answer as it arrives.
func answerCopy(a *calls.Answer) *calls.Answer {
	b, err := calls.EncodeAnswer(a)
	if err != nil {
		panic(err)
	}
	got, err := calls.DecodeAnswer(b)
	if err != nil {
		panic(err)
	}
	return got
}

// daemon is one of those that share a namespace. It can be killed, or held.
type daemon struct {
	node  bb.NodeID
	tree  *shared.Tree
	log   *faulty
	calls gate
	dead  chan struct{}
}

func (d *daemon) handle(ctx context.Context, c *calls.Call) (*calls.Answer, error) {
	select {
	case <-d.calls.opened():
	case <-d.dead:
	case <-ctx.Done():
	}
	select {
	case <-d.dead:
		return nil, errLost
	default:
		return d.tree.Handle(ctx, c), nil
	}
}

// gate is open until it is shut.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil: it is open
	waiting atomic.Int64  // calls that have found it shut
}

var open = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		return open
	}
	g.waiting.Add(1)
	return g.shut
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
	}
	g.shut = nil
}

// faulty is a log that can be out of reach, or hold its owner before or after an append.
type faulty struct {
	owner.Log
	all, before, after gate
	fault              fault
}

// fault is a fault of an engine under test, caused by its log.
type fault int

const (
	right    fault = iota
	noLease        // a new owner does not wait
	noFence        // appends are stored even if others have appended
	forgets        // outcomes are not stored
	noRevoke       // leases on directories that are changed stay
)

func (f *faulty) pass(ctx context.Context, gates ...*gate) error {
	for _, g := range gates {
		select {
		case <-g.opened():
		case <-ctx.Done():
			return &bb.Error{Kind: bb.Unavailable, Op: "log", Err: kv.ErrNoServer}
		}
	}
	return nil
}

func (f *faulty) Append(ctx context.Context, subject string, data []byte, fence stream.Fence) (uint64, error) {
	if err := f.pass(ctx, &f.all, &f.before); err != nil {
		return 0, err
	}
	if f.fault == forgets {
		data = forget(data)
	}
	seq, err := f.Log.Append(ctx, subject, data, fence)
	var moved *stream.Moved
	for f.fault == noFence && errors.As(err, &moved) {
		fence.Last = moved.Last
		seq, err = f.Log.Append(ctx, subject, data, fence)
	}
	if perr := f.pass(ctx, &f.all, &f.after); perr != nil {
		return 0, kv.ErrMaybeDone
	}
	return seq, err
}

// forget returns a record with outcomes under keys without a reader.
func forget(data []byte) []byte {
	kind, body, err := record.Open(data)
	if err != nil || kind != record.Changes {
		return data
	}
	h, effects, err := record.OpenHead(kind, body)
	if err != nil {
		return data
	}
	b := h.BeginChanges(nil)
	if _, err := record.Effects(effects, h.First, func(e record.Effect) error {
		key := slices.Clone(e.Key)
		if record.KindOf(key) == record.Outcomes {
			key[0] = byte(record.Other)
		}
		if e.Value == nil {
			b = record.AppendRemove(b, key)
		} else {
			b = record.AppendStore(b, key, e.Value)
		}
		return nil
	}); err != nil {
		return data
	}
	return record.Seal(b)
}

func (f *faulty) Last(ctx context.Context, subject string) (stream.Message, error) {
	if err := f.pass(ctx, &f.all); err != nil {
		return stream.Message{}, err
	}
	m, err := f.Log.Last(ctx, subject)
	if f.fault == noLease && err == nil && m.Seq != 0 && subject == "log" {
		if kind, body, err := record.Open(m.Data); err == nil {
			if h, _, err := record.OpenHead(kind, body); err == nil {
				h.Lease = 0
				m.Data = h.ClaimMessage()
			}
		}
	}
	return m, err
}

func (f *faulty) Read(ctx context.Context, subject string, from, to uint64, fn func(stream.Message) error) error {
	if err := f.pass(ctx, &f.all); err != nil {
		return err
	}
	var last uint64
	return f.Log.Read(ctx, subject, from, to, func(m stream.Message) error {
		if f.fault == noFence {
			m.Data = chained(m.Data, last)
			last = m.Seq
		}
		return fn(m)
	})
}

// chained returns a record that names the one before it, instead of the one it named.
func chained(data []byte, last uint64) []byte {
	kind, body, err := record.Open(data)
	if err != nil || last == 0 {
		return data
	}
	h, effects, err := record.OpenHead(kind, body)
	if err != nil {
		return data
	}
	h.Previous = last
	if kind == record.Claim {
		return h.ClaimMessage()
	}
	return record.Seal(append(h.BeginChanges(nil), effects...))
}

func (f *faulty) PurgeBelow(ctx context.Context, filter string, seq uint64) error {
	if err := f.pass(ctx, &f.all); err != nil {
		return err
	}
	return f.Log.PurgeBelow(ctx, filter, seq)
}

// cluster is daemons that share a namespace, and their other shared state.
type cluster struct {
	t       *testing.T
	net     *network
	connect func(node int) *conn.Conn
	log     owner.Log // nil: a stream of the server
	o       shared.Options
	fault   fault
	verbs   []verb // of a history, each as often as it is there; nil: all
	listed  int64  // listings of a history that were answered from memory
	ids     *ids

	away     bb.NodeID                        // that is suspected; "": none
	failed   func(format string, args ...any) // is called with a broken rule
	patience time.Duration
}

type ids struct{ last atomic.Uint64 }

func (i *ids) Next(context.Context) (uint64, error) { return i.last.Add(1) + 1<<20, nil }

// start starts a daemon, on a connection of its own. It ends with the test, if it is not killed.
func (c *cluster) start(node bb.NodeID, i int) *daemon {
	c.t.Helper()
	log := c.log
	if log == nil {
		s := stream.New(c.connect(i), "NS_buf")
		if err := s.Ensure(metatest.Context(c.t)); err != nil {
			c.t.Fatal(err)
		}
		log = s
	}
	d := &daemon{node: node, log: &faulty{Log: log, fault: c.fault}, dead: make(chan struct{})}
	o := c.o
	o.Buffer, o.Node, o.Logger = "buf", node, nil
	o.Log, o.Members, o.Hold = "NS_buf", c.members, time.Minute
	d.tree = shared.New(d.log, c.ids, c.net, o)
	c.net.mu.Lock()
	c.net.daemons[node] = d
	c.net.mu.Unlock()
	c.t.Cleanup(func() { c.kill(d) })
	return d
}

// kill ends a daemon. Nothing leaves it any more.
func (c *cluster) kill(d *daemon) {
	c.net.mu.Lock()
	if c.net.daemons[d.node] == d {
		delete(c.net.daemons, d.node)
	}
	c.net.mu.Unlock()
	select {
	case <-d.dead:
		return
	default:
		close(d.dead)
	}
	d.log.all.close()
	d.tree.Close()
}

// nodes returns the daemons that are up.
func (c *cluster) members() []turn.Member {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	var all []turn.Member
	for _, node := range slices.Sorted(maps.Keys(c.net.daemons)) {
		all = append(all, turn.Member{Node: node, Away: node == c.away})
	}
	return all
}

// inProcess returns a cluster on one server in this process.
func inProcess(t *testing.T, net *network, o shared.Options) *cluster {
	server := metatest.StartServer(t, t.TempDir())
	t.Cleanup(net.late.Wait)
	return &cluster{
		t: t, net: net, o: o, ids: &ids{}, failed: t.Errorf, patience: 5 * time.Minute,
		connect: func(int) *conn.Conn { return kvtest.Dial(t, conn.Options{InProcess: server}) },
	}
}
