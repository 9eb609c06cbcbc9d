package nsbucket

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

const (
	removePage    = 480 // entries of a directory removed in one go, which fit a batch with a StoreOp each
	removeAtOnce  = 64
	maxRemovePass = 1000 // passes over a directory that others keep filling
)

// RemoveAll removes a file, or a directory with all that it holds, from the bottom up, and calls fn
// (which may be nil, and is called by one goroutine at a time) with each entry after it was
// removed. It holds a page of one directory per level. Stopped anywhere it has removed a part, and
// can be called again. If others keep adding entries, it is NotEmpty.
func (ns *Namespace) RemoveAll(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	if fn == nil {
		fn = func(bb.Entry) {}
	}
	e, err := ns.Lookup(ctx, parent, name)
	if err != nil {
		return err
	}
	o.Revision = 0
	for range retry.MaxTries {
		if e.IsDir() {
			if err := ns.removeTree(ctx, e.Dir, o, fn, 0); err != nil {
				return err
			}
		}
		removed, err := ns.Remove(ctx, parent, name, o)
		switch {
		case err == nil:
			fn(removed)
			return nil
		case !errors.Is(err, bb.NotEmpty):
			return err
		}
		if e, err = ns.Lookup(ctx, parent, name); err != nil {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "remove", name, "others keep adding entries")
}

// removeTree removes the content of a directory.
func (ns *Namespace) removeTree(ctx context.Context, dir bb.DirID, o namespace.RemoveOptions, fn func(bb.Entry), depth int) error {
	if depth > maxAncestors {
		return bb.E(bb.Internal, "remove", dir.String(), "is nested too deep")
	}
	for range maxRemovePass {
		page, err := ns.Sample(ctx, dir)
		if err != nil || len(page) == 0 {
			return err
		}
		var files []bb.Entry
		for i := range page {
			if !page[i].IsDir() {
				files = append(files, page[i])
				continue
			}
			if err := ns.removeTree(ctx, page[i].Dir, o, fn, depth+1); err != nil {
				return err
			}
			removed, err := ns.Remove(ctx, dir, page[i].Name, o)
			if err == nil {
				fn(removed)
			} else if !errors.Is(err, bb.NotFound) && !errors.Is(err, bb.NotEmpty) {
				return err
			}
		}
		if err := ns.removeFiles(ctx, dir, files, o, fn); err != nil {
			return err
		}
	}
	return bb.E(bb.NotEmpty, "remove", dir.String(), "others keep adding entries")
}

// Sample returns some entries of a directory, or none if it is empty or gone.
func (ns *Namespace) Sample(ctx context.Context, dir bb.DirID) ([]bb.Entry, error) {
	found := map[string]bb.Entry{}
	err := ns.scanEntries(ctx, record.EntriesOf(dir), func(e bb.Entry) error {
		found[e.Name] = e
		if len(found) == removePage {
			return kv.ErrStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, kv.ErrStop) {
		return nil, err
	}
	page := make([]bb.Entry, 0, len(found))
	for _, e := range found {
		page = append(page, e)
	}
	return page, nil
}

// removeFiles removes files of one directory. With StoreOps it does so in one batch, so that each
// file leaves with its operation, else one by one, many at a time. Files that changed meanwhile are
// left for the next pass.
func (ns *Namespace) removeFiles(ctx context.Context, dir bb.DirID, files []bb.Entry, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	if len(files) == 0 {
		return nil
	}
	if o.StoreOp {
		pointers := make([]*bb.Entry, len(files))
		for i := range files {
			pointers[i] = &files[i]
		}
		err := ns.removeBatch(ctx, pointers)
		if err == nil {
			for _, e := range files {
				fn(e)
			}
			return nil
		}
		if !errors.Is(err, kv.ErrRevision) {
			return kv.Wrap("remove", dir.String(), err)
		}
	}
	return ns.removeEach(ctx, files, o, fn)
}

func (ns *Namespace) removeEach(ctx context.Context, files []bb.Entry, o namespace.RemoveOptions, fn func(bb.Entry)) error {
	removed := make([]bool, len(files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(removeAtOnce)
	for i := range files {
		g.Go(func() error {
			_, err := ns.Remove(gctx, files[i].Parent, files[i].Name, namespace.RemoveOptions{StoreOp: o.StoreOp, Revision: files[i].Revision})
			removed[i] = err == nil
			if errors.Is(err, bb.NotFound) || errors.Is(err, kv.ErrConflict) {
				return nil
			}
			return err
		})
	}
	err := g.Wait()
	for i, ok := range removed {
		if ok {
			fn(files[i])
		}
	}
	return err
}
