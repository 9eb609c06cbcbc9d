package gossip

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"forebay/internal/bb"
)

// in makes a member part of a network in memory.
func in(n *network, i int) func(*Options) {
	return func(o *Options) {
		o.transport = func(*slog.Logger) (memberlist.Transport, error) { return n.open(address(i)), nil }
	}
}

// Two halves that have long dropped each other meet again, though one of them has no seed of the
// other.
func TestPartition(t *testing.T) {
	n := newNetwork()
	var all []*Gossip
	for i := range 6 {
		all = append(all, start(t, i, in(n, i), all[:min(i, 1)]...))
	}
	untilStates(t, "n0=ready n1=ready n2=ready n3=ready n4=ready n5=ready", all...)

	right := []string{address(3), address(4), address(5)}
	n.partition(func(a string) bool { return slices.Contains(right, a) })
	untilStates(t, "n0=ready n1=ready n2=ready n3=dead n4=dead n5=dead", all[:3]...)
	untilStates(t, "n0=dead n1=dead n2=dead n3=ready n4=ready n5=ready", all[3:]...)
	m := member(4)
	m.State = Draining
	if err := all[4].Update(m); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=dead n1=dead n2=dead n3=ready n4=draining n5=ready", all[3:]...)
	for _, g := range all { // until memberlist itself has dropped the others
		until(t, g, "forgets the dead", func() bool { return len(g.list.Members()) == 3 })
	}

	n.partition(nil)
	untilStates(t, "n0=ready n1=ready n2=ready n3=ready n4=draining n5=ready", all...)
}

// Two clusters that grew apart find each other through seeds.
func TestSeedsOfTwoClusters(t *testing.T) {
	n := newNetwork()
	n.partition(func(a string) bool { return a == address(2) || a == address(3) })
	seeds := func(i int) func(*Options) {
		return func(o *Options) {
			in(n, i)(o)
			o.Join = []string{address(0) + "," + address(2)}
			o.JoinWait = 100 * time.Millisecond
		}
	}
	var all []*Gossip
	for i := range 4 {
		all = append(all, start(t, i, seeds(i)))
	}
	untilStates(t, "n0=ready n1=ready", all[:2]...)
	untilStates(t, "n2=ready n3=ready", all[2:]...)
	n.partition(nil)
	untilStates(t, "n0=ready n1=ready n2=ready n3=ready", all...)
}

// Where two members of one name meet, neither is put out.
func TestOneNameInTwoHalves(t *testing.T) {
	n := newNetwork()
	n.partition(func(a string) bool { return a == address(2) || a == address(3) })
	named := func(i int, node bb.NodeID) func(*Options) {
		return func(o *Options) { in(n, i)(o); o.Node = node }
	}
	a := start(t, 0, named(0, "a"))
	x := start(t, 1, named(1, "x"), a)
	b := start(t, 2, named(2, "b"))
	y := start(t, 3, func(o *Options) {
		named(3, "x")(o)
		o.Join = []string{address(2) + "," + address(0)}
	})
	untilStates(t, "a=ready x=ready", a, x)
	untilStates(t, "b=ready x=ready", b, y)
	n.partition(nil)
	untilStates(t, "a=ready b=ready x=ready", a, b, x, y)
	for _, g := range []*Gossip{x, y} {
		until(t, g, "a conflict is counted", func() bool { return g.Stats().Conflicts > 0 })
		if g.Err() != nil {
			t.Errorf("put out: %v", g.Err())
		}
	}
	if m, _ := a.Member("x"); m.Instance != 2 {
		t.Errorf("a took the other x for its own: %+v", m)
	}
}

// A member that one other cannot reach is suspect there, until it answers again.
func TestSuspect(t *testing.T) {
	n := newNetwork()
	slow := func(i int) func(*Options) {
		return func(o *Options) {
			in(n, i)(o)
			o.tune = func(c *memberlist.Config) {
				brisk(c)
				c.SuspicionMult = 1000
			}
		}
	}
	a := start(t, 0, slow(0))
	b := start(t, 1, slow(1), a)
	untilStates(t, "n0=ready n1=ready", a, b)
	n.partition(func(at string) bool { return at == address(1) })
	untilStates(t, "n0=ready n1=suspect", a)
	if m, _ := a.Member("n1"); m.Session == "" || a.Stats().Suspicions == 0 {
		t.Errorf("a suspect's addresses are gone: %+v, %+v", m, a.Stats())
	}
	n.partition(nil)
	untilStates(t, "n0=ready n1=ready", a, b)
}

