package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
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
	return cause.Wrap(op, name, setDirAttrs(root, name, &opts.Attrs))
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

// markName is the attribute of a directory with the user for whom the store has made it.
const markName = "user.forebay.buffer"

// mark marks a new directory, as far as the file system can.
func (s *Store) mark(root *os.Root, dir string) {
	if s.opts.Mark == "" {
		return
	}
	if f, err := openDir(root, dir); err == nil {
		unix.Fsetxattr(int(f.Fd()), markName, []byte(s.opts.Mark), 0)
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
	n, err := unix.Fgetxattr(int(f.Fd()), markName, is)
	return err == nil && string(is[:n]) == s.opts.Mark
}

// owned reports whether a directory belongs to the user of its attributes. A process that is not
// root's can make none of others, and counts its own as that user's.
func owned(info fs.FileInfo, uid uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if euid := os.Geteuid(); euid != 0 {
		uid = uint32(euid)
	}
	return ok && stat.Uid == uid
}

// setDirAttrs gives a directory the mode and the time that it does not have yet.
func setDirAttrs(root *os.Root, name string, attrs *backing.Attrs) error {
	f, err := openOwned(root, name, attrs.UID, fs.FileMode.IsDir)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	changed := false
	if mode := attrs.Mode.Perm(); info.Mode().Perm() != mode {
		changed = true
		// The bits that are no permissions, as that of the group's inheritance, stay.
		if err := f.Chmod(info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | mode); err != nil {
			return err
		}
	}
	if when := attrs.MTime; !when.IsZero() && !info.ModTime().Equal(when) {
		changed = true
		if err := setTime(root, name, f, when); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // see syncDir
	}
	return err
}

// openOwned opens a file or directory of a user, to change its attributes. Between a check of a
// name and a change by it, another process could have put a link there that leads to a file of
// others. Nil: it is something else by now. A file or directory of this process's user that it may
// not read is made readable.
func openOwned(root *os.Root, name string, uid uint32, is func(fs.FileMode) bool) (*os.File, error) {
	open := func() (*os.File, error) { return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }
	f, err := open()
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 { // no rights but its own could be misused
		if err = root.Chmod(name, ownerReads); err == nil {
			f, err = open()
		}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !is(info.Mode()) || !owned(info, uid) {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ownerReads is the mode of an unreadable file, until it gets its own.
const ownerReads = 0o700

// setTime sets the time of an open file, by name where the kernel cannot do it otherwise.
func setTime(root *os.Root, name string, f *os.File, when time.Time) error {
	spec := unix.NsecToTimespec(when.UnixNano())
	err := unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{spec, spec}, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOSYS) { // before Linux 5.8
		return root.Chtimes(name, when, when)
	}
	return err
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
	f, err := openOwned(root, name, attrs.UID, fs.FileMode.IsRegular)
	if f == nil || err != nil {
		return cause.Wrap(op, name, err)
	}
	return cause.Wrap(op, name, errors.Join(f.Chmod(attrs.Mode.Perm()), f.Close()))
}
