package shared_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
)

// The assumptions of TestManyDaemons. Processors take no time.
const (
	simRoundTrip = 100 * time.Microsecond // of a call between two daemons
	simAppend    = 500 * time.Microsecond // of a record, by a server with copies
	simSuspect   = time.Second            // until gossip suspects a daemon that was killed
)

// The bounds of TestManyDaemons for any number of daemons. docs/scaling.md has the measurements.
const (
	coldBound   = 20 * simRoundTrip // a path of five directories, by all daemons at once
	renewBound  = 12                // calls of a daemon in ten seconds, in which it looks a path up all the time
	changeBound = 5 * time.Millisecond
	silentBound = 1100 * time.Millisecond // a change in a directory that a daemon without an answer has leases on
	holderBound = 1600 * time.Millisecond // the same, if that daemon is to hold the change
	killedBound = 5 * time.Second         // from the owner's death until all are served
)

// memoryLog is a log in memory. It is slow.
type memoryLog struct {
	mu       sync.Mutex
	messages map[string][]stream.Message // by subject, in the order of their sequences
	last     uint64
	appends  int
}

func (l *memoryLog) Append(_ context.Context, subject string, data []byte, f stream.Fence) (uint64, error) {
	time.Sleep(simAppend)
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.messages[f.Subject]; len(m) > 0 && m[len(m)-1].Seq != f.Last || len(m) == 0 && f.Last != 0 {
		return 0, &stream.Moved{Last: m[len(m)-1].Seq}
	}
	l.last++
	l.appends++
	l.messages[subject] = append(l.messages[subject], stream.Message{Subject: subject, Seq: l.last, Data: slices.Clone(data)})
	return l.last, nil
}

func (l *memoryLog) Last(_ context.Context, subject string) (m stream.Message, err error) {
	time.Sleep(simRoundTrip)
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.messages[subject]; len(all) > 0 {
		m = all[len(all)-1]
	}
	return m, nil
}

func (l *memoryLog) Read(_ context.Context, subject string, from, to uint64, fn func(stream.Message) error) error {
	time.Sleep(simRoundTrip)
	l.mu.Lock()
	all := slices.Clone(l.messages[subject])
	l.mu.Unlock()
	for _, m := range all {
		if m.Seq < from || m.Seq > to {
			continue
		}
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

func (l *memoryLog) At(context.Context, uint64) (stream.Message, error) {
	return stream.Message{}, errors.New("not simulated")
}

func (l *memoryLog) ReadAll(context.Context, uint64, func(stream.Message) error) error {
	return errors.New("not simulated")
}

func (l *memoryLog) PurgeBelow(context.Context, string, uint64) error { return nil }

// TestManyDaemons has many daemons share a log in one process: look-ups under leases, changes in a directory that all
// have leases on, creations by all at once, and the death of the owner. Time is synctest's. It passes when all goroutines
// wait. So the times are those of the protocol, on processors that are fast without limit.
//
// FOREBAY_DAEMONS=1000 has as many.
func TestManyDaemons(t *testing.T) {
	n := 30
	if s := os.Getenv("FOREBAY_DAEMONS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 4 {
			t.Fatalf("FOREBAY_DAEMONS=%q is not a number of daemons of 4 or more", s)
		}
	}
	synctest.Test(t, func(t *testing.T) { manyDaemons(t, n) })
}

// crowd is many daemons with one log, of which the first one owns it. Each watches it, and gossip suspects at once the
// one that is away.
type crowd struct {
	*testing.T
	cluster *cluster
	all     []*daemon
	log     *memoryLog
	calls   [256]atomic.Int64 // by their kind
	members atomic.Pointer[[]turn.Member]
	path    []string
}

func manyDaemons(t *testing.T, n int) {
	c := &crowd{T: t, log: &memoryLog{messages: map[string][]stream.Message{}}, path: []string{"a", "b", "c", "d", "e"}}
	net := newNetwork(1, 0)
	net.sees = func(_ bb.NodeID, call *calls.Call) {
		time.Sleep(simRoundTrip)
		c.calls[call.Op].Add(1)
	}
	c.cluster = &cluster{t: t, net: net, ids: &ids{}, log: c.log, failed: t.Errorf}
	var members []turn.Member
	for i := range n {
		d := c.cluster.start(bb.NodeID(fmt.Sprintf("n%04d", i)), 0)
		c.all, members = append(c.all, d), append(members, turn.Member{Node: d.node})
	}
	c.members.Store(&members)
	claim(t, c.all[0])
	prepare(t, c.all[0])
	c.watch()
	leaf := c.lookUps()
	c.change(leaf)
	c.creations()
	c.death()
}

// watch has each daemon claim the log when it is its turn.
func (c *crowd) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	for _, d := range c.all {
		watching.Go(func() {
			d.tree.Watch(ctx, shared.Surroundings{
				Members:   func() []turn.Member { return *c.members.Load() },
				Destroyed: func(context.Context) (bool, error) { return false, nil },
			})
		})
	}
	c.Cleanup(func() { cancel(); watching.Wait() })
}