// A member with an unreadable record is listed, with an unknown state.
func TestGarbage(t *testing.T) {
	n := newNetwork()
	a := start(t, 0, in(n, 0))
	c := memberlist.DefaultLANConfig()
	brisk(c)
	c.Name, c.Transport, c.Logger, c.SecretKey = "n1", n.open(address(1)), newLogger(&logWriter{to: slog.New(slog.DiscardHandler)}), testKey
	c.Delegate = meta{bytes.Repeat([]byte{0xff}, 300)}
	stranger, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Shutdown() }()
	if _, err := stranger.Join([]string{a.Addr()}); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=unknown", a)
	if m, _ := a.Member("n1"); m.Session != "" || m.Memory != (Tier{}) {
		t.Errorf("n1 is %+v", m)
	}
	if a.Stats().Garbage == 0 {
		t.Error("no garbage was counted")
	}
}

type meta struct{ b []byte }

func (m meta) NodeMeta(int) []byte           { return m.b }
func (meta) NotifyMsg([]byte)                {}
func (meta) GetBroadcasts(int, int) [][]byte { return nil }
func (meta) LocalState(bool) []byte          { return nil }
func (meta) MergeRemoteState([]byte, bool)   {}

// Random bytes at its port do no harm.
func TestStrangers(t *testing.T) {
	a := start(t, 0, nil)
	b := start(t, 1, func(o *Options) { o.Keys = [][]byte{testKey, bytes.Repeat([]byte{8}, 16)} }, a)
	random := rand.NewChaCha8([32]byte{1})
	for range 200 {
		packet := make([]byte, 1+rand.IntN(1400))
		_, _ = random.Read(packet)
		for _, kind := range []string{"udp", "tcp"} {
			c, err := net.Dial(kind, a.Addr())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(packet)
			_ = c.Close()
		}
	}
	m := member(1)
	m.State = Draining
	if err := b.Update(m); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=draining", a, b)
	until(t, a, "cuts the flood of log lines", func() bool { return a.Stats().Suppressed > 0 })
}

