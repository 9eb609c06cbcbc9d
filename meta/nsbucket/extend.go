package nsbucket

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// The rest is for packages that keep records of their own in a namespace's bucket, as transactions
// do. Callers of a namespace use Tree.

// Bucket returns the bucket of the namespace. Its keys are drawn in record/names.go. Others' keys
// begin differently.
func (ns *Namespace) Bucket() *kv.Bucket { return ns.b }

// SoleWriter reports whether this Namespace alone changes the bucket.
func (ns *Namespace) SoleWriter() bool { return ns.sole }

// Find is Lookup that returns whether there is an entry, instead of an error.
func (ns *Namespace) Find(ctx context.Context, dir bb.DirID, name string) (e bb.Entry, found bool, err error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, false, err
	}
	c, err := ns.load(ctx, dir, name)
	return c.Value, c.Live, kv.Wrap("lookup", name, err)
}

// Refresh makes the next look-up of a name send a request to the server, past the cache.
func (ns *Namespace) Refresh(dir bb.DirID, name string) { ns.entries.Forget(entryID{dir, name}) }

// DirGone reads from the server whether a directory has been removed.
func (ns *Namespace) DirGone(ctx context.Context, dir bb.DirID) (bool, error) {
	if dir == bb.RootDir {
		return false, nil
	}
	c, err := ns.fetchDir(ctx, dir)
	return err == nil && !c.Live, err
}

// PutWith is Put that also changes records of another package in the same atomic change. A
// conflict is kv.ErrRevision, after which the entry is looked up anew.
func (ns *Namespace) PutWith(ctx context.Context, e *bb.Entry, records ...kv.Change) error {
	id, key := entryID{e.Parent, e.Name}, record.EntryKey(e.Parent, e.Name)
	data, err := record.SealEntry(key, e)
	if err != nil {
		return err
	}
	changes := append(records, kv.Change{Key: key, Data: data, Expected: e.Revision})
	err = ns.commit(ctx, changes, []entryChange{{id, len(changes) - 1, e}}, nil)
	if errors.Is(err, kv.ErrRevision) {
		ns.entries.Forget(id)
		ns.dirs.Forget(e.Dir)
	}
	return err
}

// EntryOf returns the entry of a directory below the root, wherever it is. NotFound if it
// was removed.
func (ns *Namespace) EntryOf(ctx context.Context, dir bb.DirID) (bb.Entry, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		d, err := ns.fetchDir(ctx, dir)
		if err != nil {
			return bb.Entry{}, kv.Wrap("lookup", dir.String(), err)
		}
		if !d.Live {
			return bb.Entry{}, bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
		}
		c, err := ns.load(ctx, d.Value.Parent, d.Value.Name)
		if err != nil {
			return bb.Entry{}, kv.Wrap("lookup", dir.String(), err)
		}
		if c.Live && c.Value.Dir == dir {
			return c.Value, nil
		}
		// It was renamed or removed between the two reads, or lies in a directory that was removed.
		ns.entries.Forget(entryID{d.Value.Parent, d.Value.Name})
		if up, err := ns.fetchDir(ctx, d.Value.Parent); err == nil && d.Value.Parent != bb.RootDir && !up.Live {
			return bb.Entry{}, bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
		}
	}
	return bb.Entry{}, kv.Wrap("lookup", dir.String(), kv.ErrRevision)
}
