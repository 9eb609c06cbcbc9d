// Package link makes and reads symbolic links below a root, and follows none. It must never depend on a store, nor the
// purpose of a link.
package link

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// A symbolic link is an object whose content is its target. It is put as a file is: made under a
// temporary name, given its owner and time, and renamed. It has no descriptor to sync. File systems
// log it with its name, in a step that the sync of the directory makes durable.

// Open opens a file for reading. Of a symbolic link it is a file in memory that holds the target.
func Open(root *os.Root, name string) (f *os.File, link bool, err error) {
	f, err = openFile(root, name)
	if errors.Is(err, unix.ELOOP) {
		f, err = openLink(root, name)
		return f, true, err
	}
	return f, false, err
}

// openFile opens a name for reading, and follows no link there but fails with ELOOP.
func openFile(root *os.Root, name string) (*os.File, error) {
	dir, err := openPath(root, path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), path.Base(name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openPath opens a directory that this process needs no right to list.
func openPath(root *os.Root, dir string) (*os.File, error) {
	return root.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}

func openLink(root *os.Root, name string) (*os.File, error) {
	target, err := root.Readlink(name)
	if err != nil {
		return nil, err
	}
	f, err := inMemory(name)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(target), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func inMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate("forebay-link", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Is reports whether a name is that of a symbolic link.
func Is(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode().Type() == fs.ModeSymlink
}

// OrFile reports whether a mode is that of a symbolic link or a file.
func OrFile(mode fs.FileMode) bool { return mode.IsRegular() || mode.Type() == fs.ModeSymlink }

// Begin returns a file in memory for the target of a link, which has size bytes.
func Begin(name string, size int64) (*os.File, error) {
	if size < 1 || size > bb.MaxTarget {
		return nil, bb.E(bb.Invalid, "put", name, fmt.Sprintf("the target of a symbolic link has 1 to %d bytes, this one %d", bb.MaxTarget, size))
	}
	return inMemory(name)
}

// New is a link that is to be made.
type New struct {
	Target *os.File // that Begin returned, and that holds size bytes by now
	Size   int64
	Attrs  *backing.Attrs
	Group  bool         // a process that is not root's gives it its group, where its user is in it
	Remake func() error // makes its directory again

	made func() // of tests: called between the making of the link and the setting of its attributes
}

// Make makes a link under a temporary name, with its attributes. A link has no mode of its own.
func (n *New) Make(root *os.Root, temp string) (fs.FileInfo, error) {
	text := make([]byte, n.Size)
	if _, err := io.ReadFull(io.NewSectionReader(n.Target, 0, n.Size), text); err != nil {
		return nil, err
	}
	target := string(text)
	if strings.Contains(target, "\x00") {
		return nil, bb.E(bb.Invalid, "put", temp, "the target of a symbolic link has no NUL")
	}
	err := root.Symlink(target, temp)
	if errors.Is(err, fs.ErrNotExist) { // another program has removed the directory
		if err = n.Remake(); err == nil {
			err = root.Symlink(target, temp)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		// No other process has this name. The kernel or the server has made the link, lost the answer and tried again.
		err = &bb.Error{Kind: bb.Unavailable, Op: "put", Err: unix.EEXIST}
	}
	if err != nil {
		return nil, err
	}
	if n.made != nil {
		n.made()
	}
	return n.setAttrs(root, temp)
}

// setAttrs sets the owner and the time of the link that was made, by a descriptor of it. The owner of the directory may
// have put a file of others under its name meanwhile.
func (n *New) setAttrs(root *os.Root, temp string) (fs.FileInfo, error) {
	dir, err := openPath(root, path.Dir(temp))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), path.Base(temp), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: temp, Err: err}
	}
	f := os.NewFile(uintptr(fd), temp)
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSymlink {
		err = bb.E(bb.Unavailable, "put", temp, "another program has replaced the new link")
	}
	if err == nil {
		err = n.chown(fd, temp)
	}
	if err == nil && !n.Attrs.MTime.IsZero() {
		err = setTime(dir, fd, temp, n.Attrs.MTime)
	}
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

func (n *New) chown(fd int, temp string) error {
	uid, gid := int(n.Attrs.UID), int(n.Attrs.GID)
	switch {
	case os.Geteuid() == 0:
	case n.Group:
		uid = -1
	default:
		return nil
	}
	err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH)
	if err == nil || uid < 0 && errors.Is(err, fs.ErrPermission) {
		return nil // the kernel refuses a group that the user is not in. The directory's own one stays
	}
	return &fs.PathError{Op: "fchownat", Path: temp, Err: err}
}

// setTime sets the time of an open link, by name where the kernel cannot do it otherwise.
func setTime(dir *os.File, fd int, temp string, when time.Time) error {
	spec := unix.NsecToTimespec(when.UnixNano())
	times := []unix.Timespec{spec, spec}
	err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOSYS) { // before Linux 5.8
		err = unix.UtimesNanoAt(int(dir.Fd()), path.Base(temp), times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return &fs.PathError{Op: "utimensat", Path: temp, Err: err}
	}
	return nil
}
