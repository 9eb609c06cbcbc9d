package meta

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// A directory into which a transaction is committed, and not folded yet, is shown as a
// union, as overlay file systems do: names are looked for in the transaction's output first
// and then in the directory; directories that are in both are unions again; what is being
// replaced is not looked into at all.
//
// In this order, since folding renames from the output to the directory: a name that is not
// found in the output was never in it, or has its final place already when the directory is
// looked into. While something is being replaced nothing is folded, so the output alone has
// all that is to be seen there.

// over is a transaction as readers need it.
type over struct {
	id        bb.TxnID
	output    bb.DirID
	replacing map[string]bool // paths below the destination; nil: nothing is hidden
	revision  uint64
}

// hides reports whether the transaction replaces a path below its destination. Views of what
// is below such a path have no layers to be hidden.
func (o *over) hides(rel string) bool { return o != nil && o.replacing[rel] }

// layer is a directory in which names are looked for.
type layer struct {
	dir  bb.DirID
	over *over  // whose output it is in; nil: it is an ordinary one
	rel  string // its path within that
}

// View is a directory as readers see it: itself, or the union of several, the first of
// which has the say.
type View struct {
	dir    bb.DirID // the last of layers, or the only one
	layers []layer  // nil: there is nothing but dir
}

// RootView is the root directory's.
func RootView() View { return View{dir: bb.RootDir} }

// Plain reports whether the view is of one directory alone.
func (v *View) Plain() bool { return v.layers == nil }

// readTxn returns what a marked directory's readers have to know; nil: its transaction is
// folded.
func (ns *Namespace) readTxn(ctx context.Context, id bb.TxnID) (*over, error) {
	t, err := ns.Txn(ctx, id)
	if errors.Is(err, bb.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := &over{id: id, output: t.Output, revision: t.Revision}
	switch t.State {
	case bb.TxnReplacing:
		o.replacing = make(map[string]bool, len(t.Replace))
		for _, p := range t.Replace {
			o.replacing[p] = true
		}
	case bb.TxnFolding:
	default:
		return nil, nil
	}
	return o, nil
}

// Look returns the entry of a name in a directory, and of a directory its view. NotFound
// if there is none; Busy with ErrConflict if a transaction was decided or folded meanwhile,
// and the path has to be walked again.
func (ns *Namespace) Look(ctx context.Context, v View, name string) (bb.Entry, View, error) {
	if v.Plain() {
		e, err := ns.Lookup(ctx, v.dir, name)
		if err != nil || !e.IsDir() {
			return e, View{}, err
		}
		below, err := ns.Below(ctx, v, &e)
		return e, below, err
	}
	if err := bb.CheckName(name); err != nil {
		return bb.Entry{}, View{}, err
	}
	var found *bb.Entry
	var layers []layer
	for _, l := range v.layers {
		c, err := ns.load(ctx, l.dir, name)
		if err != nil {
			return bb.Entry{}, View{}, kv.Wrap("lookup", name, err)
		}
		switch {
		case c.live && c.value.IsDir():
			found = &c.value
			if layers, err = ns.appendLayers(ctx, layers, l, found); err != nil {
				return bb.Entry{}, View{}, err
			}
		case c.live && found == nil:
			return c.value, View{}, nil
		case c.live: // a file below a directory is hidden by it
			return *found, viewOf(layers), nil
		}
		if l.over.hides(join(l.rel, name)) {
			break
		}
	}
	if found == nil {
		return bb.Entry{}, View{}, ns.missing(ctx, v, name)
	}
	return *found, viewOf(layers), nil
}

// appendLayers appends those of a directory that was found in a layer.
func (ns *Namespace) appendLayers(ctx context.Context, layers []layer, l layer, e *bb.Entry) ([]layer, error) {
	if slices.ContainsFunc(layers, func(other layer) bool { return other.dir == e.Dir }) {
		return layers, nil // it was folded between two looks
	}
	if e.Txn != 0 {
		o, err := ns.readTxn(ctx, e.Txn)
		if err != nil {
			return nil, err
		}
		if o != nil {
			layers = append(layers, layer{dir: o.output, over: o})
			if o.hides("") {
				return layers, nil
			}
		}
	}
	return append(layers, layer{dir: e.Dir, over: l.over, rel: join(l.rel, e.Name)}), nil
}

func viewOf(layers []layer) View {
	v := View{dir: layers[len(layers)-1].dir}
	if len(layers) > 1 || layers[0].over != nil {
		v.layers = layers
	}
	return v
}

// Below returns the view of a directory whose entry was found in a plain view.
func (ns *Namespace) Below(ctx context.Context, v View, e *bb.Entry) (View, error) {
	if !v.Plain() {
		_, below, err := ns.Look(ctx, v, e.Name)
		return below, err
	}
	if e.Txn == 0 {
		return View{dir: e.Dir}, nil
	}
	layers, err := ns.appendLayers(ctx, nil, layer{}, e)
	if err != nil {
		return View{}, err
	}
	if len(layers) == 1 && layers[0].over == nil {
		return View{dir: e.Dir}, nil
	}
	return viewOf(layers), nil
}

// missing is the error of a name that was not found: where something was hidden while it
// was looked for, it may be there by now.
func (ns *Namespace) missing(ctx context.Context, v View, name string) error {
	for _, l := range v.layers {
		if l.over == nil || l.over.replacing == nil {
			continue
		}
		if now, err := ns.Txn(ctx, l.over.id); err != nil || now.Revision != l.over.revision {
			return kv.Wrap("lookup", name, kv.ErrRevision)
		}
	}
	return bb.E(bb.NotFound, "lookup", name, "there is no such file or directory")
}

// ListView is List of a view.
func (ns *Namespace) ListView(ctx context.Context, v View, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if v.Plain() {
		return ns.List(ctx, v.dir, after, limit)
	}
	return ns.page(v.dir, after, limit, func() error { return nil }, func() (*Lister, error) { return ns.listUnion(ctx, v) })
}

// listUnion reads the directories of a view, one after the other.
func (ns *Namespace) listUnion(ctx context.Context, v View) (*Lister, error) {
	all := &Lister{b: ns.b, dir: v.dir}
	byName := map[string]int{}
	for i, l := range v.layers {
		one, err := ns.NewLister(ctx, l.dir)
		if errors.Is(err, bb.NotFound) && i < len(v.layers)-1 {
			continue // it was folded
		}
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all.begun = one.begun
		}
		all.bytes += one.bytes
		for _, n := range one.names {
			if hiddenAbove(v.layers[:i], string(n.name)) {
				continue
			}
			at, known := byName[string(n.name)]
			switch {
			case !known:
				byName[string(n.name)] = len(all.names)
				all.names = append(all.names, n)
			case isDirRecord(&all.names[at]) && isDirRecord(&n):
				all.names[at] = n // the lower one's attributes will stay
			}
		}
	}
	slices.SortFunc(all.names, func(a, b listed) int { return bytes.Compare(a.name, b.name) })
	return all, nil
}

