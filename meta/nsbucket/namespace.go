// Package nsbucket is the engine of namespaces that keeps a record for each directory and file in a bucket. It gets the
// bucket and ids from its caller, and must never depend on buffers, transactions or the connection to the server.
package nsbucket

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/cache"
	"forebay/meta/nsbucket/listing"
	"forebay/meta/nsbucket/oplog"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// maxAncestors bounds the way up from a directory. Paths are shorter (bb.MaxDepth),
// but renames can hang a deep tree below another.
const maxAncestors = 16 * bb.MaxDepth

// Namespace is the tree of directories and files of one buffer. It is safe for concurrent use. All users of one process
// share one Namespace a buffer.
//
// # Why a directory cannot vanish under a new entry
//
// Creating an entry must be one compare-and-set of the entry's own key, so the
// server cannot check at the same time that the directory is still there. Instead,
// for a directory D other than the root, with its record d.D:
//
//	creator:  C1 put e.D.name (must not exist)    remover:  R1 put d.D marked (compare-and-set)
//	          C2 read d.D:                                  R2 look for an entry in D:
//	             there, not marked → done                      found → take the mark off, NotEmpty
//	             marked → take the mark off                    none  → R3
//	                      (compare-and-set), C2 again       R3 one batch: delete d.D if still
//	             gone → delete e.D.name, NotFound              as marked in R1, delete D's entry
//
// Suppose that a creator succeeded and a removal too. The creator's last C2 found d.D without that
// removal's mark, or took it off. If it took it off, R3 fails. If C2 came after R3, it found D
// gone. So C2 came before R1. Then so did C1, and R2 found the entry. Each step is one linearizable
// operation of the server. With a cache, C2 may be answered by it, and the mark is in the cache
// before R2 begins, so the same holds. A remover or creator that dies in between leaves a mark,
// which changes nothing, or an entry in a directory that is gone, which no path reaches.
//
// Rename puts an entry into its new directory in a batch that checks that d.D has the revision that
// was read, unmarked. A mark is taken off first.
type Namespace struct {
	namespace.StoreLog // ops

	b       *kv.Bucket
	ids     namespace.IDs
	buffer  string
	sole    bool
	entries *cache.Cache[entryID, bb.Entry]
	dirs    *cache.Cache[bb.DirID, record.Directory]

	known     knownPaths
	ops       *oplog.Log
	removals  removals
	listings  listing.Kept
	destroyed atomic.Bool // by this process, so the caches must not answer any more
}

// Options are the owner of a namespace and the ways of using it.
type Options struct {
	Buffer string    // its name
	Node   bb.NodeID // that StoreOps of its changes name as theirs
	// SoleWriter: this Namespace alone changes the bucket. It answers from a
	// write-through cache.
	SoleWriter bool
	// CacheEntries bounds that cache, about 600 bytes each. The default is 32,768.
	CacheEntries int
}

// Open returns the namespace in a bucket, which need not exist (see Prepare).
func Open(b *kv.Bucket, ids namespace.IDs, o Options) *Namespace {
	ops := oplog.New(b, ids, o.Buffer, o.Node)
	ns := &Namespace{StoreLog: ops, ops: ops, b: b, ids: ids, buffer: o.Buffer, sole: o.SoleWriter}
	if o.SoleWriter {
		entries := o.CacheEntries
		if entries <= 0 {
			entries = 1 << 15
		}
		ns.entries = cache.New[entryID, bb.Entry](entries)
		ns.dirs = cache.New[bb.DirID, record.Directory](entries)
	}
	return ns
}

// MarkDestroyed makes the namespace answer that it is gone, despite its caches.
func (ns *Namespace) MarkDestroyed() { ns.destroyed.Store(true) }

type entryID struct {
	dir  bb.DirID
	name string
}

// Prepare makes the bucket and the root directory, with the attributes of a buffer, where
// they are not there.
func (ns *Namespace) Prepare(ctx context.Context, b *bb.Buffer) error {
	if found, err := ns.b.Exists(ctx); err != nil {
		return err
	} else if !found {
		if err := ns.b.Ensure(ctx); err != nil {
			return err
		}
	}
	root := bb.Entry{Type: bb.TypeDirectory, Dir: bb.RootDir, Mode: b.Mode.Perm(), UID: b.UID, GID: b.GID, MTime: b.Created}
	data, err := record.SealEntry(record.RootKey, &root)
	if err != nil {
		return err
	}
	if _, _, err := ns.b.Create(ctx, record.RootKey, data, 0); err != nil && !errors.Is(err, kv.ErrRevision) {
		return err
	}
	return nil
}

