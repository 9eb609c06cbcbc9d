// Package errno translates errors of the client into the system's error numbers. It must never depend on the
// failed operation.
package errno

import (
	"errors"
	"syscall"

	"forebay/client"
)

var ofKind = map[client.Kind]syscall.Errno{
	client.ErrNotFound:     syscall.ENOENT,
	client.ErrExists:       syscall.EEXIST,
	client.ErrNotDirectory: syscall.ENOTDIR,
	client.ErrIsDirectory:  syscall.EISDIR,
	client.ErrNotEmpty:     syscall.ENOTEMPTY,
	client.ErrPermission:   syscall.EACCES,
	client.ErrNoSpace:      syscall.ENOSPC,
	client.ErrBusy:         syscall.EBUSY,
	client.ErrInvalid:      syscall.EINVAL,
	client.ErrUnsupported:  syscall.EOPNOTSUPP,
	client.ErrCancelled:    syscall.EINTR,
}

// Of returns the number of an error, 0 of none. An error without a number of its own is EIO, and
// reported as unknown.
func Of(err error) (e syscall.Errno, known bool) {
	if err == nil || errors.As(err, &e) {
		return e, true
	}
	if e, known = ofKind[client.KindOf(err)]; known {
		return e, true
	}
	return syscall.EIO, false
}
