package change

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/freeze"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/txn"
)

// A transaction's files are moved by their owners, like all files (owner.go), but named by the ids
// of their directories. A path may lead to another file of the same name while readers see a union.

// Mover moves entries for transactions. Of returns the buffer, which may be made after the mover.
type Mover struct{ Of func() *Buffer }

var (
	_ txn.Mover  = Mover{}
	_ txn.Merger = Mover{}
)

// Rename gives an entry another place, at its owner.
func (m Mover) Rename(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	at, target := e.Place(), bb.Place{Dir: dir, Name: name}
	if !m.Of().o.Owners.OwnedElsewhere(e) {
		if err := m.Of().moveHere(ctx, at, target, namespace.IDOf(e)); bb.KindOf(err) != bb.Busy {
			return err
		}
	}
	return m.Of().renamePlace(ctx, access.Daemon(), at, target, namespace.IDOf(e), false)
}

// Merge moves many entries in a change, where the namespace can do that. Entries that are not this
// daemon's stay.
func (m Mover) Merge(ctx context.Context, from, to bb.DirID) error {
	for m.Of().p.Log != nil {
		if moved, err := m.Of().mergeSome(ctx, from, to); err != nil || moved == 0 {
			return err
		}
	}
	return nil
}

// mergeAtOnce is how many entries are locked for one change.
const mergeAtOnce = 512

// mergeSome is moveHere of some entries of a directory whose new places are free. It
// returns how many entries were moved.
func (b *Buffer) mergeSome(ctx context.Context, from, to bb.DirID) (int, error) {
	const op = "merge"
	if err := b.p.Gate.Enter(ctx, op); err != nil {
		return 0, err
	}
	defer b.p.Gate.Leave()
	moved, err := b.mergeLocked(ctx, op, from, to)
	for i := range moved {
		if is := &moved[i].Is; is.Name != "" && is.IsDir() {
			b.identifyBelow(is.Dir, b.pathOrName(is.Place()))
		}
	}
	return len(moved), err
}

// mergeLocked is mergeSome while the entries are locked.
func (b *Buffer) mergeLocked(ctx context.Context, op string, from, to bb.DirID) ([]nslog.Merged, error) {
	movable, err := b.p.Names.Movable(ctx, from, to, mergeAtOnce)
	if err != nil || len(movable) == 0 {
		return nil, err
	}
	locked := make(map[bb.Place]bb.DirID, len(movable))
	places := make([]bb.Place, 0, 2*len(movable))
	for _, m := range movable {
		at := bb.Place{Dir: m.From, Name: m.Name}
		locked[at] = m.To
		places = append(places, at, bb.Place{Dir: m.To, Name: m.Name})
	}
	defer b.p.Files.Lock(places...)()
	if err := ctx.Err(); err != nil {
		return nil, bb.Wrap(op, b.address(""), err)
	}
	moved, _, err := b.p.Log.MergeDir(b.ctx, from, to, len(movable), func(e *bb.Entry, to bb.DirID) bool {
		return locked[e.Place()] == to && (!b.o.Owners.OwnedElsewhere(e) || owner.Adoptable(e))
	})
	for i := range moved {
		was, is := &moved[i].Was, &moved[i].Is
		if is.Name != "" { // else a directory that is empty now was removed
			b.moved(was.Place(), is.Place(), b.pathOrName(is.Place()), &namespace.Renamed{Entry: *is})
		}
	}
	return moved, err
}

// identifyBelow notes the paths of the files of a directory that a transaction has moved whole,
// since memory has them in the transaction's tree, where no lost file is made again. If it is
// killed before that, this node has the directory's files below bb.LostDir then.
func (b *Buffer) identifyBelow(dir bb.DirID, path string) {
	if b.p.Log == nil || bb.Hidden(path) {
		return
	}
	err := b.p.Names.Scan(b.ctx, dir, func(e bb.Entry) error {
		at := e.Place()
		switch {
		case e.IsDir():
			b.identifyBelow(e.Dir, at.In(path))
			return nil
		case e.Type.Special() || b.o.Owners.OwnedElsewhere(&e) && !owner.Adoptable(&e):
			return nil
		}
		defer b.p.Files.Lock(at)()
		now, err := b.p.Names.Lookup(b.ctx, at.Dir, at.Name)
		if err == nil && now.File == e.File {
			b.p.Files.IdentifyAt(&now, at.In(path))
		}
		if bb.KindOf(err) == bb.NotFound {
			return nil
		}
		return err
	})
	if err != nil && bb.KindOf(err) != bb.NotFound && b.ctx.Err() == nil {
		b.o.Log.Warn("noting the paths of a transaction's files", "path", b.address(path), "err", err)
	}
}

// Replace puts a file in the place of another one, at its owner.
func (m Mover) Replace(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	return m.Of().renamePlace(ctx, access.Daemon(), e.Place(), bb.Place{Dir: dir, Name: name}, namespace.IDOf(e), true)
}

// Folded makes all daemons check the transaction's files again, since they were not flushed while they were hidden.
func (m Mover) Folded(ctx context.Context, id bb.TxnID) error {
	b := m.Of()
	if b.p.Spec().Backing == "" {
		return nil
	}
	path := (&bb.Txn{ID: id}).Path()
	held, err := b.o.Flusher.Hold(ctx, b.name, path)
	if err != nil {
		return err
	}
	held.Release()
	if b.o.Cluster == nil {
		return nil
	}
	there, err := freeze.There(ctx, b.o.Cluster, freeze.Serving(b.o.Cluster), &wire.Hold{Buffer: b.name, Paths: []string{path}})
	if err == nil {
		there.Release()
	}
	return err
}

