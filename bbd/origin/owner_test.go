package origin

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
)

// TestAtOnce cuts runs into windows.
func TestAtOnce(t *testing.T) {
	long, short := Run{0, window + 1}, Run{0, window / 2}
	for _, c := range []struct {
		runs []Run
		n    int
	}{
		{[]Run{long}, 1},
		{[]Run{long, short}, 1},
		{[]Run{short, short}, 2},
		{[]Run{short, short, short}, 2},
		{[]Run{short, long}, 1},
	} {
		if n := atOnce(c.runs); n != c.n {
			t.Errorf("%v: %d at once, not %d", c.runs, n, c.n)
		}
	}
}

// TestOwnerWindows: short runs share requests, and both nodes get requests.
func TestOwnerWindows(t *testing.T) {
	p, e := file(8 * window)
	w := p.owner(t, e)
	defer w.Close()
	var runs []Run
	for at := int64(0); at < e.Size; at += 64 << 10 {
		runs = append(runs, Run{at, at + 64<<10})
	}
	if err := w.Read(t.Context(), runs, verified(p.objects["f"])); err != nil {
		t.Fatal(err)
	}
	if first, second := p.nodes["n1"], p.nodes["n2"]; first.asked != 4 || second.asked != 4 {
		t.Errorf("the nodes were asked %d and %d times", first.asked, second.asked)
	}
}

