package bbd

import (
	"context"
	"errors"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/internal/bb"
)

// A file has a home: the daemon that it was first written on, the first of its entry's
// Holders. That daemon alone decides about the file's bytes: it orders the commits of
// all writers, closes its generations, flushes them, and renames and removes the file.
//
//	client ──▶ its daemon ──▶ home
//	              │  writes: a forwarded file (package forward) puts the bytes into the home's memory
//	              │  reads: a copy (package readcache) fetches extents from there as they are read
//	              └  rename, remove: are asked of the home
//
// Every daemon may make entries and directories; that two do not make the same one,
// and that a home which was given up cannot change the file any more, is decided by
// compare-and-set in the namespace.

// home returns the node that decides about a file.
func (b *buffer) home(e *bb.Entry) bb.NodeID {
	if len(e.Holders) == 0 {
		return b.d.cfg.Node
	}
	return e.Holders[0]
}

// foreign reports whether another daemon is a file's home.
func (b *buffer) foreign(e *bb.Entry) bool {
	return b.d.cluster != nil && !e.IsDir() && !e.Lost && b.home(e) != b.d.cfg.Node
}

// adoptable reports whether a file whose home is another daemon may be changed without
// it: it has nothing to lose, and nothing on its way to the store.
func adoptable(e *bb.Entry) bool { return e.State() == bb.StateClean || e.Lost }

// errMoved says that the home of a file is not the daemon that was asked: the one who
// asks looks again.
func errMoved(op, path string) error {
	return bb.E(bb.Busy, op, path, "the file has moved to another node meanwhile").WithRemedy("try again")
}

// maxMoves is how often a file's home is looked up again for one request.
const maxMoves = 5

// atHome carries an operation on a name out where the home of what has the name is:
// there with ask, or here with local. A clean file whose home does not answer is
// changed here.
func (b *buffer) atHome(ctx context.Context, c access.Caller, op, path string, at place, ask func(*peer.Session) error, local func() error) error {
	if b.d.cluster == nil {
		return local()
	}
	var (
		asked   bb.NodeID
		refused error
	)
	for range maxMoves {
		e, err := b.ns.Lookup(ctx, at.dir, at.name)
		switch {
		case err != nil:
			return bb.Wrap(op, b.address(path), err)
		case !b.foreign(&e):
			err := local()
			if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
				return err
			}
			if now, lookupErr := b.ns.Lookup(ctx, at.dir, at.name); lookupErr != nil || !b.foreign(&now) {
				return err
			}
			refused = err // it has moved meanwhile
			continue
		case c.Relayed:
			return errMoved(op, b.address(path))
		case b.home(&e) == asked:
			return refused // it is there still, and busy
		}
		s, err := b.d.cluster.Session(ctx, b.home(&e), cluster.Who(c))
		if bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil && adoptable(&e) {
			return local()
		}
		if err == nil {
			err = ask(s)
		}
		if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
			return err
		}
		asked, refused = b.home(&e), err
	}
	return refused
}

// elsewhereError says that a file is to be written at its home, another node.
type elsewhereError struct {
	node      bb.NodeID
	adoptable bool // it may be written here if that node does not answer
}

func (e *elsewhereError) Error() string { return "its home is node " + string(e.node) }

// errSuperseded says that a generation cannot become the file's, since another node
// has begun one meanwhile: its writers go on with that.
var errSuperseded = errors.New("another node has begun a generation of this file meanwhile")

// Owner returns the node.
func (e *elsewhereError) Owner() bb.NodeID { return e.node }
