// Package fileattr sets and reads owners, modes, times and extended attributes of open files and directories, as far as
// the process may and the file system keeps them. It must never depend on their content, nor on a store.
package fileattr

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/xattr"
)

// Mark is the attribute of a directory with the user for whom the store has made it. It is none of an entry's.
const Mark = "user.forebay.buffer"

// SetXattrs sets the extended attributes of an open file, and returns those that it has now.
func SetXattrs(f *os.File, attrs *backing.Attrs) (xattr.List, error) {
	if attrs == nil || attrs.Xattrs == "" {
		return "", nil
	}
	var kept []xattr.Attr
	for a := range attrs.Xattrs.All() {
		if a.Name == Mark {
			continue
		}
		switch err := unix.Fsetxattr(int(f.Fd()), a.Name, []byte(a.Value), 0); {
		case err == nil:
			kept = append(kept, a)
		case !slices.Contains(notKept, err):
			return "", os.NewSyscallError("fsetxattr", err)
		}
	}
	return xattr.Make(kept...), nil
}

// notKept are the errors of file systems without extended attributes, with smaller ones (ENOSPC is that of ext4), and of
// those that do not grant them.
var notKept = []error{unix.EOPNOTSUPP, unix.ENOSPC, unix.E2BIG, unix.ERANGE, unix.EINVAL, unix.EPERM, unix.EACCES, unix.ENOSYS}

// maxNames is the size of the largest list of names in bytes, as in Linux.
const maxNames = 64 << 10

// Xattrs returns those extended attributes of an open file or directory that an entry can have (package xattr), up to
// its bounds.
func Xattrs(f *os.File) (xattr.List, error) {
	fd := int(f.Fd())
	size, err := unix.Flistxattr(fd, nil)
	if err != nil || size == 0 {
		return "", unlessMissing("flistxattr", err)
	}
	names := make([]byte, maxNames) // there may be more names by now
	if size, err = unix.Flistxattr(fd, names); err != nil {
		return "", unlessMissing("flistxattr", err)
	}
	var all []xattr.Attr
	var value []byte
	for name := range strings.SplitSeq(string(names[:size]), "\x00") {
		if name == Mark || xattr.CheckName(name) != nil {
			continue
		}
		if value == nil {
			value = make([]byte, xattr.MaxTotal)
		}
		n, err := unix.Fgetxattr(fd, name, value)
		switch {
		case err == nil:
			all = append(all, xattr.Attr{Name: name, Value: string(value[:n])})
		case err == unix.ERANGE || err == unix.ENODATA: // too large for an entry, or removed since
		default:
			return "", unlessMissing("fgetxattr", err)
		}
	}
	return xattr.Fit(all...), nil
}

// unlessMissing returns the error of a call, or nil if there are no extended attributes here, or none for this process.
func unlessMissing(call string, err error) error {
	switch err {
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM, unix.EACCES:
		return nil
	}
	return os.NewSyscallError(call, err)
}

// Group reports whether files of a process that is not root's get their group.
type Group bool

// SetOwner gives an open file its owner if this process is root's, else its group.
func (g Group) SetOwner(f *os.File, attrs *backing.Attrs) error {
	if os.Geteuid() == 0 {
		return f.Chown(int(attrs.UID), int(attrs.GID))
	}
	if g {
		// The kernel refuses a group that the user is not in. The directory's own one stays.
		if err := f.Chown(-1, int(attrs.GID)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
