package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// MakeDir makes a directory as Put does, and gives it its attributes. A symbolic link that
// leads to a directory stays as it is, with what it leads to.
func (s *Store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	const op = "make directory"
	if err := backing.CheckName(op, name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return wrap(op, name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		info, err = s.makeFresh(root, name, &opts.Attrs)
	}
	switch {
	case err != nil:
		return wrap(op, name, err)
	case info.Mode()&fs.ModeSymlink != 0:
		if info, err = root.Stat(name); err == nil && info.IsDir() {
			return nil
		}
		fallthrough
	case !info.IsDir():
		return bb.E(bb.Exists, op, name, "the store has something there that is no directory").WithRemedy("rename the directory, or what lies there")
	case !fresh && (opts.Keep || !owned(info, opts.Attrs.UID)):
		return nil
	}
	return wrap(op, name, setDirAttrs(root, name, info, &opts.Attrs))
}

// makeFresh makes a directory that is not there.
func (s *Store) makeFresh(root *os.Root, name string, attrs *backing.Attrs) (fs.FileInfo, error) {
	err := s.makeDirs(root, name, attrs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	info, err := root.Lstat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	s.forgetDurable() // somebody removed a directory that we remembered
	if err := s.makeDirs(root, name, attrs); err != nil {
		return nil, err
	}
	return root.Lstat(name)
}

// owned reports whether a directory belongs to a user whom its attributes come from. A process
// that is not root's can make none of others, and counts its own as that user's.
func owned(info fs.FileInfo, uid uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if euid := os.Geteuid(); euid != 0 {
		uid = uint32(euid)
	}
	return ok && stat.Uid == uid
}

// setDirAttrs gives a directory the mode and the time that it does not have yet.
func setDirAttrs(root *os.Root, name string, info fs.FileInfo, attrs *backing.Attrs) error {
	changed := false
	if mode := attrs.Mode.Perm(); info.Mode().Perm() != mode {
		changed = true
		// The bits that are no permissions, as that of the group's inheritance, stay.
		if err := root.Chmod(name, info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)|mode); err != nil {
			return err
		}
	}
	if when := attrs.MTime; !when.IsZero() && !info.ModTime().Equal(when) {
		changed = true
		if err := root.Chtimes(name, when, when); err != nil {
			return err
		}
	}
	if !changed || attrs.Mode.Perm()&0o400 == 0 && os.Geteuid() != 0 { // which could not be opened
		return nil
	}
	return syncDir(root, name)
}

// SetMode changes a file's mode. A file that a symbolic link leads to is left alone.
func (s *Store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	const op = "change mode"
	if err := backing.CheckName(op, name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return wrap(op, name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || !owned(info, attrs.UID) || info.Mode().Perm() == attrs.Mode.Perm() {
		return wrap(op, name, err)
	}
	return wrap(op, name, root.Chmod(name, attrs.Mode.Perm()))
}
