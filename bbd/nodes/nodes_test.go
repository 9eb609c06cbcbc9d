package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"forebay/bbd/owner"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// gossiped are this node's members by gossip.
type gossiped []gossip.Member

func (g gossiped) Members() []gossip.Member { return g }

func (g gossiped) Member(node bb.NodeID) (gossip.Member, bool) {
	i := slices.IndexFunc(g, func(m gossip.Member) bool { return m.Node == node })
	if i < 0 {
		return gossip.Member{}, false
	}
	return g[i], true
}

func (g gossiped) Names() (names []string) {
	for _, m := range g {
		names = append(names, string(m.Node))
	}
	return names
}

func (g gossiped) Refusal(m *gossip.Member) *bb.Error {
	if m.MinVersion > 1 {
		return bb.E(bb.Unsupported, "join", string(m.Node), "it is too new").WithRemedy("upgrade")
	}
	return nil
}

func TestMayForget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		user  bool
		alone bool
		node  string
		state gossip.State
		want  error // nil: it may
	}{
		"a dead node":               {node: "n2", state: gossip.Dead},
		"a node that has left":      {node: "n2", state: gossip.Left},
		"a node that was not seen":  {node: "n3"},
		"a node that answers":       {node: "n2", state: gossip.Ready, want: bb.Busy},
		"a node that is drained":    {node: "n2", state: gossip.Draining, want: bb.Busy},
		"by a user":                 {user: true, node: "n2", state: gossip.Dead, want: bb.Permission},
		"the node that is asked":    {node: "n1", want: bb.Invalid},
		"no node":                   {node: "", want: bb.Invalid},
		"of a daemon that is alone": {alone: true, node: "n2", want: bb.Unsupported},
	} {
		o := Options{Node: "n1"}
		if !c.alone {
			o.Cluster = gossiped{{Node: "n1", State: gossip.Ready}}
		}
		var member *gossip.Member
		if c.state != 0 {
			member = &gossip.Member{Node: "n2", State: c.state}
		}
		err := mayForget(&o, !c.user, c.node, member)
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestInherit(t *testing.T) {
	t.Parallel()
	flushed := &bb.Flushed{Generation: 5, Size: 9, Checksum: 3}
	for name, c := range map[string]struct {
		now     bb.Entry
		flushed *bb.Flushed
		lost    bool
		same    bool // it is not concerned
		dirty   bool
	}{
		"a dirty link":                {now: bb.Entry{Type: bb.TypeSymlink, File: 7, Generation: 5, Extras: bb.Extras{Target: "x"}}, dirty: true},
		"clean":                       {now: bb.Entry{File: 7, Generation: 5, Flushed: *flushed}},
		"dirty":                       {now: bb.Entry{File: 7, Generation: 5}, lost: true},
		"dirty, on the store":         {now: bb.Entry{File: 7, Generation: 5}, flushed: flushed},
		"written again after a flush": {now: bb.Entry{File: 7, Generation: 6}, flushed: flushed, lost: true},
		"open":                        {now: bb.Entry{File: 7, Generation: 5, Open: true}, lost: true},
		"open, on the store before":   {now: bb.Entry{File: 7, Generation: 5, Open: true}, flushed: flushed, lost: true},
		"lost already":                {now: bb.Entry{File: 7, Generation: 5, Lost: true, Reason: "of old"}, same: true},
		"another file":                {now: bb.Entry{File: 8, Generation: 5}, same: true},
		"another node's by now":       {now: bb.Entry{File: 7, Generation: 5, Holders: []bb.NodeID{"n3"}}, same: true},
	} {
		e := c.now
		e.Type, e.Size, e.Checksum = cmp.Or(e.Type, bb.TypeFile), 9, 3
		if e.Holders == nil {
			e.Holders = []bb.NodeID{"dead", "n4"}
		}
		before := e
		i := takeover{file: 7, dead: "dead", heir: "n1", flushed: c.flushed}
		err := i.apply(owner.Node{Self: "n1"}, &e)
		if c.same {
			if !errors.Is(err, errNotConcerned) || e.Lost != before.Lost || e.Reason != before.Reason || !slices.Equal(e.Holders, before.Holders) {
				t.Errorf("%s: %v, %+v", name, err, e)
			}
			continue
		}
		if err != nil || e.Lost != c.lost || !c.lost && (e.State() != bb.StateClean) != c.dirty || e.Open || !slices.Equal(e.Holders, []bb.NodeID{"n1"}) {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
	}
}

// world is a buffer of a cluster in which node "dead" is to be forgotten.
type world struct {
	rand     *rand.Rand
	entries  map[bb.Place]bb.Entry
	copies   map[bb.FileID]bool // of which another node has all
	stored   map[bb.FileID]bool // of which the store has all
	renames  int                // that will come in between
	adopted  bool
	adoption error
	silent   map[bb.FileID]int // how often the node with a copy will not answer
	lost     []bb.FileID       // published
}

func (w *world) ScanAll(_ context.Context, fn func(bb.Entry) error) error {
	for _, e := range w.entries {
		if w.renames > 0 && w.rand.IntN(8) == 0 {
			w.renames--
			w.renameOne() // a scan may miss it, or meet it twice
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// renameOne renames some file, as other daemons do meanwhile, but of the dead node only those that
// have nothing to lose. The others are renamed by their owner alone.
func (w *world) renameOne() {
	for at, e := range w.entries {
		if e.Holders[0] == "dead" && !owner.Adoptable(&e) {
			continue
		}
		delete(w.entries, at)
		e.Name += "x"
		w.entries[e.Place()] = e
		return
	}
}

func (w *world) Update(_ context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	e, ok := w.entries[bb.Place{Dir: dir, Name: name}]
	if !ok {
		return e, bb.NotFound
	}
	if err := change(&e); err != nil {
		return e, err
	}
	w.entries[e.Place()] = e
	return e, nil
}

func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "", nil }

func (w *world) PromoteOfDead(_ context.Context, e *bb.Entry) (bool, error) {
	if !w.adopted {
		return false, errors.New("names on the store were not settled first")
	}
	if w.silent[e.File] > 0 {
		w.silent[e.File]--
		return false, bb.E(bb.Unavailable, "promote", e.Name, "no answer")
	}
	now, ok := w.entries[e.Place()]
	if !ok || !w.copies[e.File] || now.File != e.File || now.Holders[0] != "dead" {
		return false, nil
	}
	now.Holders = []bb.NodeID{"n2"}
	w.entries[e.Place()] = now
	return true, nil
}

func (w *world) AdoptStoreOps(context.Context, bb.NodeID) error { w.adopted = true; return w.adoption }

func (w *world) Unrecorded(_ context.Context, e *bb.Entry) (*bb.Flushed, error) {
	if w.stored[e.File] {
		return &bb.Flushed{Generation: e.Generation, Size: e.Size, Checksum: e.Checksum}, nil
	}
	return nil, nil
}

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 2)), entries: map[bb.Place]bb.Entry{}, copies: map[bb.FileID]bool{},
		stored: map[bb.FileID]bool{}, silent: map[bb.FileID]int{},
	}
	w.renames = w.rand.IntN(5)
	for i := range 10 {
		e := bb.Entry{
			Type: bb.TypeFile, Parent: bb.RootDir, Name: fmt.Sprint("f", i), File: bb.FileID(i + 1), Generation: 5, Size: 1, Checksum: 3,
			Holders: []bb.NodeID{"dead"},
		}
		switch w.rand.IntN(7) {
		case 0:
			e.Flushed = bb.Flushed{Generation: 5}
		case 1:
			e.Open = true
		case 2:
			e.Holders = append(e.Holders, "n2")
			w.copies[e.File], w.silent[e.File] = w.rand.IntN(2) == 0, w.rand.IntN(2)
		case 3:
			w.stored[e.File] = true
		case 4:
			e.Holders[0] = "n3"
		case 5:
			e.Lost, e.Reason = true, "of old"
		}
		w.entries[e.Place()] = e
	}
	return w
}

