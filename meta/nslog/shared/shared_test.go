package shared_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
)

func prepare(t *testing.T, d *daemon) {
	t.Helper()
	if err := d.tree.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}); err != nil {
		t.Fatal(err)
	}
}

func claim(t *testing.T, d *daemon) {
	t.Helper()
	if err := d.tree.Claim(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
}

// TestConformance runs the suite on trees that do not own the log, over a network that loses
// nothing and over one that does, while two owners replace each other.
func TestConformance(t *testing.T) {
	for name, odds := range map[string]int{"one owner": 0, "owners in turns": 20} {
		t.Run(name, func(t *testing.T) {
			namespacetest.Test(t, func(t *testing.T) namespacetest.Open {
				c := inProcess(t, newNetwork(1, odds), shared.Options{Lease: 20 * time.Millisecond, CheckpointBytes: 20_000})
				owners := []*daemon{c.start("o1", 0), c.start("o2", 0)}
				claim(t, owners[0])
				prepare(t, owners[0])
				if odds > 0 {
					ctx, cancel := context.WithCancel(t.Context())
					var turns sync.WaitGroup
					turns.Go(func() { c.takeTurns(ctx, owners, 300) })
					t.Cleanup(func() {
						cancel()
						turns.Wait()
					})
				}
				return func(node bb.NodeID) namespace.Tree { return patient{c.start(node, 1).tree} }
			})
		})
	}
}

// patient is a tree whose caller checks an operation before it is struck out or taken over. Sent
// again after a lost answer, these calls find nothing left to do.
type patient struct{ namespace.Tree }

func (p patient) DoneStoreOp(ctx context.Context, revision uint64) (bool, error) {
	was, err := p.StoreOpPending(ctx, revision)
	if err == nil {
		_, err = p.Tree.DoneStoreOp(ctx, revision)
	}
	return was && err == nil, err
}

func (p patient) TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error) {
	ops, err := p.StoreOps(ctx)
	if err != nil {
		return 0, err
	}
	for _, op := range ops {
		if op.By == from {
			taken++
		}
	}
	_, err = p.Tree.TakeOverStoreOps(ctx, from)
	return taken, err
}

// takeTurns has each of several daemons claim the log, another one after so many calls.
func (c *cluster) takeTurns(ctx context.Context, owners []*daemon, calls int64) {
	for i := 1; ; i++ {
		for next := c.net.served.Load() + calls; c.net.served.Load() < next; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				return
			}
		}
		if err := owners[i%len(owners)].tree.Claim(ctx); err != nil && ctx.Err() == nil {
			c.t.Error(err)
		}
	}
}

// A daemon that is drained hands its callers to the next one, which does not wait.
func TestRelease(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Hour})
	a, b, user := c.start("a", 0), c.start("b", 1), c.start("user", 2)
	claim(t, a)
	prepare(t, user)
	file := namespacetest.Create(t, user.tree, bb.RootDir, "f")
	if err := a.tree.Release(ctx); err != nil {
		t.Fatal(err)
	}
	claim(t, b) // or the test ends
	for _, d := range []*daemon{a, b, user} {
		if e, err := d.tree.Lookup(ctx, bb.RootDir, "f"); err != nil || e.File != file.File {
			t.Errorf("%s finds %+v (%v)", d.node, e, err)
		}
	}
}

// TestDestroyedMeanwhile: a call that waits for the log when its namespace is destroyed is told that, and not that the owner
// has released the log.
func TestDestroyedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Hour})
	a := c.start("a", 0)
	claim(t, a)
	prepare(t, a)
	a.log.all.close()
	told, asked := make(chan error, 8), new(atomic.Int64)
	for i := range cap(told) {
		go func() {
			asked.Add(1)
			_, err := a.tree.Mkdir(ctx, bb.RootDir, fmt.Sprint("d", i), namespace.Owner{Mode: 0o755})
			told <- err
		}()
	}
	for a.log.all.waiting.Load() == 0 || asked.Load() < int64(cap(told)) { // the others wait behind the first
		time.Sleep(time.Millisecond)
	}
	a.tree.MarkDestroyed()
	ended := make(chan struct{})
	go func() { a.tree.End(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Second): // less than a release may take
		t.Error("the end waits for the log")
	}
	a.log.all.open()
	for range cap(told) {
		if err := <-told; err != nil && !errors.Is(err, bb.NotFound) {
			t.Error(err)
		}
	}
	<-ended
	if h, err := owner.Newest(ctx, a.log); err != nil || h.Released {
		t.Errorf("a log that nobody claims any more is released: %+v (%v)", h, err)
	}
}

// Callers wait while there is no owner, and get that error at their own deadline. Calls that were
// not sent were not carried out.
func TestNoOwner(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Millisecond, Patience: 50 * time.Millisecond})
	a, user := c.start("a", 0), c.start("user", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := user.tree.Create(ctx, namespacetest.File(bb.RootDir, "f")); bb.KindOf(err) != bb.Unavailable || errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change of a namespace that nobody owns: %v", err)
	}
	user.log.all.close()
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := user.tree.Lookup(ctx, bb.RootDir, "f"); bb.KindOf(err) != bb.Unavailable || !errors.Is(err, kv.ErrNoServer) {
		t.Errorf("a look-up without the server: %v", err)
	}
	user.log.all.open()
	claim(t, a)
	prepare(t, a)
	a.calls.close()
	ctx, end := context.WithCancelCause(t.Context())
	go func() {
		for c.net.served.Load() < 3 { // one finds the incarnation, one is not answered
			time.Sleep(time.Millisecond)
		}
		end(context.DeadlineExceeded)
	}()
	if _, err := user.tree.Create(ctx, namespacetest.File(bb.RootDir, "f")); bb.KindOf(err) != bb.Unavailable || !errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change that an owner does not answer: %v", err)
	}
	a.calls.open()
}

