package change

import (
	"context"
	"errors"
	"slices"
	"testing"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// world is a namespace of one directory, and other nodes: one that does not answer, and those that do.
type world struct {
	Names // of which the tests need no more than Lookup
	looks []bb.Entry
	away  bb.NodeID
	calls []string
}

// Lookup returns the next of the entries that others make of a name, and the last one again and again. It has those
// of other names too.
func (w *world) Lookup(_ context.Context, _ bb.DirID, name string) (bb.Entry, error) {
	if i := slices.IndexFunc(w.looks, func(e bb.Entry) bool { return e.Name == name }); i >= 0 {
		e := w.looks[i]
		if i+1 < len(w.looks) && w.looks[i+1].Name == name {
			w.looks = slices.Delete(w.looks, i, i+1)
		}
		return e, nil
	}
	return bb.Entry{}, bb.E(bb.NotFound, "lookup", name, "it is not there")
}

func (w *world) Session(_ context.Context, node bb.NodeID, _ peer.Who) (*peer.Session, error) {
	if node == w.away {
		return nil, bb.E(bb.Unavailable, "ask", string(node), "no answer")
	}
	w.calls = append(w.calls, "ask "+string(node))
	return nil, nil
}

func (w *world) Member(node bb.NodeID) (gossip.Member, bool) { return gossip.Member{Node: node}, true }

func (w *world) Nodes(func(*gossip.Member) bool) []bb.NodeID { return []bb.NodeID{"n2", "n3"} }

// entry is that of a dirty file that a node owns. clean is one whose bytes are on the store.
func entry(name string, of bb.NodeID) bb.Entry {
	return bb.Entry{Parent: bb.RootDir, Name: name, Type: bb.TypeFile, File: 5, Generation: 6, Holders: []bb.NodeID{of}}
}

func clean(e bb.Entry) bb.Entry { e.Flushed.Generation = e.Generation; return e }

var (
	errBusy    = bb.E(bb.Busy, "remove", "x", "it has moved")
	errDenied  = bb.E(bb.Permission, "remove", "x", "no")
	errUnknown = bb.MaybeDone(errBusy)
)

// TestAtOwner: an operation is carried out at the owner. If the owner refuses it since the file has
// moved, it is carried out once more. If no other owner's answer matters, it is carried out here.
func TestAtOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks   []bb.Entry
		alone   bool
		relayed bool
		away    bb.NodeID
		there   []error // of requests, one after the other
		here    []error
		want    error // nil: success
		kind    error
		calls   []string
	}{
		"alone":               {looks: []bb.Entry{entry("x", "n2")}, alone: true, calls: []string{"here"}},
		"this node's":         {looks: []bb.Entry{entry("x", "n1")}, calls: []string{"here"}},
		"another node's":      {looks: []bb.Entry{entry("x", "n2")}, calls: []string{"ask n2"}},
		"it is not there":     {kind: bb.NotFound},
		"asked by another":    {looks: []bb.Entry{entry("x", "n2")}, relayed: true, kind: bb.Busy},
		"refused for good":    {looks: []bb.Entry{entry("x", "n2")}, there: []error{errDenied}, want: errDenied, calls: []string{"ask n2"}},
		"its owner is away":   {looks: []bb.Entry{entry("x", "n2")}, away: "n2", kind: bb.Unavailable},
		"away, and all saved": {looks: []bb.Entry{clean(entry("x", "n2"))}, away: "n2", calls: []string{"here"}},
		"moved to another": {
			looks: []bb.Entry{entry("x", "n2"), entry("x", "n3")}, there: []error{errBusy, nil}, calls: []string{"ask n2", "ask n3"},
		},
		"moved here": {
			looks: []bb.Entry{entry("x", "n2"), entry("x", "n1")}, there: []error{errBusy}, calls: []string{"ask n2", "here"},
		},
		"moved from here": {
			looks: []bb.Entry{entry("x", "n1"), entry("x", "n2")}, here: []error{errBusy}, calls: []string{"here", "ask n2"},
		},
		"busy there": {
			looks: []bb.Entry{entry("x", "n2")}, there: []error{errBusy}, want: errBusy, calls: []string{"ask n2"},
		},
		"busy here": {looks: []bb.Entry{entry("x", "n1")}, here: []error{errBusy}, want: errBusy, calls: []string{"here"}},
		"perhaps done there": { // it is not done twice
			looks: []bb.Entry{entry("x", "n2"), entry("x", "n3")}, there: []error{errUnknown}, want: errUnknown, calls: []string{"ask n2"},
		},
		"perhaps done here": {
			looks: []bb.Entry{entry("x", "n1"), entry("x", "n2")}, here: []error{errUnknown}, want: errUnknown, calls: []string{"here"},
		},
	} {
		w := &world{looks: slices.Clone(c.looks), away: c.away}
		o := Options{Owners: owner.Node{Self: "n1", Alone: c.alone}}
		if !c.alone {
			o.Cluster = w
		}
		b := NewBuffer(t.Context(), o, "b", Parts{Names: w})
		next := func(from *[]error) error {
			if len(*from) == 0 {
				return nil
			}
			err := (*from)[0]
			*from = (*from)[1:]
			return err
		}
		caller := access.Of(1000, 1000)
		caller.Relayed = c.relayed
		err := b.onOwner(t.Context(), caller, "remove", "x", bb.Place{Dir: bb.RootDir, Name: "x"},
			func(*peer.Session) error { return next(&c.there) },
			func() error { w.calls = append(w.calls, "here"); return next(&c.here) })
		switch {
		case c.want == nil && c.kind == nil && err != nil, c.want != nil && !errors.Is(err, c.want), c.kind != nil && !errors.Is(err, c.kind):
			t.Errorf("%s: %v", name, err)
		case !slices.Equal(w.calls, c.calls):
			t.Errorf("%s: %q, want %q", name, w.calls, c.calls)
		}
	}
}

