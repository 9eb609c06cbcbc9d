package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/stream"
)

// contents is all that a namespace has.
type contents struct {
	entries map[bb.DirID]map[string]bb.Entry
	ops     []namespace.StoreOp
	root    bb.Entry
}

func contentsOf(t *testing.T, e *nslog.Engine) contents {
	t.Helper()
	ctx := metatest.Context(t)
	c := contents{entries: map[bb.DirID]map[string]bb.Entry{}}
	err := e.ScanAll(ctx, func(e bb.Entry) error {
		if c.entries[e.Parent] == nil {
			c.entries[e.Parent] = map[string]bb.Entry{}
		}
		c.entries[e.Parent][e.Name] = e
		return nil
	})
	if err == nil {
		c.ops, err = e.StoreOps(ctx)
	}
	if err == nil {
		c.root, err = e.Root(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// churn has several callers make changes at a time, each in a directory of its own and in one
// that they share.
func churn(t *testing.T, e *nslog.Engine, seed uint64) {
	t.Helper()
	ctx := metatest.Context(t)
	shared, err := e.MkdirAll(ctx, "shared", namespace.Owner{Mode: 0o755})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			own, err := e.MkdirAll(ctx, fmt.Sprint("own", i), namespace.Owner{Mode: 0o755})
			if err != nil {
				t.Error(err)
				return
			}
			for n := range 300 {
				dir, name := own.Dir, fmt.Sprint("f", rnd.IntN(60))
				if n%3 == 0 {
					dir, name = shared.Dir, fmt.Sprint(i, "-", rnd.IntN(60))
				}
				var err error
				switch rnd.IntN(4) {
				case 0:
					_, err = e.Create(ctx, namespacetest.File(dir, name))
				case 1:
					_, err = e.Update(ctx, dir, name, func(e *bb.Entry) error { e.Size++; e.Reason += "grows"; return nil })
				case 2:
					_, err = e.Rename(ctx, dir, name, shared.Dir, fmt.Sprint(i, "-", rnd.IntN(60)), namespace.RenameOptions{Replace: true, StoreOp: n%5 == 0})
				case 3:
					_, err = e.Remove(ctx, dir, name, namespace.RemoveOptions{StoreOp: n%5 == 0})
				}
				if k := bb.KindOf(err); err != nil && k != bb.NotFound && k != bb.Exists {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// Acknowledged changes are there after a start, after one that follows a checkpoint, and when an
// owner is replaced that was not closed, with any checkpoints made meanwhile.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"without checkpoints": 1 << 30, "with many": 4000, "with some": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStream(t, metatest.StartServer(t, t.TempDir()))
			o := nslog.Options{Node: "me", CheckpointBytes: size}
			e := openOn(t, s, o)
			for round := range uint64(4) {
				churn(t, e, round)
				if round == 1 {
					if err := e.Checkpoint(metatest.Context(t)); err != nil {
						t.Fatal(err)
					}
				}
				want := contentsOf(t, e)
				if round%2 == 0 {
					e.Close()
				}
				next := openOn(t, s, o)
				if got := contentsOf(t, next); !reflect.DeepEqual(got, want) {
					t.Fatalf("round %d: %d directories and %d operations, want %d and %d", round, len(got.entries), len(got.ops), len(want.entries), len(want.ops))
				}
				if round%2 != 0 {
					_, err := e.Mkdir(metatest.Context(t), bb.RootDir, "late", namespace.Owner{})
					if !errors.Is(err, owner.ErrReplaced) || bb.KindOf(err) != bb.Unavailable || errors.Is(err, bb.ErrUnknownOutcome) {
						t.Errorf("a change by an owner that was replaced: %v", err)
					}
					<-e.Ended()
					if _, err := e.Lookup(metatest.Context(t), bb.RootDir, "shared"); !errors.Is(err, owner.ErrReplaced) {
						t.Errorf("a look-up by it afterwards: %v", err)
					}
					if _, err := next.Lookup(metatest.Context(t), bb.RootDir, "late"); !errors.Is(err, bb.NotFound) {
						t.Errorf("what it was refused: %v", err)
					}
				}
				e = next
			}
		})
	}
}

// A checkpoint leaves the pages, its manifest and that of the one before, and one record.
func TestCheckpointPurges(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	e := openOn(t, s, nslog.Options{Node: "me"})
	for i := range 3000 {
		namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("f", i))
	}
	for range 2 {
		if err := e.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.RemoveAll(ctx, bb.RootDir, "f1", namespace.RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	last, err := s.Last(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	count := func() map[string]int {
		found := map[string]int{}
		for _, subject := range []string{"log", "manifest", "page.0", "page.1", "page.2"} {
			end, err := s.Last(ctx, subject)
			if err == nil {
				err = s.Read(ctx, subject, 0, end.Seq, func(m stream.Message) error { found[subject]++; return nil })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return found
	}
	want := map[string]int{"log": 1, "manifest": 2, "page.0": 1, "page.1": 1, "page.2": 1}
	for !reflect.DeepEqual(count(), want) { // the purger is beside
		if ctx.Err() != nil {
			t.Fatalf("%v messages are left, want %v; the log ends at %d", count(), want, last.Seq)
		}
	}
	e.Close()
	if got := namespacetest.Names(t, openOn(t, s, nslog.Options{Node: "me"}), bb.RootDir); len(got) != 2999 {
		t.Errorf("%d names after a start, want 2999", len(got))
	}
}

// If a part of a log is missing, and no daemon has it in memory, the log is refused.
func TestLostPart(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	for what, lose := range map[string]func(*stream.Stream, uint64) error{
		"a page": func(s *stream.Stream, last uint64) error {
			return errors.Join(s.PurgeBelow(ctx, "page.0", last), s.PurgeBelow(ctx, "log", 3))
		},
		"a record": func(s *stream.Stream, last uint64) error { return s.PurgeBelow(ctx, "log", last-1) },
		"a page and manifest": func(s *stream.Stream, last uint64) error {
			// The log is cut as well. The checkpoint's purger may not have come so far.
			return errors.Join(s.PurgeBelow(ctx, "page.0", last), s.PurgeBelow(ctx, "manifest", last), s.PurgeBelow(ctx, "log", last-1))
		},
	} {
		s := newStream(t, metatest.StartServer(t, t.TempDir()))
		e := openOn(t, s, nslog.Options{Node: "me"})
		namespacetest.Create(t, e, bb.RootDir, "f")
		if err := e.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("g", i))
		}
		last, err := s.Last(ctx, "log")
		if err == nil {
			e.Close()
			err = lose(s, last.Seq)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nslog.Open(ctx, s, newIDs(), nslog.Options{Buffer: "buf"}); bb.KindOf(err) != bb.Lost {
			t.Errorf("a log without %s: %v", what, err)
		}
	}
}

// A change that is sent again is answered as it was the first time, by its owner and by the next.
func TestOnce(t *testing.T) {
	t.Parallel()
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	e := openOn(t, s, nslog.Options{Node: "me"})
	ctx := metatest.Context(t)
	session, number := record.Session{1}, uint64(0)
	type change func(context.Context, namespace.Tree) (bb.Entry, *bb.Entry, error)
	file, other := namespacetest.File(bb.RootDir, "f"), namespacetest.File(bb.RootDir, "g")
	changes := []change{
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			revision, err := ns.Create(ctx, file)
			return bb.Entry{Revision: revision}, nil, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			revision, err := ns.Create(ctx, other)
			return bb.Entry{Revision: revision}, nil, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			now, err := ns.Update(ctx, bb.RootDir, "f", func(e *bb.Entry) error { e.Size++; return nil })
			return now, nil, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			now, err := ns.Mkdir(ctx, bb.RootDir, "d", namespace.Owner{})
			return now, nil, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			r, err := ns.Rename(ctx, bb.RootDir, "f", bb.RootDir, "g", namespace.RenameOptions{Replace: true, StoreOp: true})
			return r.Entry, r.Replaced, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			was, err := ns.Remove(ctx, bb.RootDir, "g", namespace.RemoveOptions{StoreOp: true})
			return was, nil, err
		},
		func(ctx context.Context, ns namespace.Tree) (bb.Entry, *bb.Entry, error) {
			return bb.Entry{}, nil, ns.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{}, nil)
		},
	}
	for i, c := range changes {
		number++
		ctx := once.With(ctx, once.ID{Session: session, Number: number, Answered: 1})
		first, firstReplaced, err := c(ctx, e)
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if i%2 == 0 {
			if i > 3 {
				if err := e.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
			}
			e.Close()
			e = openOn(t, s, nslog.Options{Node: "me"})
		}
		before := contentsOf(t, e)
		again, againReplaced, err := c(ctx, e)
		if err != nil || !reflect.DeepEqual(again, first) || !reflect.DeepEqual(againReplaced, firstReplaced) {
			t.Errorf("change %d was answered with\n%+v %+v, and then with\n%+v %+v (%v)", i, first, firstReplaced, again, againReplaced, err)
		}
		if !reflect.DeepEqual(contentsOf(t, e), before) {
			t.Errorf("change %d was carried out again", i)
		}
	}
}

// Outcomes that the client has answered for go. A change that comes after that is not carried out.
func TestOutcomesGo(t *testing.T) {
	t.Parallel()
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	ctx := metatest.Context(t)
	session := record.Session{2}
	for number := uint64(1); number <= 200; number++ {
		id := once.ID{Session: session, Number: number, Answered: number}
		if _, err := e.Create(once.With(ctx, id), namespacetest.File(bb.RootDir, fmt.Sprint(number))); err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.Create(once.With(ctx, once.ID{Session: session, Number: 3}), namespacetest.File(bb.RootDir, "late"))
	if !errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change that was answered long ago: %v", err)
	}
	if _, err := e.Lookup(ctx, bb.RootDir, "late"); !errors.Is(err, bb.NotFound) {
		t.Errorf("it was carried out: %v", err)
	}
	for number := uint64(1000); ; number++ {
		id := once.ID{Session: session, Number: number}
		_, err := e.Create(once.With(ctx, id), namespacetest.File(bb.RootDir, fmt.Sprint(number)))
		if errors.Is(err, bb.Busy) {
			break
		}
		if err != nil || number > 10000 {
			t.Fatalf("change %d of a session that answers for none: %v", number, err)
		}
	}
	if err := e.EndSession(ctx, session); err != nil {
		t.Fatal(err)
	}
	id := once.ID{Session: session, Number: 1}
	if _, err := e.Create(once.With(ctx, id), namespacetest.File(bb.RootDir, "new")); err != nil {
		t.Errorf("the first change of a session that was ended: %v", err)
	}
}

// If a call's context ends before its change is taken, the change is not carried out. If its change
// is on its way, the outcome is unknown.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	c := kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	s := stream.New(c, "NS_buf")
	if err := s.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	e := openOn(t, s, nslog.Options{Node: "me"})
	arrived, held := make(chan struct{}, 16), make(chan struct{})
	c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
		if msgs[0].Subject == "NS_buf.log" {
			arrived <- struct{}{}
			<-held
		}
		return c.Deliver(ctx, msgs)
	})
	errs := make(chan error, 2)
	call := func(name string) context.CancelFunc {
		ctx, cancel := context.WithCancel(metatest.Context(t))
		go func() {
			_, err := e.Create(ctx, namespacetest.File(bb.RootDir, name))
			errs <- err
		}()
		return cancel
	}
	cancel := call("sent")
	<-arrived
	cancel()
	if err := <-errs; bb.KindOf(err) != bb.Cancelled || !errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change that was on its way: %v", err)
	}
	call("waits")()
	if err := <-errs; bb.KindOf(err) != bb.Cancelled || errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change that waited: %v", err)
	}
	close(held)
	namespacetest.Create(t, e, bb.RootDir, "last")
	if got := namespacetest.Names(t, e, bb.RootDir); !reflect.DeepEqual(got, []string{"last", "sent"}) {
		t.Errorf("there are %q", got)
	}
}

