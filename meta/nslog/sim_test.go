package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/stream"
)

// simulated is a log in memory, of which each step may fail as a seed has it.
type simulated struct {
	mu       sync.Mutex
	messages []stream.Message // in the order of their sequences
	purged   []stream.Message // which may come back when the server was killed
	last     uint64
}

// newest returns the last message under a subject.
func (s *simulated) newest(subject string) stream.Message {
	for _, m := range slices.Backward(s.messages) {
		if m.Subject == subject {
			return m
		}
	}
	return stream.Message{}
}

// comeBack brings some purged messages back.
func (s *simulated) comeBack(rnd *rand.Rand) {
	s.purged = slices.DeleteFunc(s.purged, func(m stream.Message) bool {
		back := rnd.IntN(2) == 0
		if back {
			s.messages = append(s.messages, m)
		}
		return back
	})
	slices.SortFunc(s.messages, func(a, b stream.Message) int { return int(a.Seq) - int(b.Seq) })
}

// setBack removes the log's records after a sequence.
func (s *simulated) setBack(seq uint64) {
	later := func(m stream.Message) bool { return m.Seq > seq }
	s.messages, s.purged = slices.DeleteFunc(s.messages, later), slices.DeleteFunc(s.purged, later)
	s.last = seq
}

// process is the log in the view of one process, until that is killed.
type process struct {
	*simulated
	rnd  *rand.Rand
	odds int // one step of so many kills it; 0: none
	dead bool
}

var errKilled = fmt.Errorf("killed: %w", kv.ErrMaybeDone)

// step fails if the process is dead, or is killed now, before the step or after it.
func (p *process) step(do func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kill := p.odds > 0 && p.rnd.IntN(p.odds) == 0
	before := kill && p.rnd.IntN(2) == 0
	if p.dead || before {
		p.dead = true
		return errKilled
	}
	do()
	if p.dead = kill; p.dead {
		return errKilled
	}
	return nil
}

func (p *process) Append(_ context.Context, subject string, data []byte, f stream.Fence) (seq uint64, err error) {
	var moved error
	err = p.step(func() {
		if at := p.newest(f.Subject).Seq; at != f.Last {
			moved = &stream.Moved{Last: at}
			return
		}
		p.last++
		seq = p.last
		p.messages = append(p.messages, stream.Message{Subject: subject, Seq: seq, Data: slices.Clone(data)})
	})
	return seq, errors.Join(err, moved)
}

func (p *process) Last(_ context.Context, subject string) (m stream.Message, err error) {
	err = p.step(func() { m = p.newest(subject) })
	return m, err
}

func (p *process) Read(_ context.Context, subject string, from, to uint64, fn func(stream.Message) error) error {
	return p.each(func(m stream.Message) bool { return m.Subject == subject && m.Seq >= from && m.Seq <= to }, fn)
}

func (p *process) ReadAll(_ context.Context, to uint64, fn func(stream.Message) error) error {
	return p.each(func(m stream.Message) bool { return m.Seq <= to }, fn)
}

func (p *process) At(_ context.Context, seq uint64) (found stream.Message, err error) {
	err = p.each(func(m stream.Message) bool { return m.Seq == seq }, func(m stream.Message) error { found = m; return nil })
	return found, err
}

func (p *process) each(is func(stream.Message) bool, fn func(stream.Message) error) error {
	var found []stream.Message
	err := p.step(func() {
		for _, m := range p.messages {
			if is(m) {
				found = append(found, m)
			}
		}
	})
	for _, m := range found {
		if err == nil {
			err = fn(m)
		}
	}
	return err
}

func (p *process) PurgeBelow(_ context.Context, subject string, seq uint64) error {
	return p.step(func() {
		p.messages = slices.DeleteFunc(p.messages, func(m stream.Message) bool {
			gone := m.Subject == subject && m.Seq < seq
			if gone {
				p.purged = append(p.purged, m)
			}
			return gone
		})
	})
}

// world is a namespace in a simulated log, its owner, and the model that it is compared with.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	log     *simulated
	odds    int
	owner   *nslog.Engine
	process *process
	want    namespacetest.Oracle
	stored  namespacetest.Oracle // content of a store that follows the operations
	sizes   map[string]int64     // of files, by their ids
	number  uint64               // of changes
	resent  int
}

// start has a process own the namespace, and others in its place while it is killed.
func (w *world) start() {
	for {
		if w.owner != nil {
			w.owner.Close()
		}
		time.Sleep(time.Millisecond) // no two claims in one microsecond
		w.log.comeBack(w.rnd)
		w.process = &process{simulated: w.log, rnd: w.rnd, odds: w.odds}
		e, err := nslog.Open(metatest.Context(w.t), w.process, newIDs(), nslog.Options{Buffer: "buf", Node: "me", CheckpointBytes: 3000})
		if err == nil {
			w.owner = e
			err = e.Prepare(metatest.Context(w.t), &bb.Buffer{Name: "buf", Mode: 0o755})
		}
		synctest.Wait()
		if err == nil {
			return
		}
		if !w.process.dead {
			w.t.Fatal(err)
		}
	}
}

