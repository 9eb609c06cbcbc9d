package nsbucket

import (
	"context"
	"errors"
	"strconv"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/cache"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// Exchange swaps the names of two files or directories, with all that they hold, in one atomic batch
// of any content. It returns NotFound if one of them is missing, Invalid if one lies below the other,
// and Busy if one is not the expected one.
//
// An exchange of directories expects and rewrites the paths key, as their renames do.
func (ns *Namespace) Exchange(ctx context.Context, dirA bb.DirID, nameA string, dirB bb.DirID, nameB string, o namespace.ExchangeOptions) (namespace.Exchanged, error) {
	if err := errors.Join(checkPlace(dirA, nameA), checkPlace(dirB, nameB)); err != nil {
		return namespace.Exchanged{}, err
	}
	at := [2]entryID{{dirA, nameA}, {dirB, nameB}}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		x, err := ns.tryExchange(ctx, at, o)
		if !errors.Is(err, kv.ErrRevision) {
			return x, kv.Wrap("exchange", nameA, err)
		}
		for _, id := range at {
			ns.entries.Forget(id)
		}
	}
	return namespace.Exchanged{}, kv.Wrap("exchange", nameA, kv.ErrRevision)
}

// exchange is one attempt: the records that were read, and the batch that they lead to.
type exchange struct {
	ns    *Namespace
	at    [2]entryID
	found [2]cache.Known[bb.Entry]
	moved [2]bb.Entry // as they were found, at their new places

	changes []kv.Change
	entries []entryChange
	dirs    []dirChange
	paths   uint64 // revision of the paths key, of directories
}

func (ns *Namespace) tryExchange(ctx context.Context, at [2]entryID, o namespace.ExchangeOptions) (namespace.Exchanged, error) {
	x := &exchange{ns: ns, at: at}
	for i, id := range at {
		var err error
		if x.found[i], err = ns.load(ctx, id.dir, id.name); err != nil {
			return namespace.Exchanged{}, err
		}
		if !x.found[i].Live {
			return namespace.Exchanged{}, bb.E(bb.NotFound, "exchange", id.name, "there is no such file or directory")
		}
	}
	a, b := &x.found[0].Value, &x.found[1].Value
	if at[0] == at[1] {
		return namespace.Exchanged{Entry: *a, Other: *b}, nil
	}
	if before, err := o.Done(a, b); before || err != nil {
		return namespace.Exchanged{Entry: *b, Other: *a, Before: before}, err
	}
	x.moved[0], x.moved[1] = namespace.Exchange(a, b)
	done := func(error) {}
	if a.IsDir() || b.IsDir() {
		done = ns.known.renaming()
	}
	err := x.plan(ctx, o)
	if err == nil {
		err = ns.commit(ctx, x.changes, x.entries, x.dirs)
	}
	done(err)
	return namespace.Exchanged{Entry: x.moved[0], Other: x.moved[1]}, err
}

// plan makes the batch:
//
//	e.A, e.B  each other's entries          as they were read
//	d.DIR     of a directory: its new place as it was read
//	x.paths   of directories                as it was read before the climb
//	o.ID      each StoreOp                  checks x.paths
func (x *exchange) plan(ctx context.Context, o namespace.ExchangeOptions) error {
	for i := range x.moved {
		to := 1 - i
		key := record.EntryKey(x.at[to].dir, x.at[to].name)
		data, err := record.SealEntry(key, &x.moved[i])
		if err != nil {
			return err
		}
		x.entries = append(x.entries, entryChange{x.at[to], len(x.changes), &x.moved[i]})
		x.changes = append(x.changes, kv.Change{Key: key, Data: data, Expected: x.found[to].Seq})
	}
	if x.moved[0].IsDir() || x.moved[1].IsDir() {
		if err := x.planDirs(ctx); err != nil {
			return err
		}
	}
	if o.StoreOp {
		return x.planOps(ctx)
	}
	return nil
}

func (x *exchange) planDirs(ctx context.Context) (err error) {
	if x.paths, err = x.ns.paths(ctx); err != nil {
		return err
	}
	for i := range x.moved {
		if !x.moved[i].IsDir() {
			continue
		}
		place, c, err := x.ns.moveDir(ctx, x.at[i].dir, &x.moved[i], namespace.BelowItself(x.at[i].name))
		if err != nil {
			return err
		}
		x.dirs = append(x.dirs, dirChange{x.moved[i].Dir, len(x.changes), place})
		x.changes = append(x.changes, c)
	}
	value := strconv.AppendUint(nil, namespace.IDOf(&x.moved[0]), 16)
	x.changes = append(x.changes, kv.Change{Key: record.PathsKey, Data: value, Expected: x.paths})
	return nil
}

// planOps adds the StoreOps. Of directories, the batch itself expects the paths key as it was before.
// The paths are then checked against that.
func (x *exchange) planOps(ctx context.Context) error {
	var names [2]string
	var at [2]uint64
	for i, id := range x.at {
		dir, paths, err := x.ns.pathOf(ctx, id.dir)
		if err != nil {
			return gone(err)
		}
		names[i], at[i] = join(dir, id.name), paths
	}
	ofDirs := x.moved[0].IsDir() || x.moved[1].IsDir()
	if at[0] != at[1] || ofDirs && at[0] != x.paths {
		return kv.ErrRevision
	}
	for _, op := range namespace.ExchangeOps(&x.found[0].Value, &x.found[1].Value, names[0], names[1]) {
		c, err := x.ns.ops.Change(ctx, op, at[0])
		if err != nil {
			return err
		}
		if ofDirs {
			c.Check, c.Expected = "", c.Own
		}
		x.changes = append(x.changes, c)
	}
	return nil
}
