package change

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/dirty"
	"forebay/bbd/freeze"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/peer"
	"forebay/flusher"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// An exchange of two names is carried out at the owner of one file. If another node owns the other one,
// that file rests there meanwhile, and its owner looks up afterwards whether the file has moved:
//
//	owner of the first                       owner of the second
//	 holds its flushes of both names
//	 Follow ───────────────────────────────▶ holds its flushes, locks the file
//	 locks its own file
//	 exchanges both entries
//	 the request ends ─────────────────────▶ finds the file's entry at the other place, and follows
//
// The request lasts until the namespace has answered, even if the client of the exchange is gone. If the session between
// the owners breaks, the second one looks for some time, since the exchange may be under way. If that is made later still, the second owner
// finds it when it misses the file at its place (CatchUp).
//
// The first file is the one with the higher place. So each exchange locks the lower place before the higher one, as
// Files.Lock does, and no exchanges wait for each other in a circle.

// side is one of the two names of an exchange.
type side struct {
	path string
	at   bb.Place
	id   uint64 // of the expected file or directory
	e    bb.Entry
}

// Exchange swaps the names of two files or directories.
func (v *Service) Exchange(ctx context.Context, r call.Request, m *wire.ExchangeNames) (proto.Message, error) {
	const op = "exchange"
	b, err := v.o.Enter(ctx, r, op, m.Buffer)
	if err != nil {
		return nil, err
	}
	if m.FromId == 0 || m.ToId == 0 {
		return nil, bb.E(bb.Invalid, op, b.address(m.From), "the request does not name both files or directories by their numbers")
	}
	sides := [2]side{{path: m.From, id: m.FromId}, {path: m.To, id: m.ToId}}
	if err := b.exchange(ctx, *r.Caller(), &sides); err != nil {
		return nil, err
	}
	for _, p := range []string{m.From, m.To} {
		if r.Caller().Relayed { // the requesting daemon waits
			break
		}
		if err := b.p.Flushed(ctx, *r.Caller(), op, paths.Clean(p)); err != nil {
			return nil, err
		}
	}
	return &wire.Empty{}, nil
}

func (b *Buffer) exchange(ctx context.Context, c access.Caller, sides *[2]side) error {
	const op = "exchange"
	if err := cmp.Or(b.p.Paths.MayRename(sides[0].path, sides[1].path), b.p.Paths.MayRename(sides[1].path, sides[0].path)); err != nil {
		return err
	}
	for i := range sides {
		s := &sides[i]
		dir, name, err := b.p.Paths.Parent(ctx, c, op, s.path)
		if err != nil {
			return err
		}
		if !dir.Permits(&c, access.Write) {
			return access.Denied(op, b.address(s.path), "change the directory")
		}
		s.at = bb.Place{Dir: dir.ID, Name: name}
		if s.e, err = b.p.Names.Lookup(ctx, dir.ID, name); err != nil {
			return bb.Wrap(op, b.address(s.path), err)
		}
	}
	order(sides)
	ask := func(s *peer.Session) error {
		m := &wire.ExchangeNames{Buffer: b.name, From: sides[0].path, To: sides[1].path, FromId: sides[0].id, ToId: sides[1].id}
		_, err := s.Ask(ctx, wire.Type_TYPE_EXCHANGE, m, nil, nil)
		return err
	}
	return b.onOwner(ctx, c, op, sides[0].path, sides[0].at, ask, func() error {
		return b.p.Transactions.Do(ctx, func() error { return b.exchangeHere(ctx, sides) })
	})
}

// order puts the name first whose owner carries the exchange out: that of a file rather than of a directory, and of
// two files the one with the higher place.
func order(sides *[2]side) {
	a, b := &sides[0], &sides[1]
	file := func(s *side) int {
		if s.e.IsDir() {
			return 1
		}
		return 0
	}
	if cmp.Or(file(a)-file(b), cmp.Compare(b.at.Dir, a.at.Dir), cmp.Compare(b.at.Name, a.at.Name)) > 0 {
		*a, *b = *b, *a
	}
}

