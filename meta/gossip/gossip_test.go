package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"

	"forebay/internal/bb"
)

func TestMain(m *testing.M) {
	// memberlist does not wait for probes under way. They end with their interval.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		var err error
		for range 100 {
			if err = goleak.Find(); err == nil {
				break
			}
		}
		if err != nil && code == 0 {
			fmt.Println(err)
			code = 1
		}
		os.Exit(code)
	}))
}

// brisk makes memberlist detect changes in a second instead of ten.
func brisk(c *memberlist.Config) {
	c.ProbeInterval, c.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
	c.GossipInterval = 20 * time.Millisecond
	c.PushPullInterval = time.Second
	c.SuspicionMaxTimeoutMult = 2
	c.AwarenessMaxMultiplier = 2
	c.GossipToTheDeadTime = time.Second
}

func member(i int) Member {
	return Member{
		Instance: bb.InstanceID(i + 1), State: Ready,
		Session: fmt.Sprintf("10.0.0.%d:7100", i), Fabric: fmt.Sprintf("10.0.0.%d:7101", i), Admin: "localhost:7102",
		MinVersion: 1, MaxVersion: 2, Server: "v1.2.3",
		Memory: Tier{Capacity: 8 << 30, Free: 4 << 30, Dirty: 1 << 30},
	}
}

var testKey = bytes.Repeat([]byte{7}, 32)

