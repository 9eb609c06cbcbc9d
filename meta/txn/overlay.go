package txn

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// A directory into which a transaction is committed, and not folded yet, is shown as a union, as
// overlay file systems do. Names are searched in the transaction's output first and then in the
// directory. Directories that are in both are unions again. Entries that are being replaced are not
// shown at all.
//
// In this order, since folding renames from the output to the directory. A name that is not found
// in the output was never in it, or has its final place already when the directory is searched.
// While something is being replaced nothing is folded, so the output alone has all that is visible
// there.

// overlay is a transaction as readers need it.
type overlay struct {
	id        bb.TxnID
	output    bb.DirID
	replacing map[string]bool // paths below the destination; nil: nothing is hidden
	revision  uint64
}

// whiteout reports whether the transaction replaces a path below its destination. Unions below such
// a path have no layers to be hidden.
func (o *overlay) whiteout(rel string) bool { return o != nil && o.replacing[rel] }

// layer is a directory in which names are looked for.
type layer struct {
	dir     bb.DirID
	overlay *overlay // the transaction of the output that it is in; nil: it is an ordinary one
	rel     string   // its path within that
}

// UnionDir is a directory in the readers' view: itself, or the union of several, of which the first
// has priority.
type UnionDir struct {
	dir    bb.DirID // the last of layers, or the only one
	layers []layer  // nil: there is nothing but dir
}

// RootUnion is the root directory's.
func RootUnion() UnionDir { return UnionDir{dir: bb.RootDir} }

// Plain reports whether the union is of one directory alone.
func (v *UnionDir) Plain() bool { return v.layers == nil }

