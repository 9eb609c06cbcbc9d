package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/internal/bb"
)

// Rename moves a file or a tree and syncs both directories. A tree moved onto a
// directory that is not empty is merged entry by entry.
func (s *Store) Rename(ctx context.Context, old, newName string) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("rename", old, err)
	}
	defer root.Close()
	if _, err := root.Lstat(old); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			// An earlier try may have moved it, and failed to make that durable: package retry
			// treats a file under the new name as success.
			if syncErr := s.syncMove(root, old, newName); syncErr != nil {
				err = syncErr
			}
		}
		return cause.Wrap("rename", old, err)
	}
	if old == newName {
		return nil
	}
	if err := s.makeDirs(root, path.Dir(newName), nil); err != nil {
		return cause.Wrap("rename", newName, err)
	}
	defer s.forgetDurable()
	if err := s.merge(ctx, root, old, newName); err != nil {
		return cause.Wrap("rename", old, err)
	}
	return cause.Wrap("rename", old, s.syncMove(root, old, newName))
}

// syncMove makes a move durable. The new entry comes first, and the old one only if that is done. A
// crash in between leaves both rather than none.
func (s *Store) syncMove(root *os.Root, old, newName string) error {
	if err := s.syncDirIfThere(root, path.Dir(newName)); err != nil {
		return err
	}
	return s.syncDirIfThere(root, path.Dir(old))
}

func (s *Store) merge(ctx context.Context, root *os.Root, old, newName string) error {
	err := root.Rename(old, newName)
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), old)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.merge(ctx, root, path.Join(old, e.Name()), path.Join(newName, e.Name())); err != nil {
			return err
		}
	}
	if err := s.syncDir(root, newName); err != nil {
		return err
	}
	return root.Remove(old)
}

// Remove removes a file and syncs its directory.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("remove", name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		// An earlier try may have removed it, and failed to make that durable.
		return cause.Wrap("remove", name, s.syncDirIfThere(root, path.Dir(name)))
	}
	if err == nil && info.IsDir() {
		return bb.E(bb.IsDirectory, "remove", name, "is a directory, not an object")
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cause.Wrap("remove", name, err)
	}
	return cause.Wrap("remove", name, s.syncDirIfThere(root, path.Dir(name)))
}

// RemoveTree removes a file or directory and all below it. The root itself stays.
func (s *Store) RemoveTree(ctx context.Context, name string) error {
	if name != "" {
		if err := backing.CheckName("remove tree", name); err != nil {
			return err
		}
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("remove tree", name, err)
	}
	defer root.Close()
	defer s.forgetDurable()
	dir := path.Dir(name)
	if name == "" {
		entries, err := fs.ReadDir(root.FS(), ".")
		for _, e := range entries {
			err = errors.Join(err, ctx.Err(), root.RemoveAll(e.Name()))
		}
		return cause.Wrap("remove tree", s.dir, errors.Join(err, s.syncDir(root, ".")))
	}
	if err := root.RemoveAll(name); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return cause.Wrap("remove tree", name, err)
	}
	return cause.Wrap("remove tree", name, s.syncDirIfThere(root, dir))
}

// RemoveDir removes an empty directory and syncs the one that held it.
func (s *Store) RemoveDir(ctx context.Context, name string) error {
	if err := backing.CheckName("remove directory", name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("remove directory", name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		return nil
	}
	if err == nil {
		defer s.forgetDurable()
		err = root.Remove(name)
	}
	switch {
	case errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return cause.Wrap("remove directory", name, err)
	}
	return cause.Wrap("remove directory", name, s.syncDirIfThere(root, path.Dir(name)))
}

func (s *Store) syncDirIfThere(root *os.Root, dir string) error {
	err := s.syncDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
