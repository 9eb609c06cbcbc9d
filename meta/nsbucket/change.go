package nsbucket

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/cache"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// Create stores an entry whose name must not be taken, and returns its revision: one
// compare-and-set, after which the directory is confirmed (see Namespace). If there is an entry of
// that name, it is Exists, if the directory is gone, NotFound.
func (ns *Namespace) Create(ctx context.Context, e bb.Entry) (uint64, error) {
	if err := checkPlace(e.Parent, e.Name); err != nil {
		return 0, err
	}
	if e.Type == bb.TypeDirectory {
		return 0, bb.E(bb.Invalid, "create", e.Name, "is a directory").WithRemedy("use Mkdir")
	}
	return ns.create(ctx, "create", &e)
}

func (ns *Namespace) create(ctx context.Context, op string, e *bb.Entry) (uint64, error) {
	id, key := entryID{e.Parent, e.Name}, record.EntryKey(e.Parent, e.Name)
	data, err := record.SealEntry(key, e)
	if err != nil {
		return 0, err
	}
	known, _ := ns.entries.Get(id)
	if known.Live {
		return 0, exists(op, e.Name)
	}
	t := ns.entries.Begin(id)
	seq, _, err := ns.b.Create(ctx, key, data, known.Seq)
	stored := *e
	stored.SetRevision(seq)
	settle(ns.entries, id, cache.Known[bb.Entry]{Value: stored, Seq: seq, Live: true}, t, err)
	if errors.Is(err, kv.ErrRevision) {
		return 0, exists(op, e.Name)
	}
	if err != nil {
		return 0, kv.Wrap(op, e.Name, err)
	}
	err = ns.confirm(ctx, op, id)
	if err != nil && !errors.Is(err, bb.NotFound) {
		err = bb.MaybeDone(err) // the entry is there, and may stay
	}
	return seq, err
}

func exists(op, name string) error {
	return bb.E(bb.Exists, op, name, "there is an entry of that name")
}

// confirm is step C2 of the creation of an entry.
func (ns *Namespace) confirm(ctx context.Context, op string, id entryID) error {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		switch _, gone, err := ns.settledDir(ctx, id.dir); {
		case errors.Is(err, kv.ErrRevision):
			continue
		case err != nil:
			return kv.Wrap(op, id.name, err)
		case gone:
			return errors.Join(dirGone(op, id.name), kv.Wrap(op, id.name, ns.withdraw(ctx, id)))
		}
		return nil
	}
	return kv.Wrap(op, id.name, kv.ErrRevision)
}

func dirGone(op, name string) error {
	return bb.E(bb.NotFound, op, name, "its directory has been removed")
}

// settledDir returns the revision of a directory's record without a mark of removal, which it takes off. It returns
// errConflict if it must be called again.
func (ns *Namespace) settledDir(ctx context.Context, dir bb.DirID) (seq uint64, gone bool, err error) {
	c, err := ns.loadDir(ctx, dir)
	if err != nil || !c.Live || !c.Value.Removing {
		return c.Seq, err == nil && !c.Live, err
	}
	d := c.Value
	d.Removing = false
	seq, err = ns.putDir(ctx, dir, d, c.Seq)
	return seq, false, err
}

// withdraw deletes an entry from a directory that is gone. Later writers of the entry had it from
// its creator, and its directory is gone for them too.
func (ns *Namespace) withdraw(ctx context.Context, id entryID) error {
	key := record.EntryKey(id.dir, id.name)
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		r, err := ns.b.Get(ctx, key)
		if err != nil {
			return err
		}
		if !r.Live() {
			return nil
		}
		if err := ns.removeEntry(ctx, id, r.Seq, 0); !errors.Is(err, kv.ErrRevision) {
			return err
		}
	}
	return kv.ErrRevision
}

func (ns *Namespace) removeEntry(ctx context.Context, id entryID, expected uint64, file bb.FileID) error {
	t := ns.entries.Begin(id)
	seq, err := ns.b.RemoveFile(ctx, record.EntryKey(id.dir, id.name), expected, file)
	settle(ns.entries, id, cache.Known[bb.Entry]{Seq: seq}, t, err)
	return err
}

// Put stores a new state of an existing entry and returns its revision. Busy with ErrConflict if
// e.Revision is not the entry's, since it was changed, renamed or removed.
func (ns *Namespace) Put(ctx context.Context, e bb.Entry) (uint64, error) {
	if e.Parent != 0 || e.Name != "" {
		if err := checkPlace(e.Parent, e.Name); err != nil {
			return 0, err
		}
	}
	if e.Revision == 0 {
		return 0, bb.E(bb.Invalid, "put", e.Name, "has no revision").WithRemedy("use Create")
	}
	seq, err := ns.put(ctx, &e)
	return seq, kv.Wrap("put", e.Name, err)
}

