package shared

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/walk"
	"forebay/meta/retry"
)

const (
	scanPage      = 512
	maxRemovePass = 1000 // over a directory that others keep filling
	removing      = 32   // changes of one RemoveAll at a time
	maxDepth      = 16 * bb.MaxDepth
)

// entry sends a call that an entry answers.
func (t *Tree) entry(ctx context.Context, c *calls.Call) (bb.Entry, error) {
	a, err := t.ask(ctx, c)
	if err != nil {
		return bb.Entry{}, err
	}
	return a.Entry, nil
}

// Root is that of the owner's engine, as are all that follow.
func (t *Tree) Root(ctx context.Context) (bb.Entry, error) {
	return t.leased(ctx, &calls.Call{Op: calls.OpRoot})
}

// Prepare makes the root directory, with the attributes of a buffer, where it is not there.
func (t *Tree) Prepare(ctx context.Context, b *bb.Buffer) error {
	_, err := t.ask(ctx, &calls.Call{Op: calls.OpPrepare, Name: t.o.Log, Directory: calls.Directory{Owner: namespace.Owner{UID: b.UID, GID: b.GID, Mode: b.Mode}, MTime: b.Created}})
	return err
}

// PrepareOnce is Prepare that does nothing after it has succeeded.
func (t *Tree) PrepareOnce(ctx context.Context, b *bb.Buffer) error {
	if t.prepared.Load() {
		return nil
	}
	err := t.Prepare(ctx, b)
	if err == nil {
		t.prepared.Store(true)
	}
	return err
}

// Lookup returns the entry of a name in a directory.
func (t *Tree) Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return t.leased(ctx, &calls.Call{Op: calls.OpLookup, Dir: dir, Name: name})
}

// LookupAgain is Lookup of an entry that is about to be changed, at the owner.
func (t *Tree) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return t.entry(ctx, &calls.Call{Op: calls.OpLookup, Dir: dir, Name: name})
}

// Resolve follows a path from the root, in memory if all of it is there under leases.
func (t *Tree) Resolve(ctx context.Context, path string) (bb.Entry, error) {
	if names, err := bb.SplitPath(path); err == nil && len(names) > 0 && t.gone() == nil {
		if e := t.cache.Resolve(names); e != nil {
			return *e, nil
		}
	}
	return t.entry(ctx, &calls.Call{Op: calls.OpResolve, Name: path})
}

// ResolveParent follows a path to the directory of its last name.
func (t *Tree) ResolveParent(ctx context.Context, path string) (bb.DirID, string, error) {
	a, err := t.ask(ctx, &calls.Call{Op: calls.OpResolveParent, Name: path})
	if err != nil {
		return 0, "", err
	}
	return a.Dir, a.Name, nil
}

// EntryOf returns the entry of a directory.
func (t *Tree) EntryOf(ctx context.Context, dir bb.DirID) (bb.Entry, error) {
	return t.entry(ctx, &calls.Call{Op: calls.OpEntryOf, Dir: dir})
}

// PathOf returns the path of a directory.
func (t *Tree) PathOf(ctx context.Context, dir bb.DirID) (string, error) {
	a, err := t.ask(ctx, &calls.Call{Op: calls.OpPathOf, Dir: dir})
	if err != nil {
		return "", err
	}
	return a.Name, nil
}

// yes sends a call that is answered by yes or no.
func (t *Tree) yes(ctx context.Context, c *calls.Call) (bool, error) {
	a, err := t.ask(ctx, c)
	return err == nil && a.Yes, err
}

// Removed reports whether a name is free since a change that the namespace has.
func (t *Tree) Removed(ctx context.Context, dir bb.DirID, name string, file bb.FileID, revision uint64) (bool, error) {
	return t.yes(ctx, &calls.Call{Op: calls.OpRemoved, Dir: dir, Name: name, File: file, Revision: revision})
}

// store is change of a call with an entry. An entry that may not be stored reaches no owner.
func (t *Tree) store(ctx context.Context, c *calls.Call) (*calls.Answer, error) {
	if err := namespace.CheckEntry(&c.Entry); err != nil {
		return nil, err
	}
	return t.change(ctx, c)
}

// Create stores an entry whose name must not be taken.
func (t *Tree) Create(ctx context.Context, e bb.Entry) (uint64, error) {
	a, err := t.store(ctx, &calls.Call{Op: calls.OpCreate, Entry: e})
	if err != nil {
		return 0, err
	}
	return a.Revision, nil
}

// Put stores a new state of an existing entry.
func (t *Tree) Put(ctx context.Context, e bb.Entry) (uint64, error) {
	a, err := t.store(ctx, &calls.Call{Op: calls.OpPut, Entry: e})
	if err != nil {
		return 0, err
	}
	return a.Revision, nil
}