// A log that was deleted is gone, and a namespace that was marked so answers nothing.
func TestGone(t *testing.T) {
	t.Parallel()
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	e := openOn(t, s, nslog.Options{Node: "me"})
	ctx := metatest.Context(t)
	if err := s.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	_, err := e.Create(ctx, namespacetest.File(bb.RootDir, "f"))
	metatest.WantKind(t, "a change of a namespace that was deleted", err, bb.NotFound)

	marked := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	marked.MarkDestroyed()
	_, err = marked.Root(ctx)
	metatest.WantKind(t, "the root of a namespace that is marked", err, bb.NotFound)
	_, err = marked.Create(ctx, namespacetest.File(bb.RootDir, "f"))
	metatest.WantKind(t, "a change of it", err, bb.NotFound)
}

// A refused change that comes again, late, is refused again, since no client expects that it is
// carried out after all. A change that was answered long ago is not carried out either.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	ctx := metatest.Context(t)
	id := func(number, answered uint64) context.Context {
		return once.With(ctx, once.ID{Session: record.Session{3}, Number: number, Answered: answered})
	}
	file, other := namespacetest.Create(t, e, bb.RootDir, "f"), namespacetest.File(bb.RootDir, "f")
	if _, err := e.Create(id(1, 1), other); !errors.Is(err, bb.Exists) {
		t.Fatal(err)
	}
	if _, err := e.Remove(ctx, bb.RootDir, "f", namespace.RemoveOptions{Revision: file.Revision}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Create(id(1, 1), other); !errors.Is(err, bb.Exists) {
		t.Errorf("a change that was refused, sent again: %v", err)
	}
	if _, err := e.Remove(id(2, 2), bb.RootDir, "f", namespace.RemoveOptions{}); !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
	if _, err := e.Create(id(1, 1), other); !errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("a change that was answered long ago, sent again: %v", err)
	}
	if names := namespacetest.Names(t, e, bb.RootDir); len(names) != 0 {
		t.Errorf("there are %q", names)
	}
}