// hiddenAbove reports whether a layer above hides a name.
func hiddenAbove(above []layer, name string) bool {
	return slices.ContainsFunc(above, func(l layer) bool { return l.over.hides(join(l.rel, name)) })
}

func isDirRecord(n *listed) bool {
	e, err := openEntry(entryKey(n.dir, string(n.name)), n.record, n.seq)
	return err == nil && e.IsDir()
}

// Decisions returns a number that is another one after a transaction was decided, or has
// begun to fold: a directory that was listed meanwhile has to be walked to and listed
// again. Known is one that was returned before.
func (ns *Namespace) Decisions(ctx context.Context) (uint64, error) {
	if ns.m.opts.SoleWriter {
		return ns.decisions.Load(), nil
	}
	r, err := ns.b.Get(ctx, decidedKey)
	if err != nil {
		return 0, kv.Wrap("list", ns.buffer, err)
	}
	for old := ns.decided.Load(); r.Seq > old && !ns.decided.CompareAndSwap(old, r.Seq); old = ns.decided.Load() {
	}
	return r.Seq, nil
}

// KnownDecisions is what Decisions has returned last, without asking.
func (ns *Namespace) KnownDecisions() uint64 {
	if ns.m.opts.SoleWriter {
		return ns.decisions.Load()
	}
	return ns.decided.Load()
}

// replacements are the transactions that are removing what they replace. The list changes only
// together with the number that Decisions returns.
type replacements struct {
	decisions uint64
	txns      []bb.Txn
}

// Replacing returns the decided transaction that is removing what lies at a path of the
// directories themselves, not of the union that readers see; 0: there is none.
func (ns *Namespace) Replacing(ctx context.Context, path string) (bb.TxnID, error) {
	now, err := ns.Decisions(ctx)
	if err != nil {
		return 0, err
	}
	r := ns.replacing.Load()
	if r == nil || r.decisions != now {
		all, err := ns.Txns(ctx)
		if err != nil {
			return 0, err
		}
		r = &replacements{now, slices.DeleteFunc(all, func(t bb.Txn) bool { return t.State != bb.TxnReplacing })}
		ns.replacing.Store(r)
	}
	for i := range r.txns {
		t := &r.txns[i]
		destination, err := ns.PathOf(ctx, t.Dir)
		if errors.Is(err, bb.NotFound) {
			continue // it was removed, with all that it held
		}
		if err != nil {
			return 0, err
		}
		rel, below := strings.CutPrefix(path, destination+"/")
		if below && slices.ContainsFunc(t.Replace, func(p string) bool { return bb.Within(rel, p) }) {
			return t.ID, nil
		}
	}
	return 0, nil
}