// exchangeHere exchanges two names, the first of them a directory's or that of a file of this node.
func (b *Buffer) exchangeHere(ctx context.Context, sides *[2]side) error {
	const op = "exchange"
	from, to := paths.Clean(sides[0].path), paths.Clean(sides[1].path)
	address := b.address(sides[0].path)
	if from == to {
		return nil
	}
	held, err := b.o.Flusher.HoldExchange(ctx, b.name, from, to)
	if err != nil {
		return bb.Wrap(op, address, err)
	}
	defer held.Release()
	release, err := b.holdTrees(ctx, sides, from, to)
	if err != nil {
		return bb.Wrap(op, address, err)
	}
	defer release()
	if err := b.p.Gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.p.Gate.Leave()
	other, err := b.restElsewhere(ctx, sides)
	if err != nil {
		return bb.Wrap(op, address, err)
	}
	defer other.release()
	defer b.p.Files.Lock(sides[0].at, sides[1].at)()
	for i := range sides {
		s := &sides[i]
		if s.e, err = b.p.Names.Lookup(ctx, s.at.Dir, s.at.Name); err != nil {
			return bb.Wrap(op, b.address(s.path), err)
		}
		if b.o.Owners.OwnedElsewhere(&s.e) && !owner.Adoptable(&s.e) && (i == 0 || !other.rests(b.o.Owners.Of(&s.e))) {
			return owner.Changed(op, b.address(s.path))
		}
	}
	if err := ctx.Err(); err != nil {
		return bb.Wrap(op, address, err)
	}
	return b.exchangeLocked(b.ctx, sides, held)
}

// exchangeLocked is exchangeHere while flushes of both names and both files rest.
func (b *Buffer) exchangeLocked(ctx context.Context, sides *[2]side, held *flusher.Held) error {
	const op = "exchange"
	p, q := &sides[0], &sides[1]
	from, to := paths.Clean(p.path), paths.Clean(q.path)
	concerned := b.p.Spec().Backing != "" && (held.Orphan || b.p.Follows(&p.e, from) || b.p.Follows(&q.e, to))
	x, err := b.p.Names.Exchange(ctx, p.at.Dir, p.at.Name, q.at.Dir, q.at.Name, namespace.ExchangeOptions{From: p.id, To: q.id, StoreOp: concerned})
	if err != nil {
		return bb.Wrap(op, b.address(p.path), err)
	}
	b.follow(&x.Entry, to)
	b.follow(&x.Other, from)
	if x.Before {
		return nil
	}
	held.Exchanged([2]storeop.Exchanged{b.heldOf(&p.e), b.heldOf(&q.e)})
	if concerned {
		if err := b.p.Store.ReplayStoreOps(ctx); err != nil {
			return bb.MaybeDone(bb.Wrap(op, b.address(p.path), err))
		}
	}
	b.o.Emit(bb.Event{Kind: bb.EventRenamed, Buffer: b.name, Path: to, Reason: "from " + from})
	b.o.Emit(bb.Event{Kind: bb.EventRenamed, Buffer: b.name, Path: from, Reason: "from " + to})
	return nil
}

// heldOf is an entry for the flusher.
func (b *Buffer) heldOf(e *bb.Entry) storeop.Exchanged {
	x := storeop.Exchanged{Dir: e.IsDir(), File: e.File, Flushed: e.Flushed}
	if e.Type == bb.TypeFile { // the object of a symbolic link is not compressed
		x.Flushes = b.p.Spec().Codec
	}
	return x
}

// follow updates the daemon's records of the place of a file that was exchanged. It may be repeated. The open files at
// both places are locked.
func (b *Buffer) follow(e *bb.Entry, path string) {
	if e.IsDir() {
		return
	}
	b.p.Files.Follow(e.File, e.Place(), path)
	b.p.Dirty.Change(e.File, func(f *dirty.File) { f.At = e.Place() })
	b.p.Cache.Renamed(e.File, e.Parent, e.Name)
	b.p.Files.IdentifyAt(e, path)
}

// holdTrees pauses the flushes of all daemons under both names if one of them is a directory's, until release is called.
func (b *Buffer) holdTrees(ctx context.Context, sides *[2]side, from, to string) (release func(), err error) {
	if b.o.Cluster == nil || b.p.Spec().Backing == "" || !sides[0].e.IsDir() && !sides[1].e.IsDir() {
		return func() {}, nil
	}
	// If a serving daemon cannot be paused, the exchange fails.
	there, err := freeze.There(ctx, b.o.Cluster, freeze.Serving(b.o.Cluster), &wire.Hold{Buffer: b.name, Paths: []string{from, to}})
	if err != nil {
		return nil, err
	}
	return there.Release, nil
}

// resting is a file that rests at its owner. The zero value is none.
type resting struct {
	there *freeze.Held
	node  bb.NodeID
}

func (r resting) release() {
	if r.there != nil {
		r.there.Release()
	}
}

func (r resting) rests(node bb.NodeID) bool {
	return r.there != nil && r.there.Holds(node) && r.node == node
}