// TestConcernedByRename: whose flushes a rename may meet.
func TestConcernedByRename(t *testing.T) {
	t.Parallel()
	dir := bb.Entry{Parent: bb.RootDir, Name: "x", Type: bb.TypeDirectory, Dir: 9}
	for name, c := range map[string]struct {
		looks   []bb.Entry
		scratch bool
		nodes   []bb.NodeID
		paths   []string
	}{
		"a file to where nothing is":    {looks: []bb.Entry{entry("x", "n1")}},
		"a file over this node's":       {looks: []bb.Entry{entry("x", "n1"), entry("y", "n1")}},
		"a file over another node's":    {looks: []bb.Entry{entry("x", "n1"), entry("y", "n2")}, nodes: []bb.NodeID{"n2"}, paths: []string{"y"}},
		"a file over what is all saved": {looks: []bb.Entry{entry("x", "n1"), clean(entry("y", "n2"))}},
		"a directory":                   {looks: []bb.Entry{dir}, nodes: []bb.NodeID{"n2", "n3"}, paths: []string{"x", "y"}},
		"a directory without a store":   {looks: []bb.Entry{dir}, scratch: true},
	} {
		w := &world{looks: c.looks}
		spec := bb.Buffer{Name: "b", Backing: "file:///store"}
		if c.scratch {
			spec.Backing = ""
		}
		b := NewBuffer(t.Context(), Options{Owners: owner.Node{Self: "n1"}, Cluster: w}, "b", Parts{Names: w, Spec: func() bb.Buffer { return spec }})
		nodes, paths, err := b.concernedByRename(t.Context(), bb.Place{Dir: bb.RootDir, Name: "x"}, bb.Place{Dir: bb.RootDir, Name: "y"}, "x", "y")
		if err != nil || !slices.Equal(nodes, c.nodes) || !slices.Equal(paths, c.paths) {
			t.Errorf("%s: %q, %q, %v, want %q, %q", name, nodes, paths, err, c.nodes, c.paths)
		}
	}
}

// TestRemovePage: a page ends when so many entries are removed, and its answer reports whether more is
// left.
func TestRemovePage(t *testing.T) {
	t.Parallel()
	p := &removePage{most: 3}
	for _, step := range []struct {
		dir  bool
		err  error
		room int // afterwards
	}{{false, nil, 2}, {false, errDenied, 2}, {true, nil, 1}, {false, nil, 0}} {
		if err := p.count(step.dir, step.err); !errors.Is(err, step.err) {
			t.Errorf("counting %v returns %v", step.err, err)
		}
		if p.room() != step.room {
			t.Errorf("there is room for %d, want %d", p.room(), step.room)
		}
	}
	for _, c := range []struct {
		err  error
		more bool
		want error
	}{{nil, false, nil}, {errPage, true, nil}, {errDenied, false, errDenied}} {
		m, err := p.answer(c.err)
		if !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("after %v the answer is %v", c.err, err)
			continue
		}
		if answer, ok := m.(*wire.Removed); err == nil && (!ok || answer.Files != 2 || answer.Directories != 1 || answer.More != c.more) {
			t.Errorf("after %v the answer is %v", c.err, m)
		}
	}
	if none := (*removePage)(nil); none.room() != maxPage {
		t.Errorf("without a page there is room for %d", none.room())
	}
}

// TestExpected: the conditions on an entry for a change that was decided before.
func TestExpected(t *testing.T) {
	t.Parallel()
	f := bb.Entry{Type: bb.TypeFile, File: 7, Generation: 5}
	open := f
	open.Open = true
	for name, c := range map[string]struct {
		want expected
		e    bb.Entry
		fits bool
	}{
		"any":                {expected{}, f, true},
		"the same":           {expected{7, 5, "d/f"}, f, true},
		"another file":       {expected{8, 5, "d/f"}, f, false},
		"a newer generation": {expected{7, 4, "d/f"}, f, false},
		"somebody writes it": {expected{7, 5, "d/f"}, open, false},
		"elsewhere":          {expected{7, 5, "e/f"}, f, false},
		"of any generation":  {expected{id: 7}, f, true},
		"a directory":        {expected{id: 9, path: "d/f"}, bb.Entry{Type: bb.TypeDirectory, Dir: 9}, true},
	} {
		if got := c.want.fits(&c.e, "d/f"); got != c.fits {
			t.Errorf("%s: %v", name, got)
		}
	}
}
