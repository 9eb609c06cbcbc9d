// Package xattrs carries out the kernel's requests about extended attributes, with the errors of xattr(7). It must never
// know nodes, nor where their paths come from.
package xattrs

import (
	"context"
	"strings"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/cmd/bbmount/request"
	"forebay/internal/xattr"
)

// Requests are those of a file or directory. They may be used concurrently.
type Requests struct {
	Buffer *client.Buffer
	// Path calls do with the present path, "" of the root, and returns its error as programs get
	// it.
	Path func(ctx context.Context, do func(ctx context.Context, path string) error) syscall.Errno
}

var (
	_ fusefs.NodeGetxattrer    = (*Requests)(nil)
	_ fusefs.NodeListxattrer   = (*Requests)(nil)
	_ fusefs.NodeSetxattrer    = (*Requests)(nil)
	_ fusefs.NodeRemovexattrer = (*Requests)(nil)
)

// supported reports whether files have attributes of a name's namespace. Others need no daemon. The kernel requests the
// capabilities of a file before it writes.
func supported(name string) bool { return strings.HasPrefix(name, xattr.Prefix) }

// Getxattr implements getxattr. It copies the value to dest, and returns its size.
func (r *Requests) Getxattr(ctx context.Context, name string, dest []byte) (size uint32, errno syscall.Errno) {
	if !supported(name) {
		return 0, syscall.EOPNOTSUPP
	}
	errno = r.Path(ctx, func(ctx context.Context, path string) error {
		all, err := r.Buffer.Xattrs(ctx, path)
		if err != nil {
			return err
		}
		for _, x := range all {
			if x.Name == name {
				size, err = answer(dest, x.Value)
				return err
			}
		}
		return syscall.ENODATA
	})
	return size, errno
}

// Listxattr implements listxattr. It copies the names, each ended by a NUL, to dest, and returns
// the size of the list.
func (r *Requests) Listxattr(ctx context.Context, dest []byte) (size uint32, errno syscall.Errno) {
	errno = r.Path(ctx, func(ctx context.Context, path string) error {
		names, err := r.Buffer.XattrNames(ctx, path)
		if err != nil {
			return err
		}
		var list []byte
		for _, name := range names {
			list = append(append(list, name...), 0)
		}
		size, err = answer(dest, list)
		return err
	})
	return size, errno
}

// answer copies a value that fits. A caller that has no room requests the size alone.
func answer(dest, value []byte) (uint32, error) {
	size := uint32(len(value))
	if len(dest) < len(value) {
		return size, syscall.ERANGE
	}
	copy(dest, value)
	return size, nil
}

// Setxattr implements setxattr.
func (r *Requests) Setxattr(ctx context.Context, name string, value []byte, flags uint32) syscall.Errno {
	set := r.Buffer.SetXattr
	switch flags {
	case 0:
	case unix.XATTR_CREATE:
		set = r.Buffer.CreateXattr
	case unix.XATTR_REPLACE:
		set = r.Buffer.ReplaceXattr
	default:
		return syscall.EINVAL
	}
	return r.change(ctx, name, func(ctx context.Context, path string, repeated bool) error {
		err := set(ctx, path, name, value)
		if repeated && client.KindOf(err) == client.ErrExists {
			if now, getErr := r.Buffer.Xattr(ctx, path, name); getErr == nil && string(now) == string(value) {
				return nil
			}
		}
		return err
	})
}

// Removexattr implements removexattr.
func (r *Requests) Removexattr(ctx context.Context, name string) syscall.Errno {
	gone := false
	errno := r.change(ctx, name, func(ctx context.Context, path string, repeated bool) error {
		gone = repeated
		return r.Buffer.RemoveXattr(ctx, path, name)
	})
	if gone && errno == syscall.ENODATA {
		return 0
	}
	return errno
}

// change changes an attribute, until the outcome is known.
func (r *Requests) change(ctx context.Context, name string, do func(ctx context.Context, path string, repeated bool) error) syscall.Errno {
	if !supported(name) {
		return syscall.EOPNOTSUPP
	}
	return r.Path(ctx, func(ctx context.Context, path string) error {
		if path == "" {
			return syscall.EPERM // the root's attributes are the buffer's
		}
		err := request.Settle(ctx, func(repeated bool) error { return do(ctx, path, repeated) })
		if client.KindOf(err) != client.ErrNotFound {
			return err
		}
		if _, listErr := r.Buffer.XattrNames(ctx, path); listErr == nil {
			return syscall.ENODATA // the file is there
		}
		return err
	})
}