// restElsewhere makes the second file rest at its owner, if that is another node. A clean file whose owner does not answer is
// exchanged without it.
func (b *Buffer) restElsewhere(ctx context.Context, sides *[2]side) (r resting, err error) {
	at, target, e := sides[1].at, sides[0].at, &sides[1].e
	if b.o.Cluster == nil || !b.o.Owners.OwnedElsewhere(e) {
		return r, nil
	}
	r.node = b.o.Owners.Of(e)
	r.there, err = freeze.Follow(ctx, b.o.Cluster, r.node, &wire.Follow{
		Buffer: b.name, File: uint64(e.File), Dir: uint64(at.Dir), Name: at.Name, ToDir: uint64(target.Dir), ToName: target.Name,
	})
	if bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil && owner.Adoptable(e) {
		return resting{}, nil
	}
	if err != nil {
		return resting{}, err
	}
	return r, nil
}

// Follow lets a file of this node rest while another daemon exchanges its name, and follows it then.
func (v *Service) Follow(ctx context.Context, r call.Request, m *wire.Follow) (proto.Message, error) {
	const op = "follow"
	b, err := v.o.Daemons(ctx, r, op, m.Buffer)
	if err != nil {
		return nil, err
	}
	at, to := bb.Place{Dir: bb.DirID(m.Dir), Name: m.Name}, bb.Place{Dir: bb.DirID(m.ToDir), Name: m.ToName}
	was, err := b.pathAt(ctx, at)
	if err != nil {
		return nil, err
	}
	is, err := b.pathAt(ctx, to)
	if err != nil {
		return nil, err
	}
	held, err := b.o.Flusher.HoldExchange(ctx, b.name, was, is)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	defer b.p.Files.Lock(at)()
	var had [2]bb.Entry
	for i, p := range []bb.Place{at, to} {
		if had[i], err = b.p.Names.LookupAgain(ctx, p.Dir, p.Name); err != nil {
			return nil, err
		}
	}
	if had[0].File != bb.FileID(m.File) || b.o.Owners.OwnedElsewhere(&had[0]) {
		return nil, owner.Changed(op, b.address(was))
	}
	if err := r.More(&wire.Empty{}, nil); err != nil {
		return nil, err
	}
	<-ctx.Done()
	var late time.Duration
	if r.SessionEnded() { // the exchange may be under way still
		late = 2 * b.o.Silence
	}
	if e, moved := b.foundAt(at, to, had[0].File, late); moved {
		b.follow(&e, is)
		held.Exchanged([2]storeop.Exchanged{b.heldOf(&had[0]), b.heldOf(&had[1])})
	} else if late > 0 {
		b.later.Store(had[0].File, to)
	}
	return &wire.Empty{}, nil
}

// CatchUp follows an exchange of a file of this node that was made after Follow had waited for it, and reports whether there
// was one. Others call it that do not find the file at its place, before they drop bytes. The place is locked.
func (b *Buffer) CatchUp(file bb.FileID) (moved bool, err error) {
	to, unsure := b.later.Load(file)
	if !unsure {
		return false, nil
	}
	e, moved, err := b.fileAt(to.(bb.Place), file)
	if err != nil || !moved {
		return false, err
	}
	path, err := b.pathAt(b.ctx, e.Place())
	if err != nil {
		return false, err
	}
	b.follow(&e, path)
	b.later.Delete(file)
	return true, nil
}

// foundAt looks for a file at two places until the namespace has answered for both, and reports whether it has moved from
// the first to the second. If it has not, the look-ups are repeated for a time.
func (b *Buffer) foundAt(at, to bb.Place, file bb.FileID, late time.Duration) (e bb.Entry, moved bool) {
	until := time.Now().Add(late)
	gone := false // from the first place at the round before, so the second place has been looked at since
	for b.ctx.Err() == nil {
		e, is, err := b.fileAt(to, file)
		if is {
			return e, true
		}
		_, stays, oldErr := b.fileAt(at, file)
		if err == nil && oldErr == nil {
			if gone || stays && !time.Now().Before(until) {
				return e, false
			}
			gone = !stays
		}
		select {
		case <-time.After(lookupPause):
		case <-b.ctx.Done():
		}
	}
	return e, false
}

// fileAt reports whether a file has a place. An error is that of a namespace that does not answer.
func (b *Buffer) fileAt(at bb.Place, file bb.FileID) (e bb.Entry, is bool, err error) {
	e, err = b.p.Names.LookupAgain(b.ctx, at.Dir, at.Name)
	if bb.KindOf(err) == bb.NotFound {
		return e, false, nil
	}
	return e, err == nil && e.File == file, err
}

// lookupPause is between two look-ups of a namespace that does not answer.
const lookupPause = 200 * time.Millisecond
