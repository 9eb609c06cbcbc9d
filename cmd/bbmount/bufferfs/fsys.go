// Package bufferfs is a buffer as a file system of the kernel (FUSE): names, open files, directories, and files
// whose name is gone. It must never depend on the way it is mounted.
package bufferfs

import (
	"context"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/attrcache"
	"forebay/cmd/bbmount/errno"
	"forebay/cmd/bbmount/kernel"
	"forebay/cmd/bbmount/names"
	"forebay/cmd/bbmount/passthrough"
	"forebay/cmd/bbmount/pathlock"
	"forebay/cmd/bbmount/peers"
	"forebay/cmd/bbmount/request"
	"forebay/internal/bb"
)

// FS is one mounted buffer. The kernel's requests come to its nodes, concurrently.
//
// The daemon addresses files by path. So the kernel's names are kept, and a directory's rename excludes users of paths below it (names).
//
// Lock order: node.use → names → mu.
type FS struct {
	c    *client.Client
	b    *client.Buffer
	log  *slog.Logger
	ctx  context.Context // of all open files; it ends with the mount
	self fuse.Owner      // this process's user for the daemon

	changes atomic.Int64  // of files, counted, since entries that were listed before may be old
	names   pathlock.Lock // used by requests, moved by renames of a directory
	kept    *attrcache.Cache
	sharing kernel.Sharing
	retries kernel.Retries
	peers   *peers.Patience
	settled names.Changes     // of names
	passes  *passthrough.Ends // nil: every program reads by this process
	root    *node
	tree    *kernel.Tree

	mu struct {
		sync.Mutex
		files map[bb.FileID]*node // files with nodes
		open  map[*node]struct{}  // files that have a content
		gone  map[*node]struct{}  // nodes without a name
	}
	carried carried
}

// New returns a buffer as a file system until ctx ends. Its programs may read by passthrough, unless passes is nil.
func New(ctx context.Context, c *client.Client, buffer string, passes *passthrough.Ends, patience *peers.Patience, sharing kernel.Sharing, log *slog.Logger) *FS {
	info := c.Server()
	f := &FS{
		c: c, b: c.Buffer(buffer), log: log, ctx: ctx,
		self: fuse.Owner{Uid: info.UID, Gid: info.GID},
		kept: attrcache.New(), passes: passes, peers: patience, sharing: sharing,
		settled: names.Changes{Client: c, Buffer: c.Buffer(buffer), Settle: patience.Settle},
	}
	f.mu.files, f.mu.open, f.mu.gone = map[bb.FileID]*node{}, map[*node]struct{}{}, map[*node]struct{}{}
	f.root = f.newNode(0)
	f.tree = kernel.NewTree(f.root.EmbeddedInode(), f.statSoon)
	return f
}

// Root returns the directory that is mounted.
func (f *FS) Root() fusefs.InodeEmbedder { return f.root }

// share returns the path of a name in a directory, or of a node itself (""), which directories above it keep until unshare
// is called.
func (f *FS) share(ctx context.Context, n *node, name string) (p string, unshare func(), err error) {
	unshare, err = f.names.Use(ctx, func() (_ []string, err error) {
		p, err = f.childPath(n, name)
		return []string{p}, err
	})
	return p, unshare, err
}

// apart is peers.Until of a request for an entry, which shares its path. A longer wait of the daemon is without the path.
func (f *FS) apart(ctx context.Context, n *node, name string, do func(ctx context.Context) error) error {
	return f.peers.Until(ctx, func() error {
		return peers.Apart(ctx, do, func(ctx context.Context) error {
			p, unshare, err := f.share(ctx, n, name)
			if err != nil {
				return err
			}
			unshare()
			_, err = f.b.Stat(ctx, p)
			return err
		})
	})
}

// pathOf returns a node's path in the buffer. The caller shares the names.
func (f *FS) pathOf(n *node) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return n.path()
}

// childPath is pathOf of a name in a directory.
func (f *FS) childPath(dir *node, name string) (string, error) {
	if len(name) > bb.MaxName {
		return "", syscall.ENAMETOOLONG
	}
	p, err := f.pathOf(dir)
	return path.Join(p, name), err
}

// link notes where a node lies.
func (f *FS) link(n, dir *node, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n.putIn(dir, name)
}

// unlink records that a node has no name any more.
func (f *FS) unlink(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n.takeOut()
	n.unlinked = true
	f.mu.gone[n] = struct{}{}
}

// openBelow returns the open files below a directory.
func (f *FS) openBelow(dir *node) (below []*node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.mu.open {
		for up := n.parent; up != nil; up = up.parent {
			if up == dir {
				below = append(below, n)
				break
			}
		}
	}
	return below
}

// Close commits and closes files that are still open when the mount has ended.
func (f *FS) Close() {
	f.mu.Lock()
	left := make([]*node, 0, len(f.mu.open))
	for n := range f.mu.open {
		left = append(left, n)
	}
	f.mu.Unlock()
	for _, n := range left {
		if err := n.finish(f.ctx); err != nil {
			f.log.Error("closing a file at the end of the mount", "err", err)
		}
	}
}

// request returns the context of one request of the kernel. Call the returned function when it is answered.
func (f *FS) request(ctx context.Context) (context.Context, func()) {
	return request.Context(f.ctx, ctx)
}

// errno is the errno of an error for programs. An error without an errno of its own is EIO, and
// logged.
func (f *FS) errno(err error) syscall.Errno {
	e, known := errno.Of(err)
	if !known {
		f.log.Error("a request of a program failed", "err", err)
	}
	return e
}