// do carries out a change with an id until it is answered, at one owner after the other.
func (w *world) do(change func(context.Context, namespace.Tree) error) error {
	w.number++
	id := once.ID{Session: record.Session{7}, Number: w.number, Answered: w.number}
	for {
		err := change(once.With(metatest.Context(w.t), id), w.owner)
		synctest.Wait()
		if !w.process.dead && !errors.Is(err, owner.ErrReplaced) {
			return err
		}
		if w.process.dead && err == nil {
			w.start() // it was killed after the answer
			return nil
		}
		if w.process.dead && bb.KindOf(err) != bb.Unavailable {
			return w.undecided(err)
		}
		w.resent++
		w.start()
	}
}

// undecided is the answer of a process that was killed after it.
func (w *world) undecided(err error) error {
	w.start()
	return err
}

// disturb does something that happens to logs and owners.
func (w *world) disturb() {
	switch n := w.rnd.IntN(60); {
	case n == 0: // another process owns the namespace, and this one has yet to find out
		old := w.owner
		w.owner = nil
		w.start() // which does not close the old one
		_, err := old.Mkdir(metatest.Context(w.t), bb.RootDir, "late", namespace.Owner{})
		if !errors.Is(err, owner.ErrReplaced) && !errors.Is(err, kv.ErrMaybeDone) && bb.KindOf(err) != bb.Exists {
			w.t.Fatalf("an owner that was replaced: %v", err)
		}
		old.Close()
	case n < 3 && !w.process.dead: // the server loses acknowledged records
		w.log.setBack(w.log.last - min(w.log.last, w.rnd.Uint64N(40)))
		odds := w.process.odds
		w.process.odds = 0 // no process has them if the owner is killed too
		err := w.do(func(_ context.Context, ns namespace.Tree) error {
			_, err := ns.Update(metatest.Context(w.t), 0, "", func(*bb.Entry) error { return nil })
			return err
		})
		if err != nil {
			w.t.Fatalf("after the log was set back: %v", err)
		}
		w.process.odds = odds
	case n < 5:
		w.start()
	}
}

func (w *world) randomPath() string {
	names := []string{"a", "b", "c", "d"}
	path := []string{names[w.rnd.IntN(len(names))]}
	for w.rnd.IntN(2) == 0 {
		path = append(path, names[w.rnd.IntN(len(names))])
	}
	return strings.Join(path, "/")
}

// change makes a random change to the namespace and to the model, and compares the answers.
func (w *world) change() {
	p, q, replace := w.randomPath(), w.randomPath(), w.rnd.IntN(2) == 0
	was, over := w.want[p], w.want[q]
	id := bb.FileID(w.number + 1).String()
	var want bb.Kind
	var what string
	var got bb.Entry
	var replaced *bb.Entry
	var err error
	switch n := w.rnd.IntN(20); {
	case n < 6:
		what, want, was = "create "+p, w.want.Add(p, id), id
		err = w.at(p, func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) (err error) {
			got = bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: bb.FileID(w.number)}
			got.Revision, err = ns.Create(ctx, got)
			return err
		})
	case n < 10:
		what, want, was = "mkdir "+p, w.want.Add(p, "/"), "/"
		err = w.at(p, func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) (err error) {
			got, err = ns.Mkdir(ctx, dir, name, namespace.Owner{})
			return err
		})
	case n < 13:
		what, want = "remove "+p, w.want.Remove(p)
		err = w.at(p, func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) (err error) {
			got, err = ns.Remove(ctx, dir, name, namespace.RemoveOptions{StoreOp: true})
			return err
		})
	case n < 17:
		what, want = fmt.Sprint("rename ", p, " ", q, " ", replace), w.want.Rename(p, q, replace)
		err = w.at(p, func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) error {
			to, other, err := ns.ResolveParent(ctx, q)
			if err != nil {
				return err
			}
			r, err := ns.Rename(ctx, dir, name, to, other, namespace.RenameOptions{Replace: replace, StoreOp: true})
			got, replaced = r.Entry, r.Replaced
			return err
		})
	default:
		what = "update " + p
		switch was {
		case "":
			want = kindOf(w.want, p)
		case "/":
		default:
			w.sizes[was]++
		}
		err = w.at(p, func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) (err error) {
			got, err = ns.Update(ctx, dir, name, func(e *bb.Entry) error {
				if !e.IsDir() {
					e.Size++
				}
				return nil
			})
			return err
		})
	}
	if bb.KindOf(err) != want {
		w.t.Fatalf("%d: %s: %v, want kind %v", w.number, what, err, want)
	}
	if err == nil && idOf(&got) != was {
		w.t.Fatalf("%d: %s was answered with %s, want %s", w.number, what, idOf(&got), was)
	}
	if err == nil && strings.HasPrefix(what, "rename") && p != q && (replaced != nil) != (over != "") {
		w.t.Fatalf("%d: %s replaced %+v, want %q", w.number, what, replaced, over)
	}
	if err == nil && (strings.HasPrefix(what, "create") || strings.HasPrefix(what, "mkdir")) {
		w.stored[p] = was
	}
}

