package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/fileattr"
	"forebay/internal/bb"
)

// MakeDir makes a directory as Put does, and gives it its attributes. A symbolic link that leads to
// a directory stays as it is, and so does the directory.
func (s *Store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	const op = "make directory"
	if err := backing.CheckName(op, name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap(op, name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		info, err = s.makeFresh(root, name, &opts.Attrs)
	}
	switch {
	case err != nil:
		return cause.Wrap(op, name, err)
	case info.Mode()&fs.ModeSymlink != 0:
		if info, err = root.Stat(name); err == nil && info.IsDir() {
			return nil
		}
		fallthrough
	case !info.IsDir():
		return bb.E(bb.Exists, op, name, "the store has something there that is no directory").WithRemedy("rename the directory, or the entry there")
	case !fresh && opts.Keep && !s.marked(root, name):
		return nil
	}
	return cause.Wrap(op, name, fileattr.SetDir(root, name, &opts.Attrs))
}

// makeFresh makes a missing directory.
func (s *Store) makeFresh(root *os.Root, name string, attrs *backing.Attrs) (fs.FileInfo, error) {
	err := s.makeDirs(root, name, attrs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	info, err := root.Lstat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	s.forgetDurable() // a recorded directory was removed meanwhile
	if err := s.makeDirs(root, name, attrs); err != nil {
		return nil, err
	}
	return root.Lstat(name)
}

// mark marks a new directory, as far as the file system can.
func (s *Store) mark(root *os.Root, dir string) {
	if s.opts.Mark == "" {
		return
	}
	if f, err := openDir(root, dir); err == nil {
		unix.Fsetxattr(int(f.Fd()), fileattr.Mark, []byte(s.opts.Mark), 0)
		f.Close()
	}
}

// marked reports whether the store has made a directory, with the same Mark.
func (s *Store) marked(root *os.Root, dir string) bool {
	if s.opts.Mark == "" {
		return false
	}
	f, err := openDir(root, dir)
	if err != nil {
		return false
	}
	defer f.Close()
	is := make([]byte, len(s.opts.Mark)+1)
	n, err := unix.Fgetxattr(int(f.Fd()), fileattr.Mark, is)
	return err == nil && string(is[:n]) == s.opts.Mark
}

// SetMode changes a file's mode. A file that a symbolic link leads to is left alone.
func (s *Store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	const op = "change mode"
	if err := backing.CheckName(op, name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap(op, name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() == attrs.Mode.Perm() {
		return cause.Wrap(op, name, err)
	}
	f, err := fileattr.OpenOwned(root, name, attrs.UID, fs.FileMode.IsRegular)
	if f == nil || err != nil {
		return cause.Wrap(op, name, err)
	}
	return cause.Wrap(op, name, errors.Join(f.Chmod(attrs.Mode.Perm()), f.Close()))
}
