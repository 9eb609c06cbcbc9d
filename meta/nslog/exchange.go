package nslog

import (
	"cmp"
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/owner"
)

// Exchange swaps the names of two files or directories, with all that they hold, atomically. The
// cost does not depend on their sizes. It returns NotFound if one of them is missing, Invalid if one
// lies below the other, and Busy if one is not the expected one.
func (e *Engine) Exchange(ctx context.Context, dirA bb.DirID, nameA string, dirB bb.DirID, nameB string, o namespace.ExchangeOptions) (namespace.Exchanged, error) {
	if err := errors.Join(checkPlace(dirA, nameA), checkPlace(dirB, nameB)); err != nil {
		return namespace.Exchanged{}, err
	}
	n := exchanging{e: e, o: o, at: [2]place{{dirA, nameA}, {dirB, nameB}}}
	before := false // of the round's goroutine, until the change is answered
	r, err := e.change(ctx, "exchange", nameA, func(b *owner.Round) (result, error) {
		n := n
		n.b = b
		r, done, err := n.run()
		before = done
		return r, err
	})
	if err != nil {
		return namespace.Exchanged{}, err
	}
	return namespace.Exchanged{Entry: r.entry, Other: *r.replaced, Before: before}, nil
}

// exchanging is one attempt to exchange.
type exchanging struct {
	e     *Engine
	b     *owner.Round
	o     namespace.ExchangeOptions
	at    [2]place
	found [2]bb.Entry
}

// run returns the second entry as the replaced one.
func (n *exchanging) run() (r result, before bool, err error) {
	if err := n.read(); err != nil {
		return r, false, err
	}
	a, b := &n.found[0], &n.found[1]
	if before, err = n.o.Done(a, b); before || err != nil || n.at[0] == n.at[1] {
		return result{entry: *b, replaced: a}, before, err
	}
	if a.IsDir() || b.IsDir() {
		err = n.checkDirs()
	} else if n.o.StoreOp && !n.b.UsePaths() {
		err = owner.ErrPostponed
	}
	if err == nil && n.o.StoreOp {
		err = n.storeOps()
	}
	if err == nil {
		r, err = n.store()
	}
	return r, false, err
}

// store adds the effects on the entries.
func (n *exchanging) store() (r result, err error) {
	atB, atA := namespace.Exchange(&n.found[0], &n.found[1])
	for _, e := range []*bb.Entry{&atB, &atA} {
		key, value, err := encode(e)
		if err != nil {
			return r, err
		}
		e.SetRevision(n.b.StoreEntry(key, value))
	}
	return result{entry: atB, replaced: &atA}, nil
}

// read looks up both places.
func (n *exchanging) read() error {
	if !n.b.Touch(n.at[0].key()) || n.at[0] != n.at[1] && !n.b.Touch(n.at[1].key()) {
		return owner.ErrPostponed
	}
	for i, p := range n.at {
		var found bool
		var err error
		switch n.found[i], found, err = find(n.b.Table, p.dir, p.name); {
		case err != nil:
			return err
		case !found:
			return notFound("exchange", p.name)
		}
	}
	return nil
}

// checkDirs checks the condition of an exchange of directories. All of one round but the first wait for the
// next, so that no two of them together make a directory its own ancestor.
func (n *exchanging) checkDirs() error {
	if !n.b.ChangePaths() {
		return owner.ErrPostponed
	}
	for i := range n.found {
		if e := &n.found[i]; e.IsDir() && n.b.Table.Within(n.at[1-i].dir, e.Dir) {
			return namespace.BelowItself(n.at[i].name)
		}
	}
	return nil
}

func (n *exchanging) storeOps() error {
	from, err := pathTo(n.b, n.at[0])
	to, toErr := pathTo(n.b, n.at[1])
	if err := cmp.Or(err, toErr); err != nil {
		return err
	}
	for _, op := range namespace.ExchangeOps(&n.found[0], &n.found[1], from, to) {
		n.e.storeOp(n.b, op)
	}
	return nil
}
