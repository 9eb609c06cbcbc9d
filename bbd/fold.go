package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/freeze"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/txn"
)

// A transaction's files are moved by their homes, like all files (home.go), but named by
// the ids of their directories: a path may lead to another file of the same name while
// readers see a union.

// mover moves entries for transactions.
type mover struct{ b *buffer }

var (
	_ txn.Mover  = mover{}
	_ txn.Merger = mover{}
)

// Rename has an entry's home give it another place.
func (m mover) Rename(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	at, target := e.Place(), bb.Place{Dir: dir, Name: name}
	if !m.b.owners.Foreign(e) {
		if err := m.b.moveHere(ctx, at, target, idOfEntry(e)); bb.KindOf(err) != bb.Busy {
			return err
		}
	}
	return m.b.renamePlace(ctx, access.Daemon(), at, target, idOfEntry(e), false)
}

// logged is what a namespace that is a log does besides.
type logged interface {
	// Covers reports whether the namespace has all changes since a revision that an entry had.
	Covers(ctx context.Context, revision uint64) (bool, error)
	// MergeDir moves many entries in one change.
	MergeDir(ctx context.Context, from, to bb.DirID, most int, may func(e *bb.Entry, to bb.DirID) bool) (moved []nslog.Merged, more bool, err error)
}

var _ logged = (*nslog.Engine)(nil)

// log returns the namespace as one that is a log; nil: it is none.
func (b *buffer) log() logged {
	in, _ := b.ns.Tree.(logged)
	return in
}

// Merge moves many entries in a change, where the namespace can do that. Entries that are not this
// daemon's stay.
func (m mover) Merge(ctx context.Context, from, to bb.DirID) error {
	for m.b.log() != nil {
		if moved, err := m.b.mergeSome(ctx, from, to); err != nil || moved == 0 {
			return err
		}
	}
	return nil
}

// mergeAtOnce is how many entries are locked for one change.
const mergeAtOnce = 512

// mergeSome is moveHere of some of what lies in a directory and has no other entry in its way. It
// returns how many entries were moved.
func (b *buffer) mergeSome(ctx context.Context, from, to bb.DirID) (int, error) {
	const op = "merge"
	if err := b.gate.Enter(ctx, op); err != nil {
		return 0, err
	}
	defer b.gate.Leave()
	movable, err := b.ns.Movable(ctx, from, to, mergeAtOnce)
	if err != nil || len(movable) == 0 {
		return 0, err
	}
	locked := make(map[bb.Place]bb.DirID, len(movable))
	places := make([]bb.Place, 0, 2*len(movable))
	for _, m := range movable {
		at := bb.Place{Dir: m.From, Name: m.Name}
		locked[at] = m.To
		places = append(places, at, bb.Place{Dir: m.To, Name: m.Name})
	}
	defer b.open.Lock(places...)()
	if err := ctx.Err(); err != nil {
		return 0, bb.Wrap(op, b.address(""), err)
	}
	moved, _, err := b.log().MergeDir(b.d.ctx, from, to, len(movable), func(e *bb.Entry, to bb.DirID) bool {
		return locked[e.Place()] == to && (!b.owners.Foreign(e) || owner.Adoptable(e))
	})
	for i := range moved {
		was, is := &moved[i].Was, &moved[i].Is
		if is.Name != "" { // else a directory that is empty now was removed
			b.moved(was.Place(), is.Place(), is.Name, &namespace.Renamed{Entry: *is})
		}
	}
	return len(moved), err
}

// Replace has a file's home put it in the place of another one.
func (m mover) Replace(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	return m.b.renamePlace(ctx, access.Daemon(), e.Place(), bb.Place{Dir: dir, Name: name}, idOfEntry(e), true)
}

// Folded has all daemons look at the transaction's files again, which they have not
// flushed while they were hidden.
func (m mover) Folded(ctx context.Context, id bb.TxnID) error {
	b := m.b
	if b.Spec().Backing == "" {
		return nil
	}
	path := (&bb.Txn{ID: id}).Path()
	held, err := b.d.flusher.Hold(ctx, b.name, path)
	if err != nil {
		return err
	}
	held.Release()
	if b.d.cluster == nil {
		return nil
	}
	there, err := freeze.There(ctx, b.d.cluster, freeze.Serving(b.d.cluster), &wire.Hold{Buffer: b.name, Paths: []string{path}})
	if err == nil {
		there.Release()
	}
	return err
}