// each has all daemons do the same at once, and returns how long it took each, in order.
func (c *crowd) each(all []*daemon, do func(i int, d *daemon) error) []time.Duration {
	took := make([]time.Duration, len(all))
	var doing sync.WaitGroup
	for i, d := range all {
		doing.Go(func() {
			began := time.Now()
			if err := do(i, d); err != nil {
				c.Errorf("%s: %v", d.node, err)
			}
			took[i] = time.Since(began)
		})
	}
	doing.Wait()
	slices.Sort(took)
	return took
}

// bounded logs times, and asserts that none is longer than a bound.
func (c *crowd) bounded(what string, took []time.Duration, bound time.Duration) {
	c.Helper()
	c.Logf("%s: median %v, longest %v", what, took[len(took)/2], took[len(took)-1])
	if longest := took[len(took)-1]; longest > bound {
		c.Errorf("%s took %v, over %v", what, longest, bound)
	}
}

// lookUps has all daemons look a path up, at first and for ten seconds. It returns the directory above its last name.
func (c *crowd) lookUps() (leaf bb.Entry) {
	if _, err := c.all[0].tree.MkdirAll(c.Context(), "a/b/c/d/e", namespace.Owner{Mode: 0o755}); err != nil {
		c.Fatal(err)
	}
	walk := func(_ int, d *daemon) error { _, err := d.walk(c.Context(), c.path); return err }
	c.each(c.all, walk) // the owner has granted none yet
	time.Sleep(5 * time.Second)
	c.bounded("a path of five directories, all look it up at once", c.each(c.all, walk), coldBound)
	before := c.calls[calls.OpLookup].Load()
	began := time.Now()
	var longest time.Duration
	for time.Since(began) < 10*time.Second {
		took := c.each(c.all, walk)
		longest = max(longest, took[len(took)-1])
		time.Sleep(100 * time.Millisecond)
	}
	sent := float64(c.calls[calls.OpLookup].Load()-before) / float64(len(c.all)-1)
	c.Logf("in ten seconds each daemon looked it up 100 times, with %.1f calls; the longest took %v", sent, longest)
	if sent > renewBound {
		c.Errorf("each daemon sent %.1f calls, over %d", sent, renewBound)
	}
	leaf, err := c.all[1].walk(c.Context(), c.path)
	if err != nil {
		c.Fatal(err)
	}
	return leaf
}

// change makes a name in a directory that all daemons have leases on: all answer, or one does not, which holds the log's
// end or not.
func (c *crowd) change(leaf bb.Entry) {
	holders, _ := c.all[0].tree.Holders()
	if len(holders) != 2 {
		c.Fatalf("%q hold the end of the log, want two", holders)
	}
	find := func(holds bool) *daemon {
		return c.all[slices.IndexFunc(c.all, func(d *daemon) bool { return d != c.all[0] && slices.Contains(holders, d.node) == holds })]
	}
	for i, at := range []struct {
		what   string
		silent *daemon
		bound  time.Duration
	}{
		{"all of which answer", nil, changeBound},
		{"of which one does not answer", find(false), silentBound},
		{"of which a holder of the log's end does not answer", find(true), holderBound},
	} {
		time.Sleep(5 * time.Second)
		c.each(c.all, func(_ int, d *daemon) error { _, err := d.walk(c.Context(), c.path); return err })
		if at.silent != nil {
			at.silent.calls.close()
		}
		before := c.calls[calls.OpRevoke].Load()
		took := c.each(c.all[:1], func(_ int, d *daemon) error {
			_, err := d.tree.Mkdir(c.Context(), leaf.Parent, fmt.Sprint("new-", i), namespace.Owner{Mode: 0o755})
			return err
		})
		if at.silent != nil {
			at.silent.calls.open()
		}
		c.bounded("a change in a directory that all have leases on, "+at.what, took, at.bound)
		if revoked := int(c.calls[calls.OpRevoke].Load() - before); revoked < len(c.all)-1 {
			c.Errorf("%d leases were revoked, not those of all other daemons", revoked)
		}
	}
}

// creations has all daemons make a name in one directory at once.
func (c *crowd) creations() {
	time.Sleep(5 * time.Second)
	c.log.mu.Lock()
	before := c.log.appends
	c.log.mu.Unlock()
	took := c.each(c.all, func(_ int, d *daemon) error {
		_, err := d.tree.Mkdir(c.Context(), bb.RootDir, "made-by-"+string(d.node), namespace.Owner{Mode: 0o755})
		return err
	})
	c.log.mu.Lock()
	records := c.log.appends - before
	c.log.mu.Unlock()
	c.bounded(fmt.Sprintf("a creation in one directory by each at once, in %d records", records), took, time.Second)
}

// death kills the owner. Gossip suspects it later.
func (c *crowd) death() {
	c.cluster.kill(c.all[0])
	left := c.all[1:]
	suspected := time.AfterFunc(simSuspect, func() {
		members := slices.Clone(*c.members.Load())
		members[0].Away = true
		c.members.Store(&members)
	})
	defer suspected.Stop()
	c.bounded("a creation by each that began at the owner's death", c.each(left, func(_ int, d *daemon) error {
		_, err := d.tree.Mkdir(c.Context(), bb.RootDir, "after-"+string(d.node), namespace.Owner{Mode: 0o755})
		return err
	}), killedBound)
	owners := 0
	for _, d := range left {
		if d.tree.Owns() {
			owners++
		}
	}
	if owners != 1 {
		c.Errorf("%d daemons own the log", owners)
	}
}
