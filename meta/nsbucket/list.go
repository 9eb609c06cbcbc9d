package nsbucket

import (
	"context"
	"errors"
	"fmt"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nsbucket/listing"
	"forebay/meta/nsbucket/record"
)

func (ns *Namespace) checkDir(ctx context.Context, dir bb.DirID) error {
	c, err := ns.loadDir(ctx, dir)
	if err != nil {
		return kv.Wrap("list", dir.String(), err)
	}
	if !c.Live {
		return bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	return nil
}

// read reads a directory. NotFound if it does not exist.
func (ns *Namespace) read(ctx context.Context, dir bb.DirID) (*listing.Listing, error) {
	if err := ns.checkDir(ctx, dir); err != nil {
		return nil, err
	}
	l, err := listing.Read(dir, ns.b.Unreadable, func(fn func(*kv.Record) error) error { return ns.b.Scan(ctx, record.EntriesOf(dir), fn) })
	return l, kv.Wrap("list", dir.String(), err)
}

// List returns at most limit entries of a directory with names above after, sorted by name, and
// whether there are more. Pages requested one after the other, each after the last name of the one
// before, show every entry that existed throughout, none twice and none that never existed. A first
// page (after "") is always of now. It costs reading the directory, since the server has no order
// of names. The listing of a large directory is kept for a minute for the pages that follow.
func (ns *Namespace) List(ctx context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error) {
	return ns.page(dir, after, limit, func() error { return ns.checkDir(ctx, dir) }, func() (*listing.Listing, error) { return ns.read(ctx, dir) })
}

// ListLayers is List of several directories as one, which are read one after the other (see
// listing.Union). A directory that is gone is empty. If the last one is gone, it is NotFound.
func (ns *Namespace) ListLayers(ctx context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	last := len(dirs) - 1
	return ns.page(dirs[last], after, limit, func() error { return nil }, func() (*listing.Listing, error) {
		lists := make([]*listing.Listing, len(dirs))
		for i, dir := range dirs {
			var err error
			if lists[i], err = ns.read(ctx, dir); err != nil && (i == last || !errors.Is(err, bb.NotFound)) {
				return nil, err
			}
		}
		return listing.Union(dirs[last], lists, hidden), nil
	})
}

// page returns a page of read's listing, or of the one that was kept for the page before if check
// accepts it.
func (ns *Namespace) page(dir bb.DirID, after string, limit int, check func() error, read func() (*listing.Listing, error)) (entries []bb.Entry, more bool, err error) {
	if limit < 1 || limit > bb.MaxPageSize {
		return nil, false, bb.E(bb.Invalid, "list", fmt.Sprint(limit), fmt.Sprintf("a page has 1 to %d entries", bb.MaxPageSize))
	}
	if after != "" {
		if err := check(); err != nil {
			return nil, false, err
		}
		if l := ns.listings.Get(dir); l != nil {
			entries, more = l.Page(after, limit)
			return entries, more, nil
		}
	}
	l, err := read()
	if err != nil {
		return nil, false, err
	}
	if l.Len() > kv.SmallScan {
		ns.listings.Put(l)
	}
	entries, more = l.Page(after, limit)
	return entries, more, nil
}

// Scan calls fn with every entry of a directory, in no order and without holding them. An entry
// that changes meanwhile may come again, with a newer revision, or come although it is gone by the
// end. An entry that exists throughout comes. fn may use the namespace. Its error ends the scan and
// is returned.
func (ns *Namespace) Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error {
	if err := ns.checkDir(ctx, dir); err != nil {
		return err
	}
	return ns.scanEntries(ctx, record.EntriesOf(dir), fn)
}

// ScanAll is Scan over all files and directories of the buffer but the root.
func (ns *Namespace) ScanAll(ctx context.Context, fn func(bb.Entry) error) error {
	return ns.scanEntries(ctx, record.EntryPrefix+">", fn)
}

// ScanMarks is ScanAll that also calls gone with the id of each file of whose removal the namespace
// still has a mark. There is one of each file that was removed, or replaced by a rename. It is kept
// under the name of the removed file, or the old name of the renamed one, until that name is used
// again.
func (ns *Namespace) ScanMarks(ctx context.Context, fn func(bb.Entry) error, gone func(bb.FileID)) error {
	return ns.scanRecords(ctx, record.EntryPrefix+">", fn, gone)
}

func (ns *Namespace) scanEntries(ctx context.Context, filter string, fn func(bb.Entry) error) error {
	return ns.scanRecords(ctx, filter, fn, func(bb.FileID) {})
}

func (ns *Namespace) scanRecords(ctx context.Context, filter string, fn func(bb.Entry) error, gone func(bb.FileID)) error {
	var failed error
	err := ns.b.Scan(ctx, filter, func(r *kv.Record) error {
		if !r.Live() && r.Gone != 0 {
			gone(r.Gone)
		}
		if !r.Live() || r.Key == record.RootKey {
			return nil
		}
		e, err := record.OpenEntry(r.Key, r.Data, r.Seq)
		if err != nil {
			ns.b.Unreadable(r.Key, err)
			return nil
		}
		if failed = fn(e); failed != nil {
			return kv.ErrStop
		}
		return nil
	})
	if failed != nil {
		return failed
	}
	return kv.Wrap("scan", ns.buffer, err)
}