// Buffer returns the name of the namespace's buffer.
func (ns *Namespace) Buffer() string { return ns.buffer }

func (ns *Namespace) address(names ...string) string {
	return bb.Scheme + "://" + ns.buffer + "/" + strings.Join(names, "/")
}

// load returns the state of an entry, from the cache or the server.
func (ns *Namespace) load(ctx context.Context, dir bb.DirID, name string) (cache.Known[bb.Entry], error) {
	if ns.destroyed.Load() {
		return cache.Known[bb.Entry]{}, kv.ErrNoBucket
	}
	id := entryID{dir, name}
	if c, ok := ns.entries.Get(id); ok {
		return c, nil
	}
	t := ns.entries.Begin(id)
	key := record.EntryKey(dir, name)
	r, err := ns.b.Get(ctx, key)
	if err != nil {
		return cache.Known[bb.Entry]{}, err
	}
	c := cache.Known[bb.Entry]{Seq: r.Seq, Live: r.Live()}
	if c.Live {
		if c.Value, err = record.OpenEntry(key, r.Data, r.Seq); err != nil {
			ns.b.Unreadable(key, err)
			return c, err
		}
	}
	ns.entries.Store(id, c, t)
	return c, nil
}

func (ns *Namespace) loadDir(ctx context.Context, dir bb.DirID) (cache.Known[record.Directory], error) {
	if ns.destroyed.Load() {
		return cache.Known[record.Directory]{}, kv.ErrNoBucket
	}
	if dir == bb.RootDir {
		return cache.Known[record.Directory]{Live: true}, nil
	}
	if c, ok := ns.dirs.Get(dir); ok {
		return c, nil
	}
	return ns.fetchDir(ctx, dir)
}

// fetchDir is loadDir that always reads from the server.
func (ns *Namespace) fetchDir(ctx context.Context, dir bb.DirID) (cache.Known[record.Directory], error) {
	t := ns.dirs.Begin(dir)
	key := record.DirKey(dir)
	r, err := ns.b.Get(ctx, key)
	if err != nil {
		return cache.Known[record.Directory]{}, err
	}
	c := cache.Known[record.Directory]{Seq: r.Seq, Live: r.Live()}
	if c.Live {
		if c.Value, err = record.OpenDir(key, r.Data); err != nil {
			ns.b.Unreadable(key, err)
			return c, err
		}
	}
	ns.dirs.Store(dir, c, t)
	return c, nil
}

// putDir stores a directory's record if its revision is expected.
func (ns *Namespace) putDir(ctx context.Context, dir bb.DirID, d record.Directory, expected uint64) (uint64, error) {
	data, err := record.SealDir(dir, d)
	if err != nil {
		return 0, err
	}
	t := ns.dirs.Begin(dir)
	seq, err := ns.b.Put(ctx, record.DirKey(dir), data, expected)
	settle(ns.dirs, dir, cache.Known[record.Directory]{Value: d, Seq: seq, Live: true}, t, err)
	return seq, err
}

// settle keeps the outcome of a change in the cache.
func settle[K comparable, V any](c *cache.Cache[K, V], key K, known cache.Known[V], t cache.Ticket, err error) {
	switch {
	case err == nil:
		c.Store(key, known, t)
	case errors.Is(err, kv.ErrUncertain):
		c.Invalidate(key)
	case errors.Is(err, kv.ErrRevision):
		c.Forget(key)
	}
}

// Distrust drops the cache. The server has been found to have gone back behind it.
func (ns *Namespace) Distrust() {
	ns.ops.Distrust()
	ns.entries.ForgetAll()
	ns.dirs.ForgetAll()
}

// Root returns the root directory's entry. It has neither parent nor name.
func (ns *Namespace) Root(ctx context.Context) (bb.Entry, error) {
	c, err := ns.load(ctx, 0, "")
	if err == nil && !c.Live {
		err = kv.ErrNoBucket
	}
	return c.Value, kv.Wrap("stat", ns.address(), err)
}

// Lookup returns the entry of a name in a directory, or NotFound if there is none. The entry's
// Holders may be shared and must not be changed in place.
func (ns *Namespace) Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, err
	}
	c, err := ns.load(ctx, dir, name)
	if err != nil {
		return bb.Entry{}, kv.Wrap("lookup", name, err)
	}
	if !c.Live {
		return bb.Entry{}, bb.E(bb.NotFound, "lookup", name, "there is no such file or directory")
	}
	return c.Value, nil
}

