// Package cause translates errors of the kernel for calls to a file system into kinds of errors here, with remedies.
// It must never depend on a store.
package cause

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"forebay/internal/bb"
)

// passes reports whether an errno means a passing failure of a file system, and no fault of the request. Network file
// systems return all of these while a server is away, a client is evicted or a target is deactivated: Lustre EIO,
// ENODEV, ESHUTDOWN and ENOTCONN (a target is inactive or its import was invalidated), EAGAIN and EINTR (a request was
// cut by an eviction), and EFAULT for a buffer whose transfer it had to abort. A local disk returns EIO, and the next
// attempt fails with it again.
func passes(errno syscall.Errno) bool {
	switch errno {
	case syscall.EIO, syscall.ENODEV, syscall.ENXIO, syscall.ESHUTDOWN, syscall.ENOTCONN, syscall.ESTALE, syscall.EAGAIN, syscall.EINTR, syscall.EFAULT,
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.ETIMEDOUT,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EREMOTEIO:
		return true
	}
	return false
}

// MountForWriting is the remedy of a file system that is mounted for reading.
const MountForWriting = "mount the file system for writing"

// OfQuota adds to EDQUOT the quotas that a file of these owners and project counts against. The
// kernel does not report which of them is used up.
func OfQuota(name string, err error, uid, gid int, project uint32) error {
	whose := fmt.Sprintf("user %d, group %d, or the directory's project", uid, gid)
	if project != 0 {
		whose = fmt.Sprintf("user %d, group %d, or project %d", uid, gid, project)
	}
	return (&bb.Error{
		Kind: bb.NoSpace, Op: "put", Path: name,
		Err: fmt.Errorf("a quota is used up, of %s: %w", whose, err),
	}).WithRemedy("remove files of theirs, or raise the quota (lfs quota, quota)")
}

// otherProject is the error of a move into a directory whose project is inherited (EXDEV), since file systems with
// project quotas refuse it where the file has another one. It passes when an administrator has given both the same.
func otherProject(op, name string, err error) error {
	return (&bb.Error{Kind: bb.Unavailable, Op: op, Path: name, Err: err}).
		WithRemedy("give both directories the same project (lfs project -s -r -p ID DIR, xfs_quota), or the new one none that is inherited")
}

// Wrap gives err an operation and a name, and translates errors that the standard library has no
// kind for.
func Wrap(op, name string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if passes(errno) {
			return &bb.Error{Kind: bb.Unavailable, Op: op, Path: name, Err: err}
		}
		switch errno {
		case syscall.EROFS:
			return (&bb.Error{Kind: bb.Permission, Op: op, Path: name, Err: err}).
				WithRemedy(MountForWriting)
		case syscall.EXDEV:
			return otherProject(op, name, err)
		case syscall.ENAMETOOLONG:
			return &bb.Error{Kind: bb.Invalid, Op: op, Path: name, Err: err}
		}
	}
	return bb.Wrap(op, name, err)
}

// WithoutTemp names the file instead of its temporary one, which has another name at each attempt,
// so that a log groups the lines of a file that fails again and again.
func WithoutTemp(err error, temp, name string) error {
	switch e := err.(type) {
	case *fs.PathError:
		if path.Base(e.Path) == path.Base(temp) {
			return &fs.PathError{Op: e.Op, Path: name, Err: e.Err}
		}
	case *os.LinkError:
		if path.Base(e.Old) == path.Base(temp) {
			return &fs.PathError{Op: e.Op, Path: name, Err: e.Err}
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, WithoutTemp(one, temp, name))
		}
		return errors.Join(all...)
	}
	return err
}