// Update changes an entry by fn, which is called again if it is changed meanwhile.
func (t *Tree) Update(ctx context.Context, dir bb.DirID, name string, fn func(*bb.Entry) error) (bb.Entry, error) {
	if e, done, err := t.outcome(ctx); done || err != nil {
		return e, err
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		var now bb.Entry
		var err error
		if dir == 0 && name == "" {
			now, err = t.entry(ctx, &calls.Call{Op: calls.OpRoot})
		} else {
			now, err = t.LookupAgain(ctx, dir, name)
		}
		if err == nil {
			err = fn(&now)
		}
		if err != nil {
			return bb.Entry{}, err
		}
		revision, err := t.Put(ctx, now)
		if err == nil {
			now.SetRevision(revision)
			return now, nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return bb.Entry{}, err
		}
	}
	return bb.Entry{}, kv.Wrap("update", name, kv.ErrRevision)
}

// outcome returns the answer to a client's change, if it was carried out.
func (t *Tree) outcome(ctx context.Context) (e bb.Entry, done bool, err error) {
	id, has := once.IDOf(ctx)
	if !has {
		return e, false, nil
	}
	a, err := t.ask(ctx, &calls.Call{Op: calls.OpOutcome, ID: id})
	if err != nil {
		return e, false, err
	}
	return a.Entry, a.Yes, nil
}

// SetAttr changes attributes of an entry.
func (t *Tree) SetAttr(ctx context.Context, dir bb.DirID, name string, attr namespace.Attr) (bb.Entry, error) {
	a, err := t.change(ctx, &calls.Call{Op: calls.OpSetAttr, Dir: dir, Name: name, Attr: attr})
	if err != nil {
		return bb.Entry{}, err
	}
	return a.Entry, nil
}

// Mkdir makes a directory.
func (t *Tree) Mkdir(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	a, err := t.change(ctx, &calls.Call{Op: calls.OpMkdir, Dir: parent, Name: name, Directory: calls.Directory{Owner: o}})
	if err != nil {
		return bb.Entry{}, err
	}
	return a.Entry, nil
}

// MkdirAll makes a directory and its missing ancestors. Sent again, it makes the missing ones.
func (t *Tree) MkdirAll(ctx context.Context, path string, o namespace.Owner) (bb.Entry, error) {
	return t.entry(ctx, &calls.Call{Op: calls.OpMkdirAll, Name: path, Directory: calls.Directory{Owner: o}})
}

// Rename moves a file or a directory to a new name.
func (t *Tree) Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o namespace.RenameOptions) (namespace.Renamed, error) {
	a, err := t.change(ctx, &calls.Call{Op: calls.OpRename, Dir: srcDir, Name: srcName, ToDir: dstDir, ToName: dstName, Options: calls.CallOptions{Replace: o.Replace, StoreOp: o.StoreOp}})
	if err != nil {
		return namespace.Renamed{}, err
	}
	return namespace.Renamed{Entry: a.Entry, Replaced: a.Replaced}, nil
}

// Exchange swaps the names of two files or directories.
func (t *Tree) Exchange(ctx context.Context, dirA bb.DirID, nameA string, dirB bb.DirID, nameB string, o namespace.ExchangeOptions) (namespace.Exchanged, error) {
	a, err := t.change(ctx, &calls.Call{Op: calls.OpExchange, Dir: dirA, Name: nameA, ToDir: dirB, ToName: nameB, Options: calls.ExchangeOptions(o)})
	return a.AsExchanged(err)
}

// Remove removes a file or an empty directory.
func (t *Tree) Remove(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions) (bb.Entry, error) {
	a, err := t.change(ctx, &calls.Call{Op: calls.OpRemove, Dir: parent, Name: name, Options: calls.CallOptions{StoreOp: o.StoreOp, Revision: o.Revision}})
	if err != nil {
		return bb.Entry{}, err
	}
	return a.Entry, nil
}