// LookupAgain is Lookup that always reads from the server.
func (ns *Namespace) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	ns.entries.Forget(entryID{dir, name})
	return ns.Lookup(ctx, dir, name)
}

// Removed reports whether the namespace has a mark of the removal of a file, which it had under a
// name in a revision: one of that file, or one that is newer. It is false where the name is in use,
// and where the namespace has no record of a removal, as after it was set back.
func (ns *Namespace) Removed(ctx context.Context, dir bb.DirID, name string, file bb.FileID, revision uint64) (bool, error) {
	if err := checkPlace(dir, name); err != nil {
		return false, err
	}
	r, err := ns.b.Get(ctx, record.EntryKey(dir, name))
	if err != nil {
		return false, kv.Wrap("lookup", name, err)
	}
	return !r.Live() && r.Seq != 0 && (r.Gone == file || r.Seq > revision), nil
}

func checkPlace(dir bb.DirID, name string) error {
	if dir == 0 {
		return bb.E(bb.Invalid, "name", name, "its directory has no id")
	}
	return bb.CheckName(name)
}

// Resolve follows a path from the root and returns the entry at its end. NotFound
// and NotDirectory name the component that is missing, or is a file.
func (ns *Namespace) Resolve(ctx context.Context, path string) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, err
	}
	if len(names) == 0 {
		return ns.Root(ctx)
	}
	dir, err := ns.walk(ctx, names[:len(names)-1])
	if err != nil {
		return bb.Entry{}, err
	}
	c, err := ns.load(ctx, dir, names[len(names)-1])
	switch {
	case err != nil:
		return bb.Entry{}, kv.Wrap("lookup", ns.address(names...), err)
	case !c.Live:
		return bb.Entry{}, bb.E(bb.NotFound, "lookup", ns.address(names...), "there is no such file or directory")
	}
	return c.Value, nil
}

// ResolveParent follows a path to the directory of its last name, which need not
// exist. Invalid for the root, which is in no directory.
func (ns *Namespace) ResolveParent(ctx context.Context, path string) (bb.DirID, string, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return 0, "", err
	}
	if len(names) == 0 {
		return 0, "", bb.E(bb.Invalid, "lookup", ns.address(), "is the root of the buffer")
	}
	dir, err := ns.walk(ctx, names[:len(names)-1])
	return dir, names[len(names)-1], err
}

// walk follows names that must all be directories.
func (ns *Namespace) walk(ctx context.Context, names []string) (bb.DirID, error) {
	dir := bb.RootDir
	for i, name := range names {
		c, err := ns.load(ctx, dir, name)
		switch {
		case err != nil:
			return 0, kv.Wrap("lookup", ns.address(names[:i+1]...), err)
		case !c.Live:
			return 0, bb.E(bb.NotFound, "lookup", ns.address(names[:i+1]...), "there is no such directory")
		case !c.Value.IsDir():
			return 0, bb.E(bb.NotDirectory, "lookup", ns.address(names[:i+1]...), "is a file")
		}
		dir = c.Value.Dir
	}
	return dir, nil
}

// SetAttr changes attributes of the entry of a name in a directory, or of the root
// (directory 0, no name), and returns it.
func (ns *Namespace) SetAttr(ctx context.Context, dir bb.DirID, name string, a namespace.Attr) (bb.Entry, error) {
	return ns.Update(ctx, dir, name, a.Apply)
}

// Update changes an entry with fn, again on its newest revision whenever another writer changed it
// meanwhile, and returns it as stored. An error of fn ends it and is returned as it is. fn must not
// change the entry's place, type or directory id.
func (ns *Namespace) Update(ctx context.Context, dir bb.DirID, name string, fn func(*bb.Entry) error) (bb.Entry, error) {
	if dir != 0 || name != "" {
		if err := checkPlace(dir, name); err != nil {
			return bb.Entry{}, err
		}
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		c, err := ns.load(ctx, dir, name)
		if err != nil {
			return bb.Entry{}, kv.Wrap("update", name, err)
		}
		if !c.Live {
			return bb.Entry{}, bb.E(bb.NotFound, "update", name, "there is no such file or directory")
		}
		e := c.Value
		if err := fn(&e); err != nil {
			return bb.Entry{}, err
		}
		revision, err := ns.put(ctx, &e)
		e.SetRevision(revision)
		if !errors.Is(err, kv.ErrRevision) {
			return e, kv.Wrap("update", name, err)
		}
	}
	return bb.Entry{}, kv.Wrap("update", name, kv.ErrRevision)
}

var _ namespace.Tree = (*Namespace)(nil)