func (ns *Namespace) put(ctx context.Context, e *bb.Entry) (uint64, error) {
	id, key := entryID{e.Parent, e.Name}, record.EntryKey(e.Parent, e.Name)
	data, err := record.SealEntry(key, e)
	if err != nil {
		return 0, err
	}
	t := ns.entries.Begin(id)
	seq, err := ns.b.Put(ctx, key, data, e.Revision)
	stored := *e
	stored.SetRevision(seq)
	settle(ns.entries, id, cache.Known[bb.Entry]{Value: stored, Seq: seq, Live: true}, t, err)
	return seq, err
}

// Mkdir makes a directory and returns its entry. Exists if there is an entry of
// that name, NotFound if the parent is gone.
func (ns *Namespace) Mkdir(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	if err := checkPlace(parent, name); err != nil {
		return bb.Entry{}, err
	}
	if c, ok := ns.entries.Get(entryID{parent, name}); ok && c.Live {
		return bb.Entry{}, exists("mkdir", name)
	}
	id, err := ns.ids.Next(ctx)
	if err != nil {
		return bb.Entry{}, err
	}
	dir := bb.DirID(id)
	e := bb.Entry{
		Parent: parent, Name: name, Type: bb.TypeDirectory, Dir: dir,
		Mode: o.Mode.Perm(), UID: o.UID, GID: o.GID, MTime: time.Now().Round(0).UTC(),
	}
	// The reverse record first. No other node has the id yet, so two puts need not be one batch. A
	// crash in between leaves a record that nothing leads to.
	made, err := ns.putDir(ctx, dir, record.Directory{Parent: parent, Name: name}, 0)
	if err != nil {
		return bb.Entry{}, kv.Wrap("mkdir", name, err)
	}
	e.Revision, err = ns.create(ctx, "mkdir", &e)
	if err != nil {
		if errors.Is(err, bb.Exists) || errors.Is(err, bb.NotFound) {
			ns.b.Discard(record.DirKey(dir), made)
			ns.dirs.Forget(dir)
		}
		return bb.Entry{}, err
	}
	return e, nil
}

// MkdirAll makes a directory and its missing ancestors and returns its entry, or
// that of the directory that was there already.
func (ns *Namespace) MkdirAll(ctx context.Context, path string, o namespace.Owner) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, err
	}
	e, err := ns.Root(ctx)
	if err != nil {
		return bb.Entry{}, err
	}
	for i, name := range names {
		next, err := ns.enter(ctx, e.Dir, name, o)
		if err != nil {
			return bb.Entry{}, bb.Wrap("mkdir", ns.address(names[:i+1]...), err)
		}
		e = next
	}
	return e, nil
}

// enter returns the directory of a name, made if it is not there.
func (ns *Namespace) enter(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		c, err := ns.load(ctx, parent, name)
		switch {
		case err != nil:
			return bb.Entry{}, kv.Wrap("mkdir", name, err)
		case c.Live && !c.Value.IsDir():
			return bb.Entry{}, bb.E(bb.NotDirectory, "mkdir", name, "is a file")
		case c.Live:
			return c.Value, nil
		}
		e, err := ns.Mkdir(ctx, parent, name, o)
		if !errors.Is(err, bb.Exists) {
			return e, err
		}
		ns.entries.Forget(entryID{parent, name})
	}
	return bb.Entry{}, kv.Wrap("mkdir", name, kv.ErrRevision)
}

// Remove removes a file or an empty directory and returns the entry that it was. It returns
// NotEmpty for a directory that is not empty, and *Unfolded for one that a transaction is committed
// into while the output is not in it yet.
func (ns *Namespace) Remove(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions) (bb.Entry, error) {
	if err := checkPlace(parent, name); err != nil {
		return bb.Entry{}, err
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		c, err := ns.load(ctx, parent, name)
		switch {
		case err != nil:
			return bb.Entry{}, kv.Wrap("remove", name, err)
		case !c.Live:
			return bb.Entry{}, bb.E(bb.NotFound, "remove", name, "there is no such file or directory")
		case o.Revision != 0 && o.Revision != c.Seq:
			return bb.Entry{}, kv.Wrap("remove", name, kv.ErrRevision)
		}
		if c.Value.IsDir() {
			err = ns.removeDir(ctx, &c.Value, o)
		} else {
			err = ns.removeFile(ctx, &c.Value, o)
		}
		if !errors.Is(err, kv.ErrRevision) {
			return c.Value, kv.Wrap("remove", name, err)
		}
		ns.entries.Forget(entryID{parent, name})
	}
	return bb.Entry{}, kv.Wrap("remove", name, kv.ErrRevision)
}