// Remove removes an entry, at its owner.
func (m Mover) Remove(ctx context.Context, e *bb.Entry) error {
	return m.Of().removePlace(ctx, access.Daemon(), e.Place(), expected{id: namespace.IDOf(e)})
}

// RemoveUnchanged removes an entry that was found at a path, at its owner. It does so only if the
// entry still lies there with the same generation and without a writer. If it is another one, or
// elsewhere, it returns bb.NotFound.
func (b *Buffer) RemoveUnchanged(ctx context.Context, path string, e *bb.Entry) error {
	want := expected{id: namespace.IDOf(e), path: path}
	if !e.IsDir() {
		want.generation = e.Generation
	}
	return b.removePlace(ctx, access.Daemon(), e.Place(), want)
}

// expected is the condition on an entry for a change of it. The zero value allows any.
type expected struct {
	id         uint64
	generation bb.Generation // of a file without a writer; 0: any
	path       string        // "": anywhere
}

// fits reports whether an entry that was found at a path is the one.
func (x *expected) fits(e *bb.Entry, path string) bool {
	switch {
	case x.id == 0:
		return true
	case x.path != "" && x.path != path:
		return false
	case x.generation != 0 && (x.generation != e.Generation || e.State() == bb.StateOpen):
		return false
	}
	return x.id == namespace.IDOf(e)
}

// RenamePlace gives an entry another place, for a transaction.
func (v *Service) RenamePlace(ctx context.Context, r call.Request, m *wire.PlaceRename) (proto.Message, error) {
	b, err := v.o.Daemons(ctx, r, "rename", m.Buffer)
	if err == nil {
		err = b.renamePlace(ctx, *r.Caller(), bb.Place{Dir: bb.DirID(m.FromDir), Name: m.FromName}, bb.Place{Dir: bb.DirID(m.ToDir), Name: m.ToName}, m.Expect, m.Replace)
	}
	return &wire.Empty{}, err
}

func (b *Buffer) renamePlace(ctx context.Context, c access.Caller, at, target bb.Place, expect uint64, replace bool) error {
	const op = "rename"
	return b.onOwner(ctx, c, op, at.Name, at, func(s *peer.Session) error {
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

// moveHere moves an entry out of a hidden tree, or within it, to a free place. The store is not
// involved, since it has neither of the two, and the flusher checks the entry when all is folded
// (Folded).
func (b *Buffer) moveHere(ctx context.Context, at, target bb.Place, expect uint64) error {
	const op = "rename"
	if err := b.p.Gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.p.Gate.Leave()
	e, err := b.moveLocked(ctx, op, at, target, expect)
	if err == nil && e.IsDir() {
		b.identifyBelow(e.Dir, b.pathOrName(target))
	}
	return err
}

// moveLocked is moveHere while both places are locked.
func (b *Buffer) moveLocked(ctx context.Context, op string, at, target bb.Place, expect uint64) (e bb.Entry, err error) {
	defer b.p.Files.Lock(at, target)()
	e, err = b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if err == nil && namespace.IDOf(&e) != expect {
		err = bb.E(bb.NotFound, op, at.Name, "it has been replaced")
	}
	if err != nil {
		return e, err
	}
	if b.o.Owners.OwnedElsewhere(&e) && !owner.Adoptable(&e) {
		return e, owner.Changed(op, at.Name)
	}
	if err := ctx.Err(); err != nil {
		return e, bb.Wrap(op, at.Name, err)
	}
	if e.IsDir() {
		// They go one after the other in any case (nsbucket.Namespace.Rename).
		b.directories.Lock()
		defer b.directories.Unlock()
	}
	renamed, err := b.p.Names.Rename(b.ctx, at.Dir, at.Name, target.Dir, target.Name, namespace.RenameOptions{})
	if err == nil {
		b.moved(at, target, b.pathOrName(target), &renamed)
	}
	return e, err
}

// RemovePlace removes the entry at a place, for a transaction.
func (v *Service) RemovePlace(ctx context.Context, r call.Request, m *wire.PlaceRemove) (proto.Message, error) {
	b, err := v.o.Daemons(ctx, r, "remove", m.Buffer)
	if err == nil {
		err = b.removePlace(ctx, *r.Caller(), bb.Place{Dir: bb.DirID(m.Dir), Name: m.Name},
			expected{m.Expect, bb.Generation(m.Generation), m.Path})
	}
	return &wire.Empty{}, err
}

func (b *Buffer) removePlace(ctx context.Context, c access.Caller, at bb.Place, want expected) error {
	return b.onOwner(ctx, c, "remove", at.Name, at, func(s *peer.Session) error {
		m := &wire.PlaceRemove{
			Buffer: b.name, Dir: uint64(at.Dir), Name: at.Name, Expect: want.id, Generation: uint64(want.generation), Path: want.path,
		}
		_, err := s.Ask(ctx, wire.Type_TYPE_PLACE_REMOVE, m, nil, nil)
		return err
	}, func() error {
		path, err := b.pathAt(ctx, at)
		if err != nil {
			return err
		}
		return b.removeHere(ctx, path, at, want)
	})
}