// service returns the service of node n1 for the world.
func (w *world) service() *Service {
	b := NewBuffer(BufferOptions{
		Name: "b", Owners: owner.Node{Self: "n1"}, Names: w, Replicas: w, Writeback: w,
		Reachable: func(node bb.NodeID) bool { return node == "n2" }, Lost: func(e *bb.Entry, _ string) { w.lost = append(w.lost, e.File) },
	})
	return New(Options{
		Node: "n1", Cluster: gossiped{{Node: "n1", State: gossip.Ready}, {Node: "n2", State: gossip.Ready}, {Node: "dead", State: gossip.Dead}},
		Buffers: func(context.Context) ([]string, error) { return []string{"b", "destroyed"}, nil },
		Buffer: func(_ context.Context, name string) (*Buffer, error) {
			if name == "b" {
				return b, nil
			}
			return nil, bb.NotFound
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// TestForgetHistories: with any renames meanwhile, and any nodes without an answer, a forgotten node owns no file in the
// end that has something to lose, and a file is lost exactly if it was dirty and no other node has
// all of it.
func TestForgetHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		w := newWorld(seed)
		before := map[bb.FileID]bb.Entry{}
		for _, e := range w.entries {
			before[e.File] = e
		}
		s := w.service()
		err := error(bb.Unavailable)
		for try := 0; err != nil && try < 20; try++ {
			_, err = s.forget(t.Context(), true, &wire.NodeName{Name: "dead"}, (*Buffer).forget)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		published := map[bb.FileID]int{}
		for _, file := range w.lost {
			published[file]++
		}
		for _, e := range w.entries {
			was := before[e.File]
			theirs := was.Lost || was.Holders[0] != "dead"
			keeps := was.State() == bb.StateClean || w.copies[e.File] || w.stored[e.File]
			switch {
			case theirs && (e.Lost != was.Lost || e.Holders[0] != was.Holders[0] || published[e.File] > 0):
				t.Errorf("seed %d: file %d was not the dead node's: %+v", seed, e.File, e)
			case theirs:
			case e.Holders[0] == "dead" && was.State() == bb.StateClean: // a rename has hidden it from the last scan, and any node may own it
			case e.Holders[0] == "dead":
				t.Errorf("seed %d: file %d is the dead node's: %+v", seed, e.File, e)
			case e.Lost == keeps || keeps == (published[e.File] == 1):
				t.Errorf("seed %d: file %d: lost %v, published %d times, others have it: %v", seed, e.File, e.Lost, published[e.File], keeps)
			}
		}
		if len(w.entries) != len(before) {
			t.Errorf("seed %d: %d files of %d", seed, len(w.entries), len(before))
		}
	}
}

// TestLossIsAForecast: if nothing happens in between, the loss that is named beforehand is the one
// that a forgotten node causes.
func TestLossIsAForecast(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		w := newWorld(seed)
		w.renames, w.silent = 0, map[bb.FileID]int{}
		for _, e := range w.entries {
			w.copies[e.File] = owner.Replica(&e) == "n2"
		}
		s, m := w.service(), &wire.NodeName{Name: "dead"}
		predicted, err := s.forget(t.Context(), true, m, (*Buffer).loss)
		if err != nil || w.adopted {
			t.Fatalf("seed %d: %v, the store was changed: %v", seed, err, w.adopted)
		}
		loss, err := s.forget(t.Context(), true, m, (*Buffer).forget)
		if err != nil || predicted.LostTotal != loss.LostTotal || predicted.LostBytes != loss.LostBytes || predicted.KeptTotal != loss.KeptTotal ||
			len(loss.Lost) != int(loss.LostTotal) {
			t.Errorf("seed %d: %v, %v, %v", seed, err, predicted, loss)
		}
	}
}

func TestForgetUnknownNode(t *testing.T) {
	t.Parallel()
	w := newWorld(1)
	_, err := w.service().forget(t.Context(), true, &wire.NodeName{Name: "deed"}, (*Buffer).forget)
	if bb.KindOf(err) != bb.NotFound {
		t.Error(err)
	}
}

// TestList: a daemon answers with its own state, and with the reason why it does not work with another one.
func TestList(t *testing.T) {
	t.Parallel()
	s := New(Options{
		Node: "n1", Cluster: gossiped{{Node: "n1", State: gossip.Starting}, {Node: "n2", State: gossip.Ready, MinVersion: 9}},
		Self: func() gossip.Member { return gossip.Member{Node: "n1", State: gossip.Ready, Session: "10.0.0.1:1"} },
	})
	got, err := s.List(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := got.(*wire.Nodes).Nodes
	if len(list) != 2 || list[0].State != gossip.Ready.String() || list[0].Session != "10.0.0.1:1" || list[0].Refused != "" || list[1].Refused == "" {
		t.Errorf("%v", list)
	}
	if _, err := New(Options{Node: "n1"}).List(t.Context(), nil, nil); bb.KindOf(err) != bb.Unsupported {
		t.Errorf("alone: %v", err)
	}
}
