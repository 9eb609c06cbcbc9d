package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"forebay/internal/bb"
	"forebay/internal/porttest"
	"forebay/meta"
	"forebay/meta/ops"
	"forebay/meta/txn"
)

var clusterKey = bytes.Repeat([]byte("k"), 32)

// trio is three servers on loopback, each with a directory and addresses of its own.
type trio struct {
	t       *testing.T
	options [3]Options
	servers [3]*Server
}

func newTrio(t *testing.T) *trio {
	c := &trio{t: t}
	var routes []string
	for range c.options {
		routes = append(routes, freeAddress(t))
	}
	for i := range c.options {
		c.options[i] = Options{
			Name: fmt.Sprint("s", i), Dir: t.TempDir(), Listen: freeAddress(t), Key: clusterKey,
			Cluster: &Cluster{Listen: routes[i], Routes: routes},
		}
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	return c
}

// freeAddress returns an address without a listener.
func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := porttest.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func (c *trio) start(i int) {
	c.t.Helper()
	s, err := Start(longContext(c.t), c.options[i])
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = s
}

func (c *trio) stop(i int) {
	if c.servers[i] != nil {
		c.servers[i].Shutdown()
		c.servers[i] = nil
	}
}

// leader returns which server leads a stream, or the cluster for "".
func (c *trio) leader(stream string) int {
	c.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for i, s := range c.servers {
			if s != nil && (stream == "" && s.server().JetStreamIsLeader() || stream != "" && s.server().JetStreamIsStreamLeader("$G", stream)) {
				return i
			}
		}
	}
	c.t.Fatalf("nobody leads %q", stream)
	return 0
}

// connect returns a client with the addresses of all servers, of which it tries one first.
func (c *trio) connect(first int) *meta.Meta {
	c.t.Helper()
	return mustConnect(c.t, meta.Options{URLs: c.urls(first), ClusterKey: clusterKey})
}

func (c *trio) urls(first int) []string {
	var urls []string
	for i := range c.options {
		urls = append(urls, "nats://"+c.options[(first+i)%3].Listen)
	}
	return urls
}