// readTxn returns the transaction of a marked directory for its readers, or nil if it is folded.
func (x *Transactions) readTxn(ctx context.Context, id bb.TxnID) (*overlay, error) {
	t, err := x.Txn(ctx, id)
	if errors.Is(err, bb.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := &overlay{id: id, output: t.Output, revision: t.Revision}
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

// LookupUnion returns the entry of a name in a directory, and of a directory its union. It returns
// NotFound if there is none, and Busy with ErrConflict if a transaction was decided or folded
// meanwhile, and the path has to be walked again.
func (x *Transactions) LookupUnion(ctx context.Context, v UnionDir, name string) (bb.Entry, UnionDir, error) {
	if v.Plain() {
		e, err := x.ns.Lookup(ctx, v.dir, name)
		if err != nil || !e.IsDir() {
			return e, UnionDir{}, err
		}
		below, err := x.UnionBelow(ctx, v, &e)
		return e, below, err
	}
	if err := bb.CheckName(name); err != nil {
		return bb.Entry{}, UnionDir{}, err
	}
	var found *bb.Entry
	var layers []layer
	for _, l := range v.layers {
		e, there, err := x.ns.Find(ctx, l.dir, name)
		if err != nil {
			return bb.Entry{}, UnionDir{}, err
		}
		switch {
		case there && e.IsDir():
			found = &e
			if layers, err = x.appendLayers(ctx, layers, l, found); err != nil {
				return bb.Entry{}, UnionDir{}, err
			}
		case there && found == nil:
			return e, UnionDir{}, nil
		case there: // a file below a directory is hidden by it
			return *found, unionOf(layers), nil
		}
		if l.overlay.whiteout(path.Join(l.rel, name)) {
			break
		}
	}
	if found == nil {
		return bb.Entry{}, UnionDir{}, x.missing(ctx, v, name)
	}
	return *found, unionOf(layers), nil
}

// appendLayers appends those of a directory that was found in a layer.
func (x *Transactions) appendLayers(ctx context.Context, layers []layer, l layer, e *bb.Entry) ([]layer, error) {
	if slices.ContainsFunc(layers, func(other layer) bool { return other.dir == e.Dir }) {
		return layers, nil // it was folded between two reads
	}
	if e.Txn != 0 {
		o, err := x.readTxn(ctx, e.Txn)
		if err != nil {
			return nil, err
		}
		if o != nil {
			layers = append(layers, layer{dir: o.output, overlay: o})
			if o.whiteout("") {
				return layers, nil
			}
		}
	}
	return append(layers, layer{dir: e.Dir, overlay: l.overlay, rel: path.Join(l.rel, e.Name)}), nil
}

func unionOf(layers []layer) UnionDir {
	v := UnionDir{dir: layers[len(layers)-1].dir}
	if len(layers) > 1 || layers[0].overlay != nil {
		v.layers = layers
	}
	return v
}

// UnionBelow returns the union of a directory from its entry in a plain one.
func (x *Transactions) UnionBelow(ctx context.Context, v UnionDir, e *bb.Entry) (UnionDir, error) {
	if !v.Plain() {
		_, below, err := x.LookupUnion(ctx, v, e.Name)
		return below, err
	}
	if e.Txn == 0 {
		return UnionDir{dir: e.Dir}, nil
	}
	layers, err := x.appendLayers(ctx, nil, layer{}, e)
	if err != nil {
		return UnionDir{}, err
	}
	if len(layers) == 1 && layers[0].overlay == nil {
		return UnionDir{dir: e.Dir}, nil
	}
	return unionOf(layers), nil
}

// missing is the error of a name that was not found. Where something was hidden during the search,
// the name may be there by now.
func (x *Transactions) missing(ctx context.Context, v UnionDir, name string) error {
	for _, l := range v.layers {
		if l.overlay == nil || l.overlay.replacing == nil {
			continue
		}
		if now, err := x.Txn(ctx, l.overlay.id); err != nil || now.Revision != l.overlay.revision {
			return kv.Wrap("lookup", name, kv.ErrRevision)
		}
	}
	return bb.E(bb.NotFound, "lookup", name, "there is no such file or directory")
}

// ListUnion is List of a union.
func (x *Transactions) ListUnion(ctx context.Context, v UnionDir, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if v.Plain() {
		return x.ns.List(ctx, v.dir, after, limit)
	}
	dirs := make([]bb.DirID, len(v.layers))
	for i, l := range v.layers {
		dirs[i] = l.dir // a layer that is gone was folded
	}
	return x.ns.ListLayers(ctx, dirs, func(layer int, name string) bool { return hiddenAbove(v.layers[:layer], name) }, after, limit)
}

// hiddenAbove reports whether a layer above hides a name.
func hiddenAbove(above []layer, name string) bool {
	return slices.ContainsFunc(above, func(l layer) bool { return l.overlay.whiteout(path.Join(l.rel, name)) })
}

// Decisions returns a number that is another one after a transaction was decided, or has begun to
// fold. A directory that was listed meanwhile has to be walked to and listed again. known is a
// number that was returned before.
func (x *Transactions) Decisions(ctx context.Context) (uint64, error) {
	if x.sole {
		return x.decisions.Load(), nil
	}
	r, err := x.records.Get(ctx, decidedKey)
	if err != nil {
		return 0, kv.Wrap("list", x.ns.Buffer(), err)
	}
	for old := x.decided.Load(); r.Seq > old && !x.decided.CompareAndSwap(old, r.Seq); old = x.decided.Load() {
	}
	return r.Seq, nil
}

// KnownDecisions returns the last result of Decisions, without a request.
func (x *Transactions) KnownDecisions() uint64 {
	if x.sole {
		return x.decisions.Load()
	}
	return x.decided.Load()
}

// replacements are the transactions that are removing replaced entries. The list changes only
// together with the number that Decisions returns.
type replacements struct {
	decisions uint64
	txns      []bb.Txn
}

// Replacing returns the decided transaction that is removing the entries at a path of the
// directories themselves, not of the union for readers, or 0 if there is none.
func (x *Transactions) Replacing(ctx context.Context, at string) (bb.TxnID, error) {
	now, err := x.Decisions(ctx)
	if err != nil {
		return 0, err
	}
	r := x.replacing.Load()
	if r == nil || r.decisions != now {
		all, err := x.Txns(ctx)
		if err != nil {
			return 0, err
		}
		r = &replacements{now, slices.DeleteFunc(all, func(t bb.Txn) bool { return t.State != bb.TxnReplacing })}
		x.replacing.Store(r)
	}
	for i := range r.txns {
		t := &r.txns[i]
		destination, err := x.ns.PathOf(ctx, t.Dir)
		if errors.Is(err, bb.NotFound) {
			continue // it was removed, with all that it held
		}
		if err != nil {
			return 0, err
		}
		rel, below := strings.CutPrefix(at, destination+"/")
		if below && slices.ContainsFunc(t.Replace, func(p string) bool { return bb.Within(rel, p) }) {
			return t.ID, nil
		}
	}
	return 0, nil
}
