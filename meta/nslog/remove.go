package nslog

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/retry"
)

const (
	maxDepth      = 16 * bb.MaxDepth
	maxRemovePass = 1000 // passes over a directory that others keep filling
)

// Remove removes a file or an empty directory and returns the entry that it was. It returns
// NotEmpty for a directory that is not empty, and *namespace.Unfolded for one that a transaction is
// committed into while the output is not in it yet.
func (e *Engine) Remove(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions) (bb.Entry, error) {
	if err := checkPlace(parent, name); err != nil {
		return bb.Entry{}, err
	}
	r, err := e.change(ctx, "remove", name, func(b *owner.Round) (r result, err error) {
		p := place{parent, name}
		if !b.Touch(p.key()) {
			return r, owner.ErrPostponed
		}
		found, ok, err := find(b.Table, parent, name)
		switch {
		case err != nil:
			return r, err
		case !ok:
			return r, notFound("remove", name)
		case o.Revision != 0 && o.Revision != found.Revision:
			return r, kv.ErrRevision
		case found.Txn != 0 && found.IsDir():
			return r, &namespace.Unfolded{ID: found.Txn}
		case found.IsDir() && !b.Empty(found.Dir):
			return r, owner.ErrPostponed
		case found.IsDir() && b.Table.Len(found.Dir) > 0:
			return r, notEmpty("remove", name)
		}
		return result{entry: found}, e.removeEntry(b, p, &found, o)
	})
	return r.entry, err
}

// removeEntry adds the effects of a removal, whose operation comes first.
func (e *Engine) removeEntry(b *owner.Round, p place, was *bb.Entry, o namespace.RemoveOptions) error {
	if o.StoreOp {
		if !b.UsePaths() {
			return owner.ErrPostponed
		}
		path, err := pathTo(b, p)
		if err != nil {
			return err
		}
		e.storeOp(b, namespace.StoreOp{
			Op: namespace.OpRemove, OldPath: path, File: was.File, IsDir: was.IsDir(), Flushed: was.Flushed, Left: was.Replaced(),
			Attempts: was.Unrecorded(),
		})
	}
	b.Remove(p.key())
	return nil
}

// RemoveAll removes a file, or a directory with all that it holds, from the bottom up, and calls fn
// (which may be nil, and is called by one goroutine at a time) with each entry after it was
// removed. It holds a page of one directory per level. Stopped anywhere it has removed a part, and
// can be called again. If others keep adding entries, it is NotEmpty.
func (e *Engine) RemoveAll(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	if fn == nil {
		fn = func(bb.Entry) {}
	}
	if _, done, err := e.answered(ctx); done || err != nil {
		return err
	}
	o.Revision = 0
	for range retry.MaxTries {
		found, err := e.Lookup(ctx, parent, name)
		if err != nil {
			return err
		}
		if found.IsDir() {
			if err := e.removeTree(once.Without(ctx), found.Dir, o, fn, 0); err != nil {
				return err
			}
		}
		removed, err := e.Remove(ctx, parent, name, o)
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
func (e *Engine) removeTree(ctx context.Context, dir bb.DirID, o namespace.RemoveOptions, fn func(bb.Entry), depth int) error {
	if depth > maxDepth {
		return bb.E(bb.Internal, "remove", dir.String(), "is nested too deep")
	}
	for range maxRemovePass {
		page, err := e.some(ctx, dir, "", scanPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if !page[i].IsDir() {
				continue
			}
			if err := e.removeTree(ctx, page[i].Dir, o, fn, depth+1); err != nil {
				return err
			}
			removed, err := e.Remove(ctx, dir, page[i].Name, o)
			if err == nil {
				fn(removed)
			} else if !errors.Is(err, bb.NotFound) && !errors.Is(err, bb.NotEmpty) {
				return err
			}
		}
		removed, err := e.removeFiles(ctx, dir, page, o)
		for i := range removed {
			fn(removed[i])
		}
		if err != nil {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "remove", dir.String(), "others keep adding entries")
}

// removeFiles removes those files of a directory that are as they were found, as many as one
// change may have, and returns them.
func (e *Engine) removeFiles(ctx context.Context, dir bb.DirID, page []bb.Entry, o namespace.RemoveOptions) ([]bb.Entry, error) {
	var removed []bb.Entry // of the round's goroutine, until the change is answered
	err := e.owner.Do(ctx, "remove", dir.String(), func(b *owner.Round) error {
		removed = removed[:0]
		begun := b.Bytes()
		for i := range page {
			p := place{dir, page[i].Name}
			key := p.key()
			if page[i].IsDir() || b.Bytes()-begun > changeBytes || !b.Touch(key) {
				continue
			}
			if item, ok := b.Table.Get(key); !ok || item.Revision != page[i].Revision || record.PeekDir(item.Value) != 0 {
				continue
			}
			if err := e.removeEntry(b, p, &page[i], o); err != nil {
				return err
			}
			removed = append(removed, page[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}
