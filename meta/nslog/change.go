package nslog

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/retry"
)

func exists(op, name string) error {
	return bb.E(bb.Exists, op, name, "there is an entry of that name")
}

func dirGone(op, name string) error {
	return bb.E(bb.NotFound, op, name, "its directory has been removed")
}

// encode returns the key and the value of an entry.
func encode(e *bb.Entry) (key, value []byte, err error) {
	b := record.AppendEntryKey(make([]byte, 0, 256), e.Parent, e.Name)
	n := len(b)
	if b, err = record.AppendEntry(b, e); err != nil {
		return nil, nil, err
	}
	return b[:n:n], b[n:], nil
}

// Create stores an entry whose name must not be taken, and returns its revision. If there is an
// entry of that name, it is Exists, if the directory is gone, NotFound.
func (e *Engine) Create(ctx context.Context, entry bb.Entry) (uint64, error) {
	if err := checkPlace(entry.Parent, entry.Name); err != nil {
		return 0, err
	}
	if entry.Type == bb.TypeDirectory {
		return 0, bb.E(bb.Invalid, "create", entry.Name, "is a directory").WithRemedy("use Mkdir")
	}
	r, err := e.create(ctx, "create", entry)
	return r.Revision, err
}

func (e *Engine) create(ctx context.Context, op string, entry bb.Entry) (bb.Entry, error) {
	key, value, err := encode(&entry)
	if err != nil {
		return bb.Entry{}, err
	}
	r, err := e.change(ctx, op, entry.Name, func(b *owner.Round) (r result, err error) {
		if !b.Touch(key) || !b.Use(entry.Parent) {
			return r, owner.ErrPostponed
		}
		switch _, there := b.Table.Get(key); {
		case !b.Table.HasDir(entry.Parent):
			return r, dirGone(op, entry.Name)
		case there:
			return r, exists(op, entry.Name)
		}
		r.entry = entry
		r.entry.SetRevision(b.StoreEntry(key, value))
		return r, nil
	})
	return r.entry, err
}

// Put stores a new state of an existing entry and returns its revision. Busy with
// namespace.ErrConflict if e.Revision is not the entry's, since it was changed, renamed or removed.
func (e *Engine) Put(ctx context.Context, entry bb.Entry) (uint64, error) {
	if entry.Parent != 0 || entry.Name != "" {
		if err := checkPlace(entry.Parent, entry.Name); err != nil {
			return 0, err
		}
	}
	if entry.Revision == 0 {
		return 0, bb.E(bb.Invalid, "put", entry.Name, "has no revision").WithRemedy("use Create")
	}
	r, err := e.put(ctx, "put", entry)
	return r.Revision, err
}

func (e *Engine) put(ctx context.Context, op string, entry bb.Entry) (bb.Entry, error) {
	key, value, err := encode(&entry)
	if err != nil {
		return bb.Entry{}, err
	}
	r, err := e.change(ctx, op, entry.Name, func(b *owner.Round) (r result, err error) {
		if err := checkPut(b, op, key, &entry); err != nil {
			return r, err
		}
		r.entry = entry
		r.entry.SetRevision(b.StoreEntry(key, value))
		return r, nil
	})
	return r.entry, err
}

// checkPut checks that an entry can be stored in the place of one of the same revision.
func checkPut(b *owner.Round, op string, key []byte, entry *bb.Entry) error {
	if !b.Touch(key) {
		return owner.ErrPostponed
	}
	item, there := b.Table.Get(key)
	if !there || item.Revision != entry.Revision {
		return kv.ErrRevision
	}
	if record.PeekDir(item.Value) != entry.Dir {
		return bb.E(bb.Invalid, op, entry.Name, "would become another directory")
	}
	return nil
}

// Update changes the entry of a name in a directory, or of the root (directory 0, no name), by
// fn, and returns it. Fn is called again if the entry is changed meanwhile.
func (e *Engine) Update(ctx context.Context, dir bb.DirID, name string, fn func(*bb.Entry) error) (bb.Entry, error) {
	if dir != 0 || name != "" {
		if err := checkPlace(dir, name); err != nil {
			return bb.Entry{}, err
		}
	}
	if r, done, err := e.answered(ctx); done || err != nil {
		return r.entry, err
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		var now bb.Entry
		err := e.owner.Read(ctx, "update", name, func(t *table.Table) (err error) {
			var ok bool
			if now, ok, err = find(t, dir, name); err == nil && !ok {
				err = notFound("update", name)
			}
			return err
		})
		if err != nil {
			return bb.Entry{}, err
		}
		if err := fn(&now); err != nil {
			return bb.Entry{}, err
		}
		now, err = e.put(ctx, "update", now)
		if !errors.Is(err, kv.ErrConflict) {
			return now, err
		}
	}
	return bb.Entry{}, kv.Wrap("update", name, kv.ErrRevision)
}

// SetAttr changes attributes of the entry of a name in a directory, or of the root (directory
// 0, no name), and returns it.
func (e *Engine) SetAttr(ctx context.Context, dir bb.DirID, name string, a namespace.Attr) (bb.Entry, error) {
	return e.Update(ctx, dir, name, a.Apply)
}

// Mkdir makes a directory and returns its entry. Exists if there is an entry of that name,
// NotFound if the parent is gone.
func (e *Engine) Mkdir(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	if err := checkPlace(parent, name); err != nil {
		return bb.Entry{}, err
	}
	id, err := e.ids.Next(ctx)
	if err != nil {
		return bb.Entry{}, err
	}
	return e.create(ctx, "mkdir", bb.Entry{
		Parent: parent, Name: name, Type: bb.TypeDirectory, Dir: bb.DirID(id),
		Mode: o.Mode.Perm(), UID: o.UID, GID: o.GID, MTime: time.Now().Round(0).UTC(),
	})
}

// MkdirAll makes a directory and its missing ancestors and returns its entry, or that of the
// directory that was there already. Sent again, it makes the missing ones.
func (e *Engine) MkdirAll(ctx context.Context, path string, o namespace.Owner) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, err
	}
	at, err := e.Root(ctx)
	for i, name := range names {
		if err != nil {
			break
		}
		at, err = e.enter(once.Without(ctx), at.Dir, name, o)
		err = bb.Wrap("mkdir", e.address(names[:i+1]...), err)
	}
	return at, err
}

// enter returns the directory of a name, made if it is not there.
func (e *Engine) enter(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		found, err := e.Lookup(ctx, parent, name)
		switch {
		case err == nil && !found.IsDir():
			return bb.Entry{}, bb.E(bb.NotDirectory, "mkdir", name, "is a file")
		case !errors.Is(err, bb.NotFound):
			return found, err
		}
		if found, err = e.Mkdir(ctx, parent, name, o); !errors.Is(err, bb.Exists) {
			return found, err
		}
	}
	return bb.Entry{}, kv.Wrap("mkdir", name, kv.ErrRevision)
}
