// Package fileattr sets owners and extended attributes of open files, as far as the process may and the file system keeps
// them. It must never depend on names of files.
package fileattr

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/xattr"
)

// SetXattrs sets the extended attributes of an open file, and returns those that it has now.
func SetXattrs(f *os.File, attrs *backing.Attrs) (xattr.List, error) {
	if attrs == nil || attrs.Xattrs == "" {
		return "", nil
	}
	var kept []xattr.Attr
	for a := range attrs.Xattrs.All() {
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