// RemoveAll removes a file, or a directory with all that it holds, from the bottom up.
func (t *Tree) RemoveAll(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	if fn == nil {
		fn = func(bb.Entry) {}
	}
	if _, done, err := t.outcome(ctx); done || err != nil {
		return err
	}
	o.Revision = 0
	for range retry.MaxTries {
		found, err := t.LookupAgain(ctx, parent, name)
		if err != nil {
			return err
		}
		if found.IsDir() {
			if err := t.removeTree(once.With(ctx, once.ID{}), found.Dir, o, fn, 0); err != nil {
				return err
			}
		}
		removed, err := t.Remove(ctx, parent, name, o)
		if err == nil {
			fn(removed)
			return nil
		}
		if !errors.Is(err, bb.NotEmpty) {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "remove", name, "others keep adding entries")
}

// removeTree removes the entries of a directory.
func (t *Tree) removeTree(ctx context.Context, dir bb.DirID, o namespace.RemoveOptions, fn func(bb.Entry), depth int) error {
	if depth > maxDepth {
		return bb.E(bb.Internal, "remove", dir.String(), "is nested too deep")
	}
	for range maxRemovePass {
		page, _, err := t.unleased(ctx, &calls.Call{Op: calls.OpList, Dir: dir, Number: scanPage})
		if err != nil || len(page) == 0 {
			if errors.Is(err, bb.NotFound) {
				err = nil // others have removed it
			}
			return err
		}
		for i := range page {
			if !page[i].IsDir() {
				continue
			}
			if err := t.removeTree(ctx, page[i].Dir, o, fn, depth+1); err != nil {
				return err
			}
		}
		if err := t.removeEach(ctx, dir, page, o, fn); err != nil {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "remove", dir.String(), "others keep adding entries")
}

// removeEach removes entries of a directory, several at a time.
func (t *Tree) removeEach(ctx context.Context, dir bb.DirID, page []bb.Entry, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	removed := make([]*bb.Entry, len(page))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(removing)
	for i := range page {
		g.Go(func() error {
			one := o
			if !page[i].IsDir() {
				one.Revision = page[i].Revision
			}
			e, err := t.Remove(ctx, dir, page[i].Name, one)
			switch {
			case err == nil:
				removed[i] = &e
			case errors.Is(err, bb.NotFound), errors.Is(err, bb.NotEmpty), errors.Is(err, kv.ErrConflict):
				return nil // others have changed it
			}
			return err
		})
	}
	err := g.Wait()
	for _, e := range removed {
		if e != nil {
			fn(*e)
		}
	}
	return err
}

// List returns entries of a directory, from memory if they are there under a lease.
func (t *Tree) List(ctx context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error) {
	return walk.Parts(ctx, t.ask, t.part, dir, after, limit)
}

// Scan calls fn with every entry of a directory that exists throughout.
func (t *Tree) Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error {
	return walk.Scan(ctx, t.ask, dir, fn)
}

// ScanAll is Scan over all files and directories of the buffer but the root (walk.All).
func (t *Tree) ScanAll(ctx context.Context, fn func(bb.Entry) error) error {
	return walk.All(ctx, t.o.Buffer, t.ask, fn)
}

// ScanMarks is ScanAll of a namespace that the log is found to have. Nothing is left of removed entries.
func (t *Tree) ScanMarks(ctx context.Context, fn func(bb.Entry) error, _ func(bb.FileID)) error {
	if _, err := t.ask(ctx, &calls.Call{Op: calls.OpConfirm}); err != nil {
		return err
	}
	return t.ScanAll(ctx, fn)
}

// StoreOps returns the pending operations in the order in which they happened. An operation that is
// taken over meanwhile may have its older revision.
func (t *Tree) StoreOps(ctx context.Context) (all []namespace.StoreOp, err error) {
	for after, more := uint64(0), true; more; {
		a, err := t.ask(ctx, &calls.Call{Op: calls.OpStoreOps, Revision: after})
		if err != nil {
			return nil, err
		}
		all, more = append(all, a.Ops...), a.Yes
		if len(all) > 0 {
			after = all[len(all)-1].Seq
		}
	}
	return all, nil
}

// StoreOpPending reports whether an operation is still pending at a revision.
func (t *Tree) StoreOpPending(ctx context.Context, revision uint64) (bool, error) {
	return t.yes(ctx, &calls.Call{Op: calls.OpStoreOpPending, Revision: revision})
}

// DoneStoreOp deletes a pending operation at a revision, and reports whether it was there. Sent
// again after an answer that was lost, it was not.
func (t *Tree) DoneStoreOp(ctx context.Context, revision uint64) (bool, error) {
	return t.yes(ctx, &calls.Call{Op: calls.OpDoneStoreOp, Revision: revision})
}

// TakeOverStoreOps makes the pending operations of another node this node's own.
func (t *Tree) TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error) {
	a, err := t.ask(ctx, &calls.Call{Op: calls.OpTakeOverStoreOps, Node: from})
	if err != nil {
		return 0, err
	}
	return a.Count, nil
}

// PendingOps returns a follower that has read nothing yet. It reads all pending operations each time.
func (t *Tree) PendingOps() namespace.OpReader { return walk.Follow(t.StoreOps) }
