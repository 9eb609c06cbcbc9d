package fileattr

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
)

// owned reports whether a directory belongs to the user of its attributes. A process that is not
// root's can make none of others, and counts its own as that user's.
func owned(info fs.FileInfo, uid uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if euid := os.Geteuid(); euid != 0 {
		uid = uint32(euid)
	}
	return ok && stat.Uid == uid
}

// SetDir gives a directory of the user the mode, the time and the extended attributes that it does not have yet. Other
// extended attributes stay.
func SetDir(root *os.Root, name string, attrs *backing.Attrs) error {
	f, err := OpenOwned(root, name, attrs.UID, fs.FileMode.IsDir)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	changed, err := setDirXattrs(f, info.Mode(), attrs)
	if err != nil {
		return err
	}
	if mode := attrs.Mode.Perm(); changed || info.Mode().Perm() != mode {
		changed = true
		// The bits that are no permissions, as that of the group's inheritance, stay.
		if err := f.Chmod(info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | mode); err != nil {
			return err
		}
	}
	if when := attrs.MTime; !when.IsZero() && !info.ModTime().Equal(when) {
		changed = true
		if err := SetTime(root, name, f, when); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems have no fsync of directories
	}
	return err
}

// ownerWrites is the right without which a user cannot set extended attributes of a directory.
const ownerWrites = 0o200

// setDirXattrs reports whether it has changed the directory, also its mode.
func setDirXattrs(f *os.File, mode fs.FileMode, attrs *backing.Attrs) (changed bool, err error) {
	if attrs.Xattrs == "" {
		return false, nil
	}
	there, err := Xattrs(f)
	if err != nil {
		return false, err
	}
	missing := backing.Attrs{Xattrs: attrs.Xattrs.Without(there)}
	if missing.Xattrs == "" {
		return false, nil
	}
	if mode&ownerWrites == 0 {
		if err := f.Chmod(mode | ownerWrites); err != nil {
			return false, err
		}
		changed = true
	}
	kept, err := SetXattrs(f, &missing)
	return changed || kept != "", err
}

// OpenOwned opens a file or directory of a user, to change its attributes. Between a check of a
// name and a change by it, another process could have put a link there that leads to a file of
// others. Nil: it is something else by now. A file or directory of this process's user that it may
// not read is made readable.
func OpenOwned(root *os.Root, name string, uid uint32, is func(fs.FileMode) bool) (*os.File, error) {
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

// SetTime sets the time of an open file, by name where the kernel cannot do it otherwise.
func SetTime(root *os.Root, name string, f *os.File, when time.Time) error {
	spec := unix.NsecToTimespec(when.UnixNano())
	err := unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{spec, spec}, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOSYS) { // before Linux 5.8
		return root.Chtimes(name, when, when)
	}
	return err
}