// TestSecondCopyFails: bytes that the second copy lacks come from the owner.
func TestSecondCopyFails(t *testing.T) {
	for name, fail := range map[string]func(n *node){
		"other bytes": func(n *node) { n.content = make([]byte, len(n.content)) },
		"gone":        func(n *node) { n.down = bb.NotFound },
	} {
		t.Run(name, func(t *testing.T) {
			p, e := file(3 * window)
			w := p.owner(t, e)
			defer w.Close()
			runs := []Run{{0, window}, {window, 2 * window}, {2 * window, 3 * window}}
			if _, err := w.holders(t.Context()); err != nil {
				t.Fatal(err)
			}
			fail(p.nodes["n2"])
			if err := w.Read(t.Context(), runs, verified(p.objects["f"])); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFabricFails: while a node answers, a read succeeds although no one-sided connection to it does.
func TestFabricFails(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(n *node)
		lost int
		kind bb.Kind // of the failure
	}{
		{"it cannot be dialled", func(n *node) { n.fabricErr = rdma.ErrPeerGone }, 0, 0},
		{"it ends in a transfer", func(n *node) { n.transferErr = rdma.ErrPeerGone }, 1, 0},
		{"the node is gone, too", func(n *node) { n.transferErr, n.down = rdma.ErrPeerGone, bb.Unavailable }, 1, bb.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, e := file(3 * perAnswer)
			e.Holders = e.Holders[:1]
			w := p.owner(t, e)
			defer w.Close()
			of, err := w.reach(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := &source{w: w, of: of, to: e.Size}
			defer at.release()
			got := make([]byte, e.Size-5)
			if err := at.fill(t.Context(), got, 5); err != nil {
				t.Fatal(err)
			}
			clear(got)
			c.fail(p.nodes["n1"])
			if err := at.fill(t.Context(), got, 5); c.kind != 0 {
				if bb.KindOf(err) != c.kind {
					t.Error(err)
				}
			} else if err != nil || !bytes.Equal(got, p.objects["f"][5:]) {
				t.Errorf("other bytes were read: %v", err)
			}
			if n := p.nodes["n1"]; n.lost != c.lost {
				t.Errorf("%d connections were closed", n.lost)
			}
		})
	}
}

// TestOwnerReopens: a session that broke is followed by another one, with the same generation.
func TestOwnerReopens(t *testing.T) {
	for _, c := range []struct {
		name   string
		open   bool            // the file is being written
		change func(p *places) // once it is open
		kind   bb.Kind         // of the failure
	}{
		{name: "the same", change: func(*places) {}},
		{name: "a newer generation", change: func(p *places) { p.nodes["n1"].n = 6 }, kind: bb.Unavailable},
		{name: "being written", open: true, change: func(*places) {}, kind: bb.Unavailable},
		{name: "moved", change: func(p *places) { p.nodes["n1"].down, p.entry.Holders = bb.Unavailable, []bb.NodeID{"n2"} }},
		{name: "owner gone", change: func(p *places) { p.nodes["n1"].down = bb.Unavailable }},
		{name: "moved as a newer generation", kind: bb.Unavailable, change: func(p *places) {
			p.nodes["n1"].down, p.entry.Holders, p.entry.Generation = bb.Unavailable, []bb.NodeID{"n2"}, 6
		}},
		{name: "this node's by now", kind: bb.Unavailable, change: func(p *places) {
			p.nodes["n1"].down, p.entry.Holders = bb.Unavailable, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, e := file(1 << 20)
			e.Open = c.open
			w := p.owner(t, e)
			defer w.Close()
			if err := w.Read(t.Context(), []Run{{0, 1000}}, verified(p.objects["f"])); err != nil {
				t.Fatal(err)
			}
			for _, n := range p.nodes {
				n.broken = n.dials
			}
			c.change(p)
			for _, o := range []Origin{w, w.Inline()} {
				if err := o.Read(t.Context(), []Run{{5, 1000}}, verified(p.objects["f"])); c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
					t.Error(err)
				}
			}
		})
	}
}

// TestOpenSecondCopy: the second copy is opened if the owner does not answer, and for no other reason.
func TestOpenSecondCopy(t *testing.T) {
	for _, down := range []error{bb.Unavailable, bb.NotFound, bb.Busy} {
		p, e := file(1000)
		p.nodes["n1"].down = down
		w, _, err := p.sources(t).Open(t.Context(), &e, "f")
		if down != bb.Unavailable {
			if !errors.Is(err, down) || p.nodes["n2"].opens > 0 {
				t.Errorf("%v: %v", down, err)
			}
			continue
		}
		if err == nil {
			err = w.Read(t.Context(), []Run{{0, 1000}}, verified(p.objects["f"]))
			w.Close()
		}
		if err != nil {
			t.Errorf("%v: %v", down, err)
		}
	}
}

// TestCloseUnless leaves handles open that readers have begun to use again.
func TestCloseUnless(t *testing.T) {
	for _, used := range []bool{true, false} {
		p, e := file(1000)
		w := p.owner(t, e)
		if w.CloseUnless(func() bool { return used }); (p.nodes["n1"].closed == 0) != used {
			t.Errorf("used: %v, closed: %v", used, p.nodes["n1"].closed)
		}
		w.Close()
		w.Close()
		if n := p.nodes["n1"]; n.closed != 1 {
			t.Errorf("closed %d times", n.closed)
		}
	}
}

// TestOwnerLayout requests page by page.
func TestOwnerLayout(t *testing.T) {
	p, e := file(10*perAnswer + 1)
	w, _, err := p.sources(t).OpenAt(t.Context(), "n2", &wire.Open{Path: "f", File: 1, Generation: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	extents, err := w.Layout(t.Context())
	if err != nil || len(extents) != 11 || p.nodes["n2"].asked != 4 {
		t.Fatalf("%d extents after %d requests: %v", len(extents), p.nodes["n2"].asked, err)
	}
	if last := extents[10]; last.FileOffset+last.Length != e.Size {
		t.Errorf("the last is %+v", last)
	}
}

// TestFallback reads from the store if the owner lacks the bytes, or while it does not answer, and only
// the requested generation.
func TestFallback(t *testing.T) {
	for _, c := range []struct {
		failure error // of the owner
		stored  bb.Generation
		file    bb.FileID // that has the name now
		falls   bool
	}{
		{bb.Unavailable, 5, 1, true},
		{bb.NotFound, 5, 1, true},
		{bb.Busy, 5, 1, false},
		{bb.Lost, 5, 1, false},
		{bb.Unavailable, 4, 1, false},
		{bb.Unavailable, 6, 1, false},
		{bb.NotFound, 5, 2, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p, e := file(1000)
			f := &Fallback{p.owner(t, e), &e, p.object(t, bb.Entry{})}
			p.nodes["n1"].down, p.nodes["n2"].down = c.failure, c.failure
			p.entry.Flushed.Generation, p.entry.File = c.stored, c.file
			err := f.Read(t.Context(), []Run{{0, 1000}}, verified(p.objects["f"]))
			if c.falls != (err == nil) || err != nil && !errors.Is(err, c.failure) {
				t.Errorf("%v", err)
			}
			f.Close()
		})
	}
}
