package change

import (
	"context"
	"errors"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/internal/bb"
)

// onOwner performs an operation on a name at the owner of its entry: there with ask, or here with
// local. A clean file whose owner does not answer is changed here.
func (b *Buffer) onOwner(ctx context.Context, c access.Caller, op, path string, at bb.Place, ask func(*peer.Session) error, local func() error) error {
	if b.o.Cluster == nil {
		return local()
	}
	var (
		asked   bb.NodeID
		refused error
	)
	for range owner.MaxMoves {
		e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
		switch {
		case err != nil:
			return bb.Wrap(op, b.address(path), err)
		case !b.o.Owners.OwnedElsewhere(&e):
			err := local()
			if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
				return err
			}
			if now, lookupErr := b.p.Names.Lookup(ctx, at.Dir, at.Name); lookupErr != nil || !b.o.Owners.OwnedElsewhere(&now) {
				return err
			}
			refused = err // it has moved meanwhile
			continue
		case c.Relayed:
			return owner.Changed(op, b.address(path))
		case b.o.Owners.Of(&e) == asked:
			return refused // it is still there, and busy
		}
		s, err := b.o.Cluster.Session(ctx, b.o.Owners.Of(&e), cluster.Who(c))
		if bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil && owner.Adoptable(&e) {
			return local()
		}
		if err == nil {
			err = ask(s)
		}
		if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
			return err
		}
		asked, refused = b.o.Owners.Of(&e), err
	}
	return refused
}