// Remove has an entry's home remove it.
func (m mover) Remove(ctx context.Context, e *bb.Entry) error {
	return m.b.removePlace(ctx, access.Daemon(), e.Place(), idOfEntry(e))
}

// idOfEntry is what tells an entry from another one of the same name.
func idOfEntry(e *bb.Entry) uint64 {
	if e.IsDir() {
		return uint64(e.Dir)
	}
	return uint64(e.File)
}

func (d *Daemon) renamePlace(ctx context.Context, r *rpc.Request, m *wire.PlaceRename) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "rename", m.Buffer)
	if err == nil {
		err = b.renamePlace(ctx, *r.Caller(), bb.Place{Dir: bb.DirID(m.FromDir), Name: m.FromName}, bb.Place{Dir: bb.DirID(m.ToDir), Name: m.ToName}, m.Expect, m.Replace)
	}
	return &wire.Empty{}, err
}

func (b *buffer) renamePlace(ctx context.Context, c access.Caller, at, target bb.Place, expect uint64, replace bool) error {
	const op = "rename"
	return b.atHome(ctx, c, op, at.Name, at, func(s *peer.Session) error {
		m := &wire.PlaceRename{
			Buffer: b.name, FromDir: uint64(at.Dir), FromName: at.Name, ToDir: uint64(target.Dir), ToName: target.Name, Expect: expect,
			Replace: replace,
		}
		_, err := s.Ask(ctx, wire.Type_TYPE_PLACE_RENAME, m, nil, nil)
		return err
	}, func() error {
		if !replace {
			return b.moveHere(ctx, at, target, expect)
		}
		from, err := b.pathAt(ctx, at)
		if err != nil {
			return err
		}
		to, err := b.pathAt(ctx, target)
		if err != nil {
			return err
		}
		return b.renameHere(ctx, from, to, at, target, true)
	})
}

// moveHere moves an entry out of a hidden tree, or within it, to where nothing is. The store
// has nothing to do with that: it knows neither of the two, and the flusher looks at the
// entry when all is folded (Folded).
func (b *buffer) moveHere(ctx context.Context, at, target bb.Place, expect uint64) error {
	const op = "rename"
	if err := b.gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.gate.Leave()
	defer b.open.Lock(at, target)()
	e, err := b.ns.Lookup(ctx, at.Dir, at.Name)
	if err == nil && idOfEntry(&e) != expect {
		err = bb.E(bb.NotFound, op, at.Name, "it has been replaced")
	}
	if err != nil {
		return err
	}
	if b.owners.Foreign(&e) && !owner.Adoptable(&e) {
		return owner.Changed(op, at.Name)
	}
	if err := ctx.Err(); err != nil {
		return bb.Wrap(op, at.Name, err)
	}
	if e.IsDir() {
		// They go one after the other in any case (nsbucket.Namespace.Rename).
		b.directories.Lock()
		defer b.directories.Unlock()
	}
	renamed, err := b.ns.Rename(b.d.ctx, at.Dir, at.Name, target.Dir, target.Name, namespace.RenameOptions{})
	if err == nil {
		b.moved(at, target, target.Name, &renamed)
	}
	return err
}

func (d *Daemon) removePlace(ctx context.Context, r *rpc.Request, m *wire.PlaceRemove) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "remove", m.Buffer)
	if err == nil {
		err = b.removePlace(ctx, *r.Caller(), bb.Place{Dir: bb.DirID(m.Dir), Name: m.Name}, m.Expect)
	}
	return &wire.Empty{}, err
}

func (b *buffer) removePlace(ctx context.Context, c access.Caller, at bb.Place, expect uint64) error {
	return b.atHome(ctx, c, "remove", at.Name, at, func(s *peer.Session) error {
		m := &wire.PlaceRemove{Buffer: b.name, Dir: uint64(at.Dir), Name: at.Name, Expect: expect}
		_, err := s.Ask(ctx, wire.Type_TYPE_PLACE_REMOVE, m, nil, nil)
		return err
	}, func() error {
		path, err := b.pathAt(ctx, at)
		if err != nil {
			return err
		}
		return b.removeHere(ctx, path, at, expect)
	})
}