func TestInstall(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	keys := func(s string) (all [][]byte) {
		for i := range len(s) {
			all = append(all, key(s[i]))
		}
		return all
	}
	for _, c := range []struct{ from, to string }{{"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"abc", "c"}, {"abcd", "dc"}, {"abcd", "bd"}, {"a", "b"}, {"ab", "cd"}, {"abcde", "ace"}} {
		ring, err := newKeyring(keys(c.from))
		if err != nil {
			t.Fatal(err)
		}
		before := ring.GetKeys()
		held := slices.Clone(before)
		if err := install(ring, keys(c.to)); err != nil {
			t.Error(err)
		}
		var got []string
		for _, k := range ring.GetKeys() {
			got = append(got, string(k[:1]))
		}
		if !bytes.Equal(ring.GetPrimaryKey(), key(c.to[0])) {
			t.Errorf("%s to %s: %v encrypts", c.from, c.to, got[0])
		}
		slices.Sort(got)
		if want := []byte(c.to); strings.Join(got, "") != string(slices.Sorted(slices.Values(want))) {
			t.Errorf("%s to %s: got %v", c.from, c.to, got)
		}
		for i := range held { // a goroutine may be decrypting with it
			if !bytes.Equal(held[i], before[i]) {
				t.Errorf("%s to %s: key %d changed under its reader", c.from, c.to, i)
			}
		}
	}
}

func TestKey(t *testing.T) {
	a, err := Key([]byte("a cluster key of thirty-two bytes"))
	if err != nil || len(a) != 32 || bytes.Contains([]byte("a cluster key of thirty-two bytes"), a) {
		t.Errorf("got %x, %v", a, err)
	}
	if b, err := Key([]byte("a cluster key of thirty-two bytez")); err != nil || bytes.Equal(a, b) {
		t.Errorf("two cluster keys give one: %v", err)
	}
	if _, err := Key([]byte("short")); err == nil {
		t.Error("a short key is taken")
	}
}

func TestDue(t *testing.T) {
	p := newPace(&Options{})
	said := Member{Node: "n", State: Ready, Memory: Tier{160 << 20, 80 << 20, 0}}
	with := func(f func(*Member)) Member { m := said; f(&m); return m }
	for name, c := range map[string]struct {
		want Member
		gap  time.Duration
		what news
	}{
		"nothing":   {said, 0, nothing},
		"since":     {with(func(m *Member) { m.Since = time.Now() }), 0, nothing},
		"state":     {with(func(m *Member) { m.State = Draining }), 0, words},
		"address":   {with(func(m *Member) { m.Admin = "a:1" }), 0, words},
		"little":    {with(func(m *Member) { m.Memory.Free -= 9 << 20 }), 8 * time.Minute, figures},
		"much":      {with(func(m *Member) { m.Memory.Free -= 10 << 20 }), time.Minute, figures},
		"full":      {with(func(m *Member) { m.Memory.Free = 0 }), time.Minute, figures},
		"dirty":     {with(func(m *Member) { m.Memory.Dirty = 1 << 20 }), time.Minute, figures},
		"disk":      {with(func(m *Member) { m.Disk.Capacity = 1 << 20 }), 0, words},
		"and state": {with(func(m *Member) { m.Memory.Free = 0; m.State = Leaving }), 0, words},
	} {
		if what, gap := p.due(said, c.want, 6000); gap != c.gap || what != c.what {
			t.Errorf("%s: got %v after %v", name, what, gap)
		}
	}
	if _, gap := p.due(said, with(func(m *Member) { m.Memory.Free = 0 }), 1); gap != p.least {
		t.Errorf("alone: %v", gap)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	var turns []int
	for i := range 80 {
		if b.turn() {
			turns = append(turns, i)
			b.settle(i != 47)
		}
	}
	if want := []int{0, 2, 6, 14, 30, 46, 62, 78}; !slices.Equal(turns, want) {
		t.Errorf("got %v, want %v", turns, want)
	}
	b.settle(false)
	if !b.turn() {
		t.Error("it skips turns that are not in vain")
	}
}

// Many updates become few messages, the last of them true.
func TestUpdatesAreThrottled(t *testing.T) {
	n := newNetwork()
	a := start(t, 0, in(n, 0))
	b := start(t, 1, in(n, 1), a)
	m := member(1)
	for i := range 1000 {
		m.Memory.Free = int64(1000-i) * (8 << 30) / 1000
		if err := b.Update(m); err != nil {
			t.Fatal(err)
		}
	}
	until(t, a, "the last figure arrives", func() bool { m, _ := a.Member("n1"); return m.Memory.Free == 0 })
	if n := b.Stats().Published; n > 5 {
		t.Errorf("published %d times", n)
	}
}

func TestForget(t *testing.T) {
	g := &Gossip{}
	g.mu.members, g.mu.byHash = map[bb.NodeID]*seen{}, map[uint64]bb.NodeID{}
	now := time.Now()
	put := func(i int, state State, age time.Duration) {
		node := bb.NodeID(fmt.Sprint(i))
		g.add(node).Member = Member{Node: node, State: state, Since: now.Add(-age)}
	}
	put(0, Ready, 2*remember)
	put(1, Dead, 2*remember)
	put(2, Left, 2*remember)
	for i := range maxGone + 2 {
		put(10+i, Dead, time.Duration(i)*time.Second)
	}
	g.forget(now)
	if len(g.mu.members) != maxGone+1 || g.mu.members["0"] == nil {
		t.Errorf("%d are remembered", len(g.mu.members))
	}
	if all := g.Members(); len(all) != maxGone+2 || !slices.IsSortedFunc(all, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) }) {
		t.Errorf("%d are listed, or in another order", len(all))
	}
	for _, i := range []int{maxGone + 10, maxGone + 11} {
		if g.mu.members[bb.NodeID(fmt.Sprint(i))] != nil {
			t.Errorf("the oldest, %d, is remembered", i)
		}
	}
}

// Everything at once, and closed in the middle of it.
func TestConcurrent(t *testing.T) {
	n := newNetwork()
	a := start(t, 0, in(n, 0))
	b := start(t, 1, in(n, 1), a)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for k := range 50 {
				m := member(1)
				m.Memory.Free = int64(i*k) << 20
				_ = b.Update(m)
				_, _, _, _ = b.Members(), b.Stats(), b.Changed(), b.Err()
				_ = b.UseKeys([][]byte{testKey, bytes.Repeat([]byte{byte(k)}, 32)})
				switch k {
				case 30:
					_ = b.Leave(t.Context())
				case 40:
					_ = b.Close()
				}
			}
		})
	}
	wait.Wait()
	untilStates(t, "n0=ready n1=left", a)
}