// start starts member i, which joins through join, and closes it after the test.
func start(t *testing.T, i int, change func(*Options), join ...*Gossip) *Gossip {
	t.Helper()
	g, err := tryStart(t, i, change, join...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func tryStart(t *testing.T, i int, change func(*Options), join ...*Gossip) (*Gossip, error) {
	t.Helper()
	o := Options{
		Node: bb.NodeID(fmt.Sprintf("n%d", i)), Listen: "127.0.0.1:0", Keys: [][]byte{testKey}, tune: brisk,
		retry: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(newTestWriter(t), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, j := range join {
		o.Join = append(o.Join, j.Addr())
	}
	if change != nil {
		change(&o)
	}
	g, err := Start(t.Context(), o, member(i))
	if err == nil {
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return g, err
}

// testWriter writes to a test's log until the test ends. Goroutines of memberlist's with an answer
// to send end a moment after its Shutdown.
type testWriter struct {
	t  *testing.T
	mu sync.Mutex
}

func newTestWriter(t *testing.T) *testWriter {
	w := &testWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t = nil
	})
	return w
}

func (w *testWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// until waits until ok holds, looking again at each change of g.
func until(t *testing.T, g *Gossip, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		changed := g.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s: %s: sees %v", g.options.Node, what, states(g))
		}
	}
}

// states prints the members: "n0=ready n1=dead".
func states(g *Gossip) string {
	var all []string
	for _, m := range g.Members() {
		all = append(all, fmt.Sprintf("%s=%s", m.Node, m.State))
	}
	return strings.Join(all, " ")
}

func untilStates(t *testing.T, want string, all ...*Gossip) {
	t.Helper()
	for _, g := range all {
		until(t, g, "wants "+want, func() bool { return states(g) == want })
	}
}

func four(t *testing.T) []*Gossip {
	t.Helper()
	var all []*Gossip
	for i := range 4 {
		all = append(all, start(t, i, nil, all...))
	}
	untilStates(t, "n0=ready n1=ready n2=ready n3=ready", all...)
	return all
}

func TestJoinUpdateLeaveKill(t *testing.T) {
	all := four(t)
	a, b, c, d := all[0], all[1], all[2], all[3]

	want := member(3)
	want.Node = "n3"
	got, ok := a.Member("n3")
	if got.Since.IsZero() || time.Since(got.Since) > time.Minute {
		t.Errorf("ready since %v", got.Since)
	}
	got.Since = time.Time{}
	if !ok || got != want {
		t.Errorf("n0 knows %+v, want %+v", got, want)
	}

	m := member(1)
	m.State, m.Memory.Free = Draining, 1<<30+5
	if err := b.Update(m); err != nil {
		t.Fatal(err)
	}
	until(t, c, "n1 drains", func() bool {
		m, _ := c.Member("n1")
		return m.State == Draining && m.Memory.Free == 1<<30
	})

	if err := c.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=draining n2=left n3=ready", a, b, d)

	if err := d.Close(); err != nil { // no goodbye: as if killed
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=draining n2=left n3=dead", a, b)

	d2 := start(t, 3, nil, a) // at another address
	untilStates(t, "n0=ready n1=draining n3=ready", d2)
	untilStates(t, "n0=ready n1=draining n2=left n3=ready", a, b)
}

func TestKeys(t *testing.T) {
	all := four(t)
	fresh := bytes.Repeat([]byte{9}, 32)
	for _, keys := range [][][]byte{{testKey, fresh}, {fresh, testKey}, {fresh}} {
		for _, g := range all {
			if err := g.UseKeys(keys); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // some use the old ones still
		}
	}
	m := member(0)
	m.State = Draining
	if err := all[0].Update(m); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=draining n1=ready n2=ready n3=ready", all...)
	for _, g := range all {
		for _, m := range g.Members() {
			if m.State.Gone() {
				t.Errorf("%s has lost %s", g.options.Node, m.Node)
			}
		}
	}

	wait := func(o *Options) { o.JoinWait = 2 * time.Second }
	old := start(t, 4, wait, all...)
	plain := start(t, 5, func(o *Options) { wait(o); o.Keys = nil }, all...)
	for _, g := range []*Gossip{old, plain} {
		if there, _ := g.count(); there != 1 {
			t.Errorf("%s got in: it sees %s", g.options.Node, states(g))
		}
	}
	for _, g := range all {
		if len(g.Members()) != 4 {
			t.Errorf("%s sees %s", g.options.Node, states(g))
		}
	}
	if err := old.UseKeys([][]byte{fresh}); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=draining n1=ready n2=ready n3=ready n4=ready", all[0], old)
	if err := plain.UseKeys([][]byte{fresh}); !errors.Is(err, bb.Unsupported) {
		t.Errorf("encryption was switched on: %v", err)
	}
}

func TestKeysAreNotLogged(t *testing.T) {
	var log syncBuffer
	key := []byte("0123456789abcdef0123456789abcdef")
	change := func(o *Options) {
		o.Keys, o.Logger = [][]byte{key}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	a := start(t, 0, change)
	b := start(t, 1, change, a)
	start(t, 2, func(o *Options) { o.JoinWait = time.Second }, a)
	untilStates(t, "n0=ready n1=ready", a, b)
	if s := log.String(); s == "" || strings.Contains(s, string(key)) || strings.Contains(s, fmt.Sprint(key)) || strings.Contains(s, fmt.Sprintf("%x", key)) {
		t.Errorf("the log is empty or names the key:\n%s", s)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestOneNameTwice(t *testing.T) {
	a := start(t, 0, nil)
	b := start(t, 1, nil, a)
	untilStates(t, "n0=ready n1=ready", a, b)
	other := func(o *Options) { o.Node = "n1" }
	_, err := tryStart(t, 2, other, a)
	if !errors.Is(err, bb.Exists) || !strings.Contains(err.Error(), b.Addr()) {
		t.Errorf("a second n1: %v", err)
	}
	_, err = tryStart(t, 2, other, b) // sends a request to its namesake
	if !errors.Is(err, bb.Exists) {
		t.Errorf("a second n1, asking the first: %v", err)
	}
	untilStates(t, "n0=ready n1=ready", a, b)
	if m, _ := a.Member("n1"); m.Instance != 2 {
		t.Errorf("n1 is now %+v", m)
	}
	until(t, a, "a conflict is counted", func() bool { return a.Stats().Conflicts > 0 })
	if b.Err() != nil {
		t.Errorf("the first n1 was put out: %v", b.Err())
	}
}

// The cluster is found only after Start has returned.
func TestLateSeedAndLateRefusal(t *testing.T) {
	first := start(t, 0, nil)
	address := first.Addr()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	join := func(o *Options) { o.Join, o.JoinWait = []string{address}, 100*time.Millisecond }
	g := start(t, 1, join)
	twin := start(t, 2, func(o *Options) { join(o); o.Node = "n0" })
	first = start(t, 0, func(o *Options) { o.Listen = address })
	untilStates(t, "n0=ready n1=ready", g, first)
	select {
	case <-twin.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the second n0 goes on")
	}
	if !errors.Is(twin.Err(), bb.Exists) {
		t.Errorf("the second n0 ended with %v", twin.Err())
	}
	if err := twin.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	untilStates(t, "n0=ready n1=ready", g, first)
}

func TestValidate(t *testing.T) {
	for name, o := range map[string]Options{
		"no node":         {Listen: "127.0.0.1:0"},
		"no key":          {Node: "n", Listen: "10.0.0.1:7946"},
		"every address":   {Node: "n", Listen: ":7946"},
		"short key":       {Node: "n", Listen: "127.0.0.1:0", Keys: [][]byte{[]byte("short")}},
		"no port":         {Node: "n", Listen: "127.0.0.1"},
		"advertise":       {Node: "n", Listen: "127.0.0.1:0", Advertise: "here"},
		"bad seed":        {Node: "n", Listen: "127.0.0.1:0", Join: []string{"x"}},
		"bad hosts":       {Node: "n", Listen: "127.0.0.1:0", Join: []string{"slurm:n[1-:7946"}},
		"relative file":   {Node: "n", Listen: "127.0.0.1:0", Join: []string{"file:peers"}},
		"slurm, no port":  {Node: "n", Listen: "127.0.0.1:0", Join: []string{"slurm:n[1-2]"}},
		"a path, no host": {Node: "n", Listen: "127.0.0.1:0", Join: []string{"dns:name"}},
	} {
		if err := o.Validate(); !errors.Is(err, bb.Invalid) || strings.Contains(err.Error(), "short:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := Options{Node: "n", Listen: "10.0.0.1:7946", Insecure: true, Join: []string{"a:1,b:2", "dns:c:3", "file:/x", "slurm:n[1-2,4]:5", "slurm:5"}}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := Start(t.Context(), o, Member{State: Dead}); !errors.Is(err, bb.Invalid) {
		t.Errorf("a dead daemon starts: %v", err)
	}
}

func TestStartIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Node: "n", Listen: "127.0.0.1:0", Join: []string{"127.0.0.1:1"}, JoinWait: time.Hour}, member(0)); !errors.Is(err, bb.Cancelled) {
		t.Errorf("got %v", err)
	}
}