func mustConnect(t *testing.T, o meta.Options) *meta.Meta {
	t.Helper()
	o.Replicas = 3
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	m, err := meta.Connect(longContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func longContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustNamespace(t *testing.T, m *meta.Meta, buffer string) *txn.Tree {
	t.Helper()
	ns, err := m.Namespace(longContext(t), buffer)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// writer creates files one after the other, and records which were acknowledged.
type writer struct {
	ns    *txn.Tree
	m     *meta.Meta
	name  string
	acked []string
	n     atomic.Int64
}

func (w *writer) run(ctx context.Context, t *testing.T) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", w.name, i)
		id, err := w.m.IDs().NewFileID(ctx)
		if err == nil {
			_, err = w.ns.Create(ctx, bb.Entry{Parent: bb.RootDir, Name: name, Type: bb.TypeFile, File: id})
		}
		switch {
		case err == nil:
			w.acked = append(w.acked, name)
			w.n.Add(1)
		case ctx.Err() == nil:
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

// progress waits until every writer had some more acknowledged.
func progress(t *testing.T, writers []*writer) {
	t.Helper()
	before := make([]int64, len(writers))
	for i, w := range writers {
		before[i] = w.n.Load() + 5
	}
	deadline := time.Now().Add(40 * time.Second)
	for i, w := range writers {
		for w.n.Load() < before[i] {
			if time.Now().After(deadline) {
				t.Fatalf("writer %d stands still", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// A cluster continues without any one of its servers and keeps acknowledged changes. Without two of
// them operations fail at their deadline, until one is back.
func TestClusterOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take long under the race detector; TestListen starts one")
	}
	c := newTrio(t)
	// All start at once, in empty folders, and so do their users.
	var clients [3]*meta.Meta
	var wg sync.WaitGroup
	for i := range c.servers {
		wg.Go(func() { c.start(i) })
		wg.Go(func() { clients[i] = c.connect(i) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	inside := mustConnect(t, meta.Options{InProcess: c.servers[0]})
	if _, err := inside.CreateBuffer(longContext(t), bb.Buffer{Name: "buf"}); err != nil {
		t.Fatal(err)
	}
	inside.Close()
	stream := ""
	for deadline := time.Now().Add(10 * time.Second); stream == "" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, name := range c.servers[0].streams() {
			if strings.HasPrefix(name, "KV_forebay-buf-") {
				stream = name
			}
		}
	}

	ctx, stop := context.WithCancel(longContext(t))
	defer stop()
	var writers []*writer
	var writing sync.WaitGroup
	for i, m := range clients {
		w := &writer{ns: mustNamespace(t, m, "buf"), m: m, name: fmt.Sprint("w", i)}
		writers = append(writers, w)
		writing.Go(func() { w.run(ctx, t) })
	}
	progress(t, writers)
	for _, leads := range []string{"", stream} {
		i := c.leader(leads)
		t.Logf("stopping s%d, which leads %q", i, leads)
		c.stop(i)
		progress(t, writers)
		c.start(i)
		progress(t, writers)
	}
	checkJob(t, c, clients)
	stop()
	writing.Wait()

	// Clients of the server that was restarted last find everything, as do clients of the others.
	for i := range c.servers {
		m := mustConnect(t, meta.Options{URLs: c.urls(i)[:1], ClusterKey: clusterKey})
		got := names(t, mustNamespace(t, m, "buf"))
		for _, w := range writers {
			for _, name := range w.acked {
				if !got[name] {
					t.Errorf("s%d does not know %s, which was acknowledged", i, name)
				}
			}
		}
		m.Close()
	}

	left := c.leader(stream)
	for i := range c.servers {
		if i != left {
			c.stop(i)
		}
	}
	m := clients[left]
	ns := mustNamespaceOf(writers, m)
	short, cancel := context.WithTimeout(longContext(t), 3*time.Second)
	defer cancel()
	began := time.Now()
	_, err := ns.Create(short, bb.Entry{Parent: bb.RootDir, Name: "alone", Type: bb.TypeFile, File: 1})
	if bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), c.options[left].Listen) && !strings.Contains(err.Error(), "127.0.0.1:") {
		t.Errorf("create with one server of three: %v", err)
	}
	_, err = ns.Lookup(short, bb.RootDir, writers[0].acked[0])
	wantKind(t, err, bb.Unavailable) // one server alone cannot confirm this
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("they failed after %v", d)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := ns.Create(longContext(t), bb.Entry{Parent: bb.RootDir, Name: "waited", Type: bb.TypeFile, File: 2})
		waited <- err
	}()
	c.start((left + 1) % 3)
	if err := <-waited; err != nil {
		t.Errorf("create that waited: %v", err)
	}
	if _, err := ns.Lookup(longContext(t), bb.RootDir, "waited"); err != nil {
		t.Error(err)
	}
}

// Servers that lead more than twice their share hand some over while clients write, and
// acknowledged changes stay.
func TestClusterLeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take long under the race detector; TestEvenOut says what is handed over")
	}
	c := newTrio(t)
	var wg sync.WaitGroup
	for i := range c.servers {
		wg.Go(func() { c.start(i) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	m := c.connect(0)
	ctx, stop := context.WithCancel(longContext(t))
	defer stop()
	var writers []*writer
	var writing sync.WaitGroup
	const buffers = 9
	for i := range buffers {
		name := fmt.Sprint("buf", i)
		if _, err := m.CreateBuffer(ctx, bb.Buffer{Name: name}); err != nil {
			t.Fatal(err)
		}
		w := &writer{ns: mustNamespace(t, m, name), m: m, name: name}
		writers = append(writers, w)
		writing.Go(func() { w.run(ctx, t) })
	}
	progress(t, writers)
	lead := func() (counts [3]int) {
		for _, stream := range c.servers[0].streams() {
			counts[c.leader(stream)]++
		}
		return counts
	}
	// The first is made to lead nearly all.
	for deadline := time.Now().Add(40 * time.Second); lead()[0] < buffers-1; time.Sleep(200 * time.Millisecond) {
		for _, stream := range c.servers[0].streams() {
			if i := c.leader(stream); i > 0 {
				_ = c.servers[i].server().JetStreamStepdownStream("$G", stream)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("they lead %v", lead())
		}
	}
	if leads := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return !c.servers[i].Leads() }); len(leads) != 1 {
		t.Errorf("servers %v lead the cluster", leads)
	}
	before := lead()
	moved, err := m.EvenLeaders(ctx)
	if err != nil || moved < 3 {
		t.Fatalf("%d are handed over (%v) where they lead %v", moved, err, before)
	}
	after := lead()
	for deadline := time.Now().Add(20 * time.Second); slices.Max(after[:]) > 5; after = lead() {
		if time.Now().After(deadline) {
			t.Fatalf("they led %v and lead %v", before, after)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("they led %v and lead %v", before, after)
	progress(t, writers)
	if moved, err := m.EvenLeaders(ctx); err != nil || moved > 0 {
		t.Errorf("then %d more are handed over (%v)", moved, err)
	}
	stop()
	writing.Wait()
	for _, w := range writers {
		got := names(t, w.ns)
		for _, name := range w.acked {
			if !got[name] {
				t.Errorf("%s was acknowledged and is gone", name)
			}
		}
	}
}

// checkJob has a job done while the server goes that leads its queue.
func checkJob(t *testing.T, c *trio, clients [3]*meta.Meta) {
	t.Helper()
	ctx := longContext(t)
	var tasks []ops.Task
	for i := range 6 {
		tasks = append(tasks, ops.Task{ID: fmt.Sprint("t", i), Bytes: 10})
	}
	id, err := clients[0].Operations().Submit(ctx, ops.Operation{Kind: ops.Drain, Buffer: "buf"}, tasks...)
	if err != nil {
		t.Fatal(err)
	}
	held, err := clients[1].Operations().Next(ctx, "", "n1")
	if err != nil {
		t.Fatal(err)
	}
	i := c.leader("forebay_tasks")
	c.stop(i)
	if err := held.Done(ctx, ops.Tally{Bytes: 10}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(tasks); n++ {
		l, err := clients[n%3].Operations().Next(ctx, "", bb.NodeID(fmt.Sprint("n", n%3)))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Done(ctx, ops.Tally{Bytes: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := clients[2].Operations().Status(ctx, id); err != nil || s.State != ops.Done || s.Tally.Bytes != 60 {
		t.Errorf("%+v %v", s, err)
	}
	c.start(i)
}

func mustNamespaceOf(writers []*writer, m *meta.Meta) *txn.Tree {
	return writers[slices.IndexFunc(writers, func(w *writer) bool { return w.m == m })].ns
}

func (e *Server) streams() (names []string) {
	info, err := e.server().Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil // it starts or stops
	}
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			names = append(names, s.Name)
		}
	}
	return names
}

func names(t *testing.T, ns *txn.Tree) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	if err := ns.Scan(longContext(t), bb.RootDir, func(e bb.Entry) error { got[e.Name] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

// Without the cluster key a program is neither a client nor a server of the cluster.
func TestClusterKey(t *testing.T) {
	s, err := Start(testContext(t), Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Key: clusterKey})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	other := bytes.Repeat([]byte("o"), 32)
	for what, key := range map[string][]byte{"another": other, "none": nil} {
		ctx, cancel := context.WithTimeout(testContext(t), 500*time.Millisecond)
		m, err := meta.Connect(ctx, meta.Options{URLs: []string{s.URL()}, ClusterKey: key})
		cancel()
		if err == nil {
			m.Close()
			t.Errorf("%s: connected", what)
		} else if strings.Contains(err.Error(), string(key)) && key != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	use(t, meta.Options{URLs: []string{s.URL()}, ClusterKey: clusterKey}, "buf")
	use(t, meta.Options{InProcess: s, ClusterKey: clusterKey}, "inside")
}

func TestListenBeyondLoopback(t *testing.T) {
	routes := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}
	for what, c := range map[string]struct {
		change func(*Options)
		good   bool
	}{
		"with a key":         {func(o *Options) { o.Key = clusterKey }, true},
		"without":            {func(*Options) {}, false},
		"a short key":        {func(o *Options) { o.Key = []byte("short") }, false},
		"no name":            {func(o *Options) { o.Key, o.Name = clusterKey, "" }, false},
		"two servers":        {func(o *Options) { o.Key, o.Cluster.Routes = clusterKey, routes[:2] }, false},
		"a route of no port": {func(o *Options) { o.Key, o.Cluster.Routes = clusterKey, []string{"a", "b:1", "c:1"} }, false},
		"nowhere to listen":  {func(o *Options) { o.Key, o.Cluster.Listen = clusterKey, "" }, false},
	} {
		o := Options{Dir: "d", Name: "n", Listen: "0.0.0.0:4222", Cluster: &Cluster{Listen: "10.0.0.1:1", Routes: routes}}
		c.change(&o)
		if err := o.Validate(); (err == nil) != c.good || err != nil && !errors.Is(err, bb.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