func (ns *Namespace) removeFile(ctx context.Context, e *bb.Entry, o namespace.RemoveOptions) error {
	if o.StoreOp {
		return ns.removeFollowed(ctx, e)
	}
	return ns.removeEntry(ctx, entryID{e.Parent, e.Name}, e.Revision, e.File)
}

// removeDir is the remover's part of the protocol at Namespace.
func (ns *Namespace) removeDir(ctx context.Context, e *bb.Entry, o namespace.RemoveOptions) error {
	if e.Txn != 0 {
		return &namespace.Unfolded{ID: e.Txn}
	}
	marked, err := ns.markEmpty(ctx, "remove", e)
	if err != nil {
		return err
	}
	var changes []kv.Change
	if o.StoreOp {
		op, err := ns.removalOp(ctx, e)
		if err != nil {
			return err
		}
		changes = append(changes, op)
	}
	n := len(changes)
	changes = append(
		changes,
		kv.Change{Key: record.DirKey(e.Dir), Expected: marked},
		kv.Change{Key: record.EntryKey(e.Parent, e.Name), Expected: e.Revision},
	)
	return ns.commit(ctx, changes, []entryChange{{id: entryID{e.Parent, e.Name}, change: n + 1}}, []dirChange{{dir: e.Dir, change: n}})
}

// markEmpty marks a directory as being removed and then finds it empty (steps R1 and R2). It
// returns the revision of the marked record. NotEmpty takes the mark off.
func (ns *Namespace) markEmpty(ctx context.Context, op string, e *bb.Entry) (uint64, error) {
	c, err := ns.loadDir(ctx, e.Dir)
	if err != nil {
		return 0, err
	}
	if !c.Live {
		ns.dirs.Forget(e.Dir)
		return 0, kv.ErrRevision // removed a moment ago, and its entry is gone too
	}
	marked, d := c.Seq, c.Value
	if !d.Removing {
		d.Removing = true
		if marked, err = ns.putDir(ctx, e.Dir, d, c.Seq); err != nil {
			return 0, err
		}
	}
	empty, err := ns.b.Empty(ctx, record.EntriesOf(e.Dir))
	if err != nil || empty {
		return marked, err
	}
	d.Removing = false
	if _, err := ns.putDir(ctx, e.Dir, d, marked); err != nil && !errors.Is(err, kv.ErrRevision) {
		return 0, err
	}
	return 0, bb.E(bb.NotEmpty, op, e.Name, "the directory holds something").WithRemedy("remove what it holds first")
}

// entryChange and dirChange apply a batch's change to the caches.
type entryChange struct {
	id     entryID
	change int       // index
	entry  *bb.Entry // gets its revision; nil: it was deleted
}

type dirChange struct {
	dir    bb.DirID
	change int
	record *record.Directory // nil: it was deleted
}

// commit carries out a batch and keeps its outcome in the caches.
func (ns *Namespace) commit(ctx context.Context, changes []kv.Change, entries []entryChange, dirs []dirChange) error {
	entryTickets, dirTickets := make([]cache.Ticket, len(entries)), make([]cache.Ticket, len(dirs))
	for i, c := range entries {
		entryTickets[i] = ns.entries.Begin(c.id)
	}
	for i, c := range dirs {
		dirTickets[i] = ns.dirs.Begin(c.dir)
	}
	seqs, err := ns.b.Commit(ctx, changes)
	if err != nil {
		seqs = make([]uint64, len(changes))
	}
	if errors.Is(err, kv.ErrRevision) && !errors.Is(err, kv.ErrUncertain) {
		ns.ops.GiveBack(changes)
	}
	for i, c := range entries {
		known := cache.Known[bb.Entry]{Seq: seqs[c.change], Live: c.entry != nil}
		if c.entry != nil && err == nil {
			c.entry.SetRevision(known.Seq)
			known.Value = *c.entry
		}
		settle(ns.entries, c.id, known, entryTickets[i], err)
	}
	for i, c := range dirs {
		known := cache.Known[record.Directory]{Seq: seqs[c.change], Live: c.record != nil}
		if c.record != nil {
			known.Value = *c.record
		}
		settle(ns.dirs, c.dir, known, dirTickets[i], err)
	}
	return err
}
