package shared

import (
	"context"
	"errors"
	"fmt"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/walk"
	"forebay/meta/retry"
)

// Find is Lookup that reports whether there is an entry, and not with an error.
func (t *Tree) Find(ctx context.Context, dir bb.DirID, name string) (e bb.Entry, found bool, err error) {
	e, err = t.Lookup(ctx, dir, name)
	if errors.Is(err, bb.NotFound) && t.gone() == nil {
		return bb.Entry{}, false, nil
	}
	return e, err == nil, err
}

// Sample returns some entries of a directory, or none if it is empty or gone.
func (t *Tree) Sample(ctx context.Context, dir bb.DirID) ([]bb.Entry, error) {
	a, err := t.ask(ctx, &calls.Call{Op: calls.OpSample, Dir: dir})
	if err != nil {
		return nil, err
	}
	return a.Entries, nil
}

// DirGone reports whether a directory has been removed.
func (t *Tree) DirGone(ctx context.Context, dir bb.DirID) (bool, error) {
	return t.yes(ctx, &calls.Call{Op: calls.OpDirGone, Dir: dir})
}

// Covers reports whether the log has all changes since a revision of an entry.
func (t *Tree) Covers(ctx context.Context, revision uint64) (bool, error) {
	return t.yes(ctx, &calls.Call{Op: calls.OpCovers, Revision: revision})
}

// Refresh does nothing, since entries in memory are under leases.
func (t *Tree) Refresh(bb.DirID, string) {}

// SoleWriter is false, since other daemons change the namespace, too.
func (t *Tree) SoleWriter() bool { return false }

// ListLayers is List of several directories as one, of which the first has priority (walk.Layers).
func (t *Tree) ListLayers(ctx context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	return walk.Layers(ctx, t.List, t.gone, walk.Page{Dirs: dirs, Hidden: hidden, After: after, Limit: limit})
}

// PutWith is Put that also changes records in the same change, and sets the entry's revision. A conflict is
// kv.ErrRevision.
func (t *Tree) PutWith(ctx context.Context, e *bb.Entry, records ...kv.Change) error {
	a, err := t.store(ctx, &calls.Call{Op: calls.OpPutWith, Entry: *e, Changes: records})
	if err != nil {
		return ofRecords(err)
	}
	e.SetRevision(a.Revision)
	return nil
}

// ofRecords is the error of a change of records. A conflict is kv.ErrRevision, an unknown outcome
// kv.ErrUncertain.
func ofRecords(err error) error {
	switch {
	case errors.Is(err, kv.ErrConflict):
		return kv.ErrRevision
	case errors.Is(err, bb.ErrUnknownOutcome):
		return fmt.Errorf("%w (%w)", err, kv.ErrMaybeDone)
	}
	return err
}

// Records are those that another package keeps beside the entries (see nslog.Records).
type Records struct{ t *Tree }

// Records returns the records of other packages.
func (t *Tree) Records() *Records { return &Records{t} }

// Get returns the record of a key, or one without data if there is none.
func (r *Records) Get(ctx context.Context, key string) (kv.Record, error) {
	a, err := r.t.ask(ctx, &calls.Call{Op: calls.OpRecord, Name: key})
	if err != nil {
		return kv.Record{}, err
	}
	if len(a.Records) != 1 {
		return kv.Record{}, calls.Malformed(fmt.Errorf("%s of one key", bb.Count(len(a.Records), "record")))
	}
	found := a.Records[0]
	if found.Seq == 0 {
		found.Data = nil
	}
	return found, nil
}

// Scan calls fn with the records whose keys match a filter. A record that exists throughout comes
// at least once.
func (r *Records) Scan(ctx context.Context, filter string, fn func(*kv.Record) error) error {
	for after, more := "", true; more; {
		a, err := r.t.ask(ctx, &calls.Call{Op: calls.OpRecords, Name: filter, ToName: after})
		if err != nil {
			return err
		}
		more = a.Yes
		for i := range a.Records {
			after = a.Records[i].Key
			if err := fn(&a.Records[i]); errors.Is(err, kv.ErrStop) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// Create stores data under a key that has no record. Otherwise it returns kv.ErrRevision, and the record that there is.
func (r *Records) Create(ctx context.Context, key string, data []byte, _ uint64) (uint64, kv.Record, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		revision, err := r.Put(ctx, key, data, 0)
		if !errors.Is(err, kv.ErrRevision) {
			return revision, kv.Record{}, err
		}
		if there, err := r.Get(ctx, key); err != nil || there.Live() {
			return 0, there, errors.Join(err, kv.ErrRevision)
		}
	}
	return 0, kv.Record{}, kv.Wrap("create", key, kv.ErrRevision)
}

// Put stores data under a key that has a revision, and returns the new one.
func (r *Records) Put(ctx context.Context, key string, data []byte, expected uint64) (uint64, error) {
	return r.one(ctx, kv.Change{Key: key, Data: data, Expected: expected})
}

// Remove removes the record of a key that has a revision.
func (r *Records) Remove(ctx context.Context, key string, expected uint64) (uint64, error) {
	return r.one(ctx, kv.Change{Key: key, Expected: expected})
}

func (r *Records) one(ctx context.Context, c kv.Change) (uint64, error) {
	revisions, err := r.Commit(ctx, []kv.Change{c})
	if err != nil {
		return 0, err
	}
	return revisions[0], nil
}

// Commit carries out all changes, of which no two are of one key, or none, and returns the revision of
// each, and 0 for a removal or a check.
func (r *Records) Commit(ctx context.Context, changes []kv.Change) ([]uint64, error) {
	a, err := r.t.change(ctx, &calls.Call{Op: calls.OpCommit, Changes: changes})
	if err != nil {
		return nil, ofRecords(err)
	}
	if len(a.Revised) != len(changes) {
		return nil, calls.Malformed(fmt.Errorf("%s of %s", bb.Count(len(a.Revised), "revision"), bb.Count(len(changes), "change")))
	}
	return a.Revised, nil
}

// Unreadable counts or logs a record that cannot be decoded.
func (r *Records) Unreadable(key string, err error) {
	if r.t.o.Unreadable != nil {
		r.t.o.Unreadable(key, err)
	}
}