// A scan for removals finds that a server has lost the namespace, and the server has all of it
// again.
func TestScanMarksConfirms(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	e := openOn(t, s, nslog.Options{Node: "me"})
	f := namespacetest.Create(t, e, bb.RootDir, "f")
	for _, all := range []string{">", "log"} {
		if err := s.PurgeBelow(ctx, all, 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.ScanMarks(ctx, func(bb.Entry) error { return nil }, nil); err != nil {
		t.Fatal(err)
	}
	next := openOn(t, s, nslog.Options{Node: "next"})
	if got, err := next.Lookup(ctx, bb.RootDir, "f"); err != nil || got.File != f.File {
		t.Errorf("the next owner finds %+v (%v)", got, err)
	}
	for revision, want := range map[uint64]bool{f.Revision: true, f.Revision + 1<<40: false, 2: false} {
		if covers, err := next.Covers(ctx, revision); err != nil || covers != want {
			t.Errorf("revision %d is covered: %v (%v), want %v", revision, covers, err, want)
		}
	}
}

// Revisions are above those that are recorded outside of the log, even if the clock is behind.
func TestFloor(t *testing.T) {
	t.Parallel()
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	remembered := nslog.Options{Node: "me", Floor: func() uint64 { return 1 }, Logger: metatest.Logger(t)}
	if _, err := nslog.Open(metatest.Context(t), s, newIDs(), remembered); bb.KindOf(err) != bb.Lost {
		t.Errorf("a log without anything, of which something is remembered: %v", err)
	}
	openOn(t, s, nslog.Options{Node: "me"}).Close()
	for _, floor := range []uint64{1 << 60, 1<<60 + 101, 1 << 20} {
		e := openOn(t, s, nslog.Options{Node: "me", Floor: func() uint64 { return floor }})
		revision, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, fmt.Sprint("f", floor)))
		if err != nil || revision <= floor {
			t.Errorf("revision %d, want one above %d (%v)", revision, floor, err)
		}
		if covered, err := e.Covers(metatest.Context(t), floor); covered && floor > 1<<59 || err != nil {
			t.Errorf("revision %d counts as one of the log (%v)", floor, err)
		}
		e.Close()
	}
}
