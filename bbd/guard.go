package bbd

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// A daemon that runs as root could read and write everything. What it does on behalf
// of a user is checked here against what that user may do. The checks precede the
// access, so they do not hold against somebody who swaps directories meanwhile.

// readGuard is a store in the file system whose objects are read with the rights of a user.
type readGuard struct {
	backing.Store
	c    cred
	root string
}

// guardReads wraps the store behind a URL for a user who is not the system's.
func guardReads(store backing.Store, c cred, url string) backing.Store {
	where, err := bb.ParseBacking(url)
	if err != nil || where.Scheme != "file" || c.system {
		return store
	}
	return &readGuard{store, c, where.Path}
}

func (g *readGuard) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := mayRead(g.c, path.Join(g.root, name)); err != nil {
		return nil, err
	}
	return g.Store.Get(ctx, name, off, n)
}

func (g *readGuard) Stat(ctx context.Context, name string) (backing.Object, error) {
	if err := mayReach(g.c, path.Join(g.root, name)); err != nil {
		return backing.Object{}, err
	}
	return g.Store.Stat(ctx, name)
}

// List fails where the user may not list: a tree with a part missing is not that tree.
func (g *readGuard) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	listed := "" // the directory that was checked last
	return g.Store.List(ctx, prefix, func(o backing.Object) error {
		dir := path.Dir(path.Join(g.root, o.Name))
		if dir != listed {
			if err := mayRead(g.c, dir); err != nil {
				return err
			}
			listed = dir
		}
		return fn(o)
	})
}

// Others fails where the user may not list, as List does.
func (g *readGuard) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	return g.Store.Others(ctx, dir, func(o backing.Other) error {
		p := path.Join(g.root, o.Name)
		if !o.Mode.IsDir() {
			p = path.Dir(p)
		}
		if err := mayRead(g.c, p); err != nil {
			return err
		}
		return fn(o)
	})
}

// mayRead reports whether a user may read a file, or list a directory.
func mayRead(c cred, p string) error {
	if err := mayReach(c, p); err != nil {
		return err
	}
	return mayUse(c, p, wantRead)
}

// mayReach reports whether a user may go through the directories that lead to a path,
// as it is written and as symbolic links have it. What does not exist is in nobody's way.
func mayReach(c cred, p string) error {
	if c.system {
		return nil
	}
	paths := []string{path.Clean(p)}
	if real, err := filepath.EvalSymlinks(p); err == nil && real != paths[0] {
		paths = append(paths, real)
	}
	for _, p := range paths {
		for p != "/" && p != "." {
			p = path.Dir(p)
			if err := mayUse(c, p, wantExecute); err != nil && bb.KindOf(err) != bb.NotFound {
				return err
			}
		}
	}
	return nil
}

// mayUse reports whether a user has rights to what is at a path.
func mayUse(c cred, p string, w want) error {
	info, err := os.Stat(p)
	if err != nil {
		return bb.Wrap("use", p, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !c.permits(stat.Uid, stat.Gid, info.Mode(), w) {
		return denied("use", p, "use this path")
	}
	return nil
}
