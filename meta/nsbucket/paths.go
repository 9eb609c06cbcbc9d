package nsbucket

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nsbucket/cache"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// Paths of directories follow from their reverse records, of which several must be read. Every
// rename of a directory rewrites the paths key (x.paths) in the same batch, so records read between
// two reads of that key that found one revision are of one moment. A change that depends on a path
// checks in its own batch that the revision is still the same.

const maxKnownPaths = 1 << 16

// knownPaths keeps paths of directories while no rename can change them, for a
// process that makes all renames itself.
type knownPaths struct {
	sync.Mutex
	renames   int       // of directories, under way
	version   uint64    // counts the ends of renames
	uncertain time.Time // a rename before may still be carried out until then
	paths     map[bb.DirID]string
}

func (k *knownPaths) get(dir bb.DirID) (path string, version uint64, ok bool) {
	k.Lock()
	defer k.Unlock()
	path, ok = k.paths[dir]
	return path, k.version, ok && k.renames == 0
}

// put keeps a path that was found without a rename under way since version.
func (k *knownPaths) put(dir bb.DirID, path string, version uint64) {
	k.Lock()
	defer k.Unlock()
	if k.renames > 0 || k.version != version || time.Now().Before(k.uncertain) {
		return
	}
	if k.paths == nil || len(k.paths) >= maxKnownPaths {
		k.paths = map[bb.DirID]string{}
	}
	k.paths[dir] = path
}

// renaming is called before a rename of a directory is sent. The function that it returns is called
// with its outcome.
func (k *knownPaths) renaming() func(error) {
	k.Lock()
	defer k.Unlock()
	k.renames++
	return func(err error) {
		k.Lock()
		defer k.Unlock()
		k.renames--
		k.version++
		clear(k.paths)
		if errors.Is(err, kv.ErrUncertain) {
			k.uncertain = time.Now().Add(cache.UncertainTime)
		}
	}
}

// PathOf returns the path of a directory, "" for the root. The directory had that path at one
// moment, even while its ancestors are being renamed. If it was removed, it is NotFound.
func (ns *Namespace) PathOf(ctx context.Context, dir bb.DirID) (string, error) {
	if !ns.sole {
		path, _, err := ns.pathOf(ctx, dir)
		return path, kv.Wrap("path", dir.String(), err)
	}
	known, version, ok := ns.known.get(dir)
	if ok {
		c, err := ns.loadDir(ctx, dir)
		if err == nil && c.Live {
			return known, nil
		}
	}
	path, _, err := ns.pathOf(ctx, dir)
	if err == nil {
		ns.known.put(dir, path, version)
	}
	return path, kv.Wrap("path", dir.String(), err)
}

// pathOf also returns the revision of the paths key at which the path is right. It always reads
// from the server.
func (ns *Namespace) pathOf(ctx context.Context, dir bb.DirID) (string, uint64, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		before, err := ns.paths(ctx)
		if err != nil {
			return "", 0, err
		}
		names, err := ns.ancestors(ctx, dir)
		if err != nil && !errors.Is(err, bb.NotFound) {
			return "", 0, err
		}
		after, perr := ns.paths(ctx)
		if perr != nil {
			return "", 0, perr
		}
		if before == after {
			return strings.Join(names, "/"), before, err
		}
	}
	return "", 0, kv.ErrRevision
}

// paths returns the revision of the paths key.
func (ns *Namespace) paths(ctx context.Context) (uint64, error) {
	r, err := ns.b.Get(ctx, record.PathsKey)
	return r.Seq, err
}

// ancestors returns the names from the root down to a directory.
func (ns *Namespace) ancestors(ctx context.Context, dir bb.DirID) ([]string, error) {
	var names []string
	err := ns.climb(ctx, dir, func(_ bb.DirID, d record.Directory) bool {
		names = append(names, d.Name)
		return true
	})
	slices.Reverse(names)
	return names, err
}

// within reports whether dir is top or below it.
func (ns *Namespace) within(ctx context.Context, dir, top bb.DirID) (bool, error) {
	found := false
	err := ns.climb(ctx, dir, func(d bb.DirID, _ record.Directory) bool {
		found = d == top
		return !found
	})
	return found, err
}

// climb calls fn with a directory and each of its ancestors below the root, until
// fn returns false.
func (ns *Namespace) climb(ctx context.Context, dir bb.DirID, fn func(bb.DirID, record.Directory) bool) error {
	for range maxAncestors {
		if dir == bb.RootDir {
			return nil
		}
		c, err := ns.fetchDir(ctx, dir)
		if err != nil {
			return err
		}
		if !c.Live {
			return bb.E(bb.NotFound, "path", dir.String(), "the directory has been removed")
		}
		if !fn(dir, c.Value) {
			return nil
		}
		dir = c.Value.Parent
	}
	return bb.E(bb.Internal, "path", dir.String(), "is nested too deep")
}