func idOf(e *bb.Entry) string {
	if e.IsDir() {
		return "/"
	}
	return e.File.String()
}

// kindOf returns the kind of error with which a path is not found.
func kindOf(o namespacetest.Oracle, p string) bb.Kind {
	for up := path.Dir(p); up != "."; up = path.Dir(up) {
		if o[up] != "" && o[up] != "/" {
			return bb.NotDirectory
		}
	}
	return bb.NotFound
}

// at does a change to a path. An earlier change may have moved the path, so the place of the first
// time is kept by the id.
func (w *world) at(p string, change func(ctx context.Context, ns namespace.Tree, dir bb.DirID, name string) error) error {
	dir, name, err := w.owner.ResolveParent(metatest.Context(w.t), p)
	if err != nil && bb.KindOf(err) != bb.Unavailable {
		w.number++
		return err
	}
	return w.do(func(ctx context.Context, ns namespace.Tree) error {
		if err != nil {
			if dir, name, err = ns.ResolveParent(ctx, p); err != nil {
				return err
			}
		}
		return change(ctx, ns, dir, name)
	})
}

// compare compares all that can be read, and follows the operations.
func (w *world) compare() {
	for p, what := range namespacetest.Paths(w.t, w.owner) {
		if w.want[p] != what {
			w.t.Fatalf("%d: %s is %s, want %q", w.number, p, what, w.want[p])
		}
		if e, err := w.owner.Resolve(metatest.Context(w.t), p); err != nil || !e.IsDir() && e.Size != w.sizes[what] {
			w.t.Fatalf("%d: %s has %d, want %d (%v)", w.number, p, e.Size, w.sizes[what], err)
		}
	}
	if n := len(namespacetest.Paths(w.t, w.owner)); n != len(w.want) {
		w.t.Fatalf("%d: %d paths, want %d", w.number, n, len(w.want))
	}
	namespacetest.CheckPaths(w.t, w.owner)
	if !maps.Equal(w.stored, w.want) {
		w.t.Fatalf("%d: the store has %v, want %v", w.number, w.stored, w.want)
	}
}

// follow carries out the pending operations on the store's content. The owner is not killed
// meanwhile.
func (w *world) follow() {
	odds := w.process.odds
	w.process.odds = 0
	ops, err := w.owner.StoreOps(metatest.Context(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, op := range ops {
		kind := w.stored.Remove
		if op.Op == namespace.OpRename {
			kind = func(from string) bb.Kind { return w.stored.Rename(from, op.NewPath, true) }
		}
		if k := kind(op.OldPath); k != 0 {
			w.t.Fatalf("%d: the store cannot follow %+v: %v", w.number, op, k)
		}
		if done, err := w.owner.DoneStoreOp(metatest.Context(w.t), op.Revision); !done || err != nil {
			w.t.Fatalf("%d: %+v was struck out: %v (%v)", w.number, op, done, err)
		}
	}
	synctest.Wait()
	w.process.odds = odds
}

// TestSimulation kills owners before or after each of their steps with the log, replaces them
// without notice, and sets their log back. Purged messages come back. Each change is sent until it
// is answered, and must have been carried out once.
func TestSimulation(t *testing.T) {
	seeds, steps := uint64(12), 1000
	if testing.Short() {
		seeds, steps = 3, 500
	}
	resent := 0
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					t: t, rnd: rand.New(rand.NewPCG(seed, 5)), log: &simulated{}, odds: []int{0, 20, 60}[seed%3],
					want: namespacetest.Oracle{}, stored: namespacetest.Oracle{}, sizes: map[string]int64{},
				}
				w.start()
				defer func() { w.owner.Close() }()
				for step := range steps {
					w.disturb()
					w.change()
					w.follow()
					if step%20 == 0 {
						w.start()
						w.process.odds = 0
						w.compare()
						w.process.odds = w.odds
					}
				}
				resent += w.resent
			})
		})
	}
	if resent < int(seeds) {
		t.Errorf("only %d changes were sent again", resent)
	}
}
