package bufferfs

import (
	"context"
	"errors"
	"path"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/attr"
	"forebay/cmd/bbmount/attrcache"
)

// directory is an open directory. The kernel calls its methods one after the other. Its offsets
// count the entries from the beginning, "." and ".." included. The names that were passed are kept,
// so that an offset leads to the same place after changes.
type directory struct {
	n     *node
	names []string       // passed, or in the page
	page  []client.Entry // the last of names
	at    int            // offset of the next entry
	more  bool           // the daemon may have names after the last one
	since int64          // changes of the mount when the page was requested
	seen  attrcache.Seen // this directory then
	last  *client.Entry  // that Readdirent returned; nil: none
}

const dots = 2 // "." and ".."

var _ = []any{
	fusefs.FileReaddirenter((*directory)(nil)), fusefs.FileSeekdirer((*directory)(nil)),
	fusefs.FileLookuper((*directory)(nil)), fusefs.FileFsyncdirer((*directory)(nil)),
	fusefs.NodeOpendirHandler((*node)(nil)),
}

// OpendirHandle implements opendir.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	d := &directory{n: n, more: true}
	if inside(ctx) {
		d.names = n.fsys.carried.listed[flags]
	}
	return d, 0, fusefs.OK
}

// Fsyncdir implements fsync of a directory. Names are durable when they are made.
func (d *directory) Fsyncdir(context.Context, uint32) syscall.Errno { return fusefs.OK }

// Seekdir goes to an offset. 0 reads the directory anew.
func (d *directory) Seekdir(_ context.Context, off uint64) syscall.Errno {
	if off > uint64(len(d.names)+dots) {
		return syscall.EINVAL
	}
	d.at, d.last = int(off), nil
	if off == 0 {
		d.names, d.page, d.more = nil, nil, true
	}
	return fusefs.OK
}

// Readdirent returns the next entry, nil at the end.
func (d *directory) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	ctx, done := d.n.fsys.request(ctx)
	defer done()
	d.last = nil
	if d.at < dots {
		d.at++
		return &fuse.DirEntry{Name: ".."[:d.at], Mode: syscall.S_IFDIR, Ino: d.n.StableAttr().Ino, Off: uint64(d.at)}, fusefs.OK
	}
	i := d.at - dots
	first := len(d.names) - len(d.page)
	if i < first || i == len(d.names) && d.more {
		if err := d.list(ctx, i); err != nil {
			return nil, d.n.fsys.errno(err)
		}
		first = i
	}
	if i == len(d.names) {
		return nil, fusefs.OK
	}
	e := &d.page[i-first]
	d.at++
	d.last = e
	return &fuse.DirEntry{Name: e.Name, Mode: attr.Type(e), Ino: d.n.ino(e), Off: uint64(d.at)}, fusefs.OK
}

// list requests the entries from the i-th on.
func (d *directory) list(ctx context.Context, i int) error {
	f, after := d.n.fsys, ""
	if i > 0 {
		after = d.names[i-1]
	}
	p, unshare, err := f.share(ctx, d.n, "")
	if err == nil {
		defer unshare()
		d.since, d.seen = f.changes.Load(), f.kept.At(p)
		d.page, d.more, err = f.b.List(ctx, p, after, 0)
	}
	if errors.Is(err, syscall.ESTALE) || client.KindOf(err) == client.ErrNotFound {
		d.page, d.more, err = nil, false, nil // the directory was removed, and is empty
	}
	if err != nil {
		return err
	}
	d.names = d.names[:i]
	for j := range d.page {
		d.names = append(d.names, d.page[j].Name)
	}
	d.more = d.more && len(d.page) > 0
	return nil
}

// ino is the inode number of an entry, or 0 for a directory without a node.
func (n *node) ino(e *client.Entry) uint64 {
	if !e.IsDir() {
		return uint64(e.File)
	}
	if c := n.childNode(e.Name); c != nil && c.IsDir() {
		return c.StableAttr().Ino
	}
	return 0
}

// Lookup returns the entry that was read last with its attributes. If the mount has changed nothing
// since, they are those of the page.
func (d *directory) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	before := d.n.childNode(name).unsaved() // checked first, since its commit counts as changes
	listed := d.last != nil && d.last.Name == name
	if listed && before == nil && d.last.State == client.StateOpen && len(d.last.Holders) > 0 && d.last.Holders[0] != d.n.fsys.c.Server().Node {
		return nil, syscall.EAGAIN // only its owner has its size, which a listing does not wait for: the kernel looks it up when it needs it
	}
	if !listed || d.n.fsys.changes.Load() != d.since {
		return d.n.Lookup(ctx, name, out)
	}
	at := attrcache.Seen{Path: path.Join(d.seen.Path, name), Mark: d.seen.Mark}
	return d.n.found(ctx, d.last, at, before, out), fusefs.OK
}
