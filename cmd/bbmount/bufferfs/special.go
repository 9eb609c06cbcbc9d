package bufferfs

import (
	"context"
	"io/fs"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/request"
)

// Symlink implements symlink.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	caller := request.Caller(ctx)
	ctx, done := n.fsys.request(ctx)
	defer done()
	inode, err := n.special(ctx, name, caller, out, func(p string) error { return n.fsys.b.Symlink(ctx, target, p) },
		func(e *client.Entry) bool { return e.Type == client.TypeSymlink && e.Target == target })
	return inode, n.fsys.errno(err)
}

// Readlink implements readlink.
func (n *node) Readlink(ctx context.Context) ([]byte, syscall.Errno) {
	ctx, done := n.fsys.request(ctx)
	defer done()
	e, err := n.stat(ctx)
	return []byte(e.Target), n.fsys.errno(err)
}

// Mknod implements mkfifo, bind of a socket, and mknod of a file. Device nodes are refused. A buffer
// has none.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	caller, perm := request.Caller(ctx), fs.FileMode(mode).Perm()
	ctx, done := n.fsys.request(ctx)
	defer done()
	typ := client.TypeFIFO
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG, 0:
		inode, err := n.empty(ctx, name, perm, caller, out)
		return inode, n.fsys.errno(err)
	case syscall.S_IFIFO:
	case syscall.S_IFSOCK:
		typ = client.TypeSocket
	default:
		return nil, syscall.EPERM
	}
	inode, err := n.special(ctx, name, caller, out, func(p string) error { return n.fsys.b.Mknod(ctx, p, typ, perm) },
		func(e *client.Entry) bool { return e.Type == typ })
	return inode, n.fsys.errno(err)
}

// empty makes a file that is not open.
func (n *node) empty(ctx context.Context, name string, mode fs.FileMode, caller fuse.Owner, out *fuse.EntryOut) (*fusefs.Inode, error) {
	inode, h, err := n.create(ctx, name, syscall.O_WRONLY, mode, caller, out)
	if err != nil {
		return nil, err
	}
	if errno := h.Flush(ctx); errno != 0 {
		err = errno
	}
	h.Release(ctx)
	return inode, err
}

// special makes an entry that is no file with bytes, until the outcome is known. Same reports whether an entry
// equals the wanted one.
func (n *node) special(ctx context.Context, name string, caller fuse.Owner, out *fuse.EntryOut, do func(p string) error, same func(*client.Entry) bool) (*fusefs.Inode, error) {
	f := n.fsys
	p, unshare, err := f.share(ctx, n, name)
	if err != nil {
		return nil, err
	}
	defer unshare()
	err = f.settled.Make(ctx, p, func() error { return do(p) }, same)
	if err == nil {
		err = f.give(ctx, p, caller, nil)
	}
	if err != nil {
		return nil, err
	}
	at := f.kept.At(p)
	e, err := f.b.Stat(ctx, p)
	if err != nil {
		return nil, err
	}
	return n.found(ctx, &e, at, nil, out), nil
}