// Step claims a log that needs it, at one of several daemons.
func TestStep(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: 10 * time.Millisecond})
	daemons := []*daemon{c.start("a", 0), c.start("b", 1), c.start("c", 2)}
	step := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, d := range daemons {
			all.Go(func() {
				for again := time.Duration(1); again > 0; {
					var err error
					if again, err = d.tree.Step(ctx, c.members()); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(again)
				}
			})
		}
		all.Wait()
	}
	step()
	prepare(t, daemons[0])
	for len(daemons) > 1 {
		for i, d := range daemons {
			if d.tree.Owns() {
				c.kill(d)
				daemons = append(daemons[:i:i], daemons[i+1:]...)
				break
			}
		}
		step()
		if _, err := daemons[0].tree.Root(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// If another daemon has taken the log from a daemon again and again, that does not claim it at once
// when the other is missing. A daemon that released the log does.
func TestTakenAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{false, true} {
		ctx := metatest.Context(t)
		c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Millisecond})
		a, b := c.start("a", 0), c.start("b", 1)
		for i := range 3 {
			claim(t, a)
			prepare(t, a)
			if released {
				if err := a.tree.Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
			claim(t, b)
			// The owner before finds out.
			if _, err := a.tree.Mkdir(ctx, bb.RootDir, fmt.Sprint("d", i), namespace.Owner{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			if _, err := a.tree.Step(ctx, c.members()); err != nil {
				t.Fatal(err)
			}
		}
		again, err := a.tree.Step(ctx, []turn.Member{{Node: "a"}, {Node: "b", Away: true}})
		if err != nil || a.tree.Owns() != released || (again > time.Second) == released {
			t.Errorf("given up: %v; owns the log %v, tries again after %v (%v)", released, a.tree.Owns(), again, err)
		}
	}
}

// Before the owner answers, two other daemons hold all that the owner has appended. If one of them
// ends, the next one does, and if it was restarted, it gets all again.
func TestHold(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Millisecond})
	var mu sync.Mutex
	held := map[bb.NodeID]map[uint64]bool{}
	c.net.sees = func(to bb.NodeID, call *calls.Call) {
		if call.Op != calls.OpHold {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if held[to] == nil {
			held[to] = map[uint64]bool{}
		}
		for i := range call.Changes {
			held[to][call.Changes[i].Expected] = true
		}
	}
	a := c.start("a", 0)
	for i, node := range []bb.NodeID{"b", "c", "d"} {
		c.start(node, i+1)
	}
	claim(t, a)
	prepare(t, a)
	want := func(what, name string, n int) []bb.NodeID {
		t.Helper()
		namespacetest.Create(t, a.tree, bb.RootDir, name)
		mu.Lock()
		defer mu.Unlock()
		last, err := owner.Newest(metatest.Context(t), a.log)
		if err != nil {
			t.Fatal(err)
		}
		holders, _ := a.tree.Holders()
		if len(holders) != n || slices.Contains(holders, "a") {
			t.Errorf("%s: %v hold records", what, holders)
		}
		for _, holder := range holders {
			err = a.log.Read(metatest.Context(t), "log", 1, last.Seq, func(m stream.Message) error {
				if !held[holder][m.Seq] {
					t.Errorf("%s: %q does not hold record %d", what, holder, m.Seq)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return holders
	}
	want("at first", "f", 2)
	first := want("after some changes", "g", 2)[0]
	c.kill(c.net.daemon(first))
	second := want("when that daemon has ended", "h", 2)
	if slices.Contains(second, first) {
		t.Errorf("%s is dead, and holds records", first)
	}
	c.kill(c.net.daemon(second[0]))
	want("when one is left", "i", 1)
	mu.Lock()
	delete(held, second[0])
	mu.Unlock()
	c.start(second[0], 3)
	for i := range 100 { // until the pause after a failure is over
		namespacetest.Create(t, a.tree, bb.RootDir, fmt.Sprint("i", i))
		if holders, _ := a.tree.Holders(); len(holders) == 2 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if again := want("when that daemon was restarted", "j", 2); !slices.Contains(again, second[0]) {
		t.Errorf("%v hold records, want %s", again, second[0])
	}
	c.kill(c.net.daemon(second[0]))
	c.kill(c.net.daemon(second[1]))
	want("when no other daemon answers", "k", 0)
}

// A daemon that claims the log requests the records of all others, suspected ones too.
func TestHeldByAll(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{Lease: time.Millisecond})
	var mu sync.Mutex
	asked := map[bb.NodeID]bool{}
	c.net.sees = func(to bb.NodeID, call *calls.Call) {
		mu.Lock()
		defer mu.Unlock()
		if call.Op == calls.OpHeld {
			asked[to] = true
		}
	}
	c.away = "b"
	for i, node := range []bb.NodeID{"a", "b", "c"} {
		c.start(node, i)
	}
	claim(t, c.net.daemon("a"))
	if !asked["b"] || !asked["c"] || len(asked) != 2 {
		t.Errorf("asked are %v", asked)
	}
}
