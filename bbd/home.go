package bbd

import (
	"context"
	"errors"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/internal/bb"
)

// atHome carries an operation on a name out where the home of what has the name is:
// there with ask, or here with local. A clean file whose home does not answer is
// changed here.
func (b *buffer) atHome(ctx context.Context, c access.Caller, op, path string, at bb.Place, ask func(*peer.Session) error, local func() error) error {
	if b.d.cluster == nil {
		return local()
	}
	var (
		asked   bb.NodeID
		refused error
	)
	for range owner.MaxMoves {
		e, err := b.ns.Lookup(ctx, at.Dir, at.Name)
		switch {
		case err != nil:
			return bb.Wrap(op, b.address(path), err)
		case !b.owners.Foreign(&e):
			err := local()
			if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
				return err
			}
			if now, lookupErr := b.ns.Lookup(ctx, at.Dir, at.Name); lookupErr != nil || !b.owners.Foreign(&now) {
				return err
			}
			refused = err // it has moved meanwhile
			continue
		case c.Relayed:
			return owner.Changed(op, b.address(path))
		case b.owners.Of(&e) == asked:
			return refused // it is there still, and busy
		}
		s, err := b.d.cluster.Session(ctx, b.owners.Of(&e), cluster.Who(c))
		if bb.KindOf(err) == bb.Unavailable && ctx.Err() == nil && owner.Adoptable(&e) {
			return local()
		}
		if err == nil {
			err = ask(s)
		}
		if bb.KindOf(err) != bb.Busy || errors.Is(err, bb.ErrUnknownOutcome) {
			return err
		}
		asked, refused = b.owners.Of(&e), err
	}
	return refused
}
