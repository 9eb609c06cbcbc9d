package bufferfs

import (
	"context"
	"io/fs"
	"path"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/cmd/bbmount/attr"
	"forebay/cmd/bbmount/attrcache"
	"forebay/cmd/bbmount/content"
	"forebay/cmd/bbmount/names"
	"forebay/cmd/bbmount/passthrough"
	"forebay/cmd/bbmount/request"
	"forebay/cmd/bbmount/room"
	"forebay/cmd/bbmount/xattrs"
	"forebay/internal/bb"
)

// node is a file or directory that the kernel has looked up. See file.go for the part of files
// alone.
type node struct {
	fusefs.Inode
	xattrs.Requests
	fsys *FS
	id   bb.FileID // of a file

	// Guarded by fsys.mu.
	parent   *node
	name     string
	unlinked bool
	children map[string]*node // that the kernel has looked up

	file
}

func (f *FS) newNode(id bb.FileID) *node {
	n := &node{fsys: f, id: id}
	n.Requests = xattrs.Requests{Buffer: f.b, Path: n.named}
	n.use = semaphore.NewWeighted(exclusively)
	return n
}

var _ = []any{
	fusefs.NodeLookuper((*node)(nil)), fusefs.NodeGetattrer((*node)(nil)), fusefs.NodeSetattrer((*node)(nil)),
	fusefs.NodeMkdirer((*node)(nil)), fusefs.NodeMknoder((*node)(nil)), fusefs.NodeSymlinker((*node)(nil)),
	fusefs.NodeReadlinker((*node)(nil)), fusefs.NodeLinker((*node)(nil)), fusefs.NodeUnlinker((*node)(nil)),
	fusefs.NodeRmdirer((*node)(nil)), fusefs.NodeRenamer((*node)(nil)), fusefs.NodeStatfser((*node)(nil)),
	fusefs.NodeCreater((*node)(nil)), fusefs.NodeOpener((*node)(nil)), fusefs.NodeOnForgetter((*node)(nil)),
}

// path is the node's path. fsys.mu is locked.
func (n *node) path() (string, error) {
	p := ""
	for n.parent != nil {
		if n.unlinked {
			return "", syscall.ESTALE
		}
		p, n = path.Join(n.name, p), n.parent
	}
	return p, nil
}

// OnForget records that the kernel has dropped the node.
func (n *node) OnForget() {
	f := n.fsys
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.files[n.id] == n {
		delete(f.mu.files, n.id)
	}
	delete(f.mu.gone, n)
	n.takeOut()
}

// takeOut takes a node out of its directory. fsys.mu is locked.
func (n *node) takeOut() {
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
}

// putIn notes where a node lies. fsys.mu is locked.
func (n *node) putIn(dir *node, name string) {
	n.takeOut()
	n.parent, n.name, n.unlinked = dir, name, false
	if dir.children == nil {
		dir.children = map[string]*node{}
	}
	dir.children[name] = n
}

// child returns the inode of an entry in the directory n. A file is one inode wherever it is
// found, a directory as long as its name leads to it.
func (n *node) child(ctx context.Context, e *client.Entry) *fusefs.Inode {
	f := n.fsys
	f.mu.Lock()
	defer f.mu.Unlock()
	stable := fusefs.StableAttr{Mode: syscall.S_IFDIR}
	c := n.children[e.Name]
	if !e.IsDir() {
		stable = fusefs.StableAttr{Mode: attr.Type(e), Ino: uint64(e.File)}
		c = f.mu.files[e.File]
	} else if c != nil && c.id != 0 {
		c = nil // a file had the name
	}
	if c == nil {
		c = f.newNode(e.File)
	}
	if !e.IsDir() {
		f.mu.files[e.File] = c
	}
	c.putIn(n, e.Name)
	return n.NewInode(ctx, c, stable)
}

// childNode returns the node of a name that the kernel has looked up, or nil.
func (n *node) childNode(name string) *node {
	n.fsys.mu.Lock()
	defer n.fsys.mu.Unlock()
	return n.children[name]
}

// Lookup implements lookup.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	ctx, done := n.fsys.request(ctx)
	defer done()
	inode, err := n.lookup(ctx, name, out)
	return inode, n.fsys.errno(err)
}

// lookup looks a name up. While another node's daemon is waited for, here or at the daemon, names may change.
func (n *node) lookup(ctx context.Context, name string, out *fuse.EntryOut) (inode *fusefs.Inode, err error) {
	err = n.fsys.apart(ctx, n, name, func(ctx context.Context) (err error) {
		inode, err = n.lookupNow(ctx, name, out)
		return err
	})
	return inode, err
}

func (n *node) lookupNow(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, error) {
	f := n.fsys
	p, unshare, err := f.share(ctx, n, name)
	if err != nil {
		return nil, err
	}
	defer unshare()
	before, at := n.childNode(name).unsaved(), f.kept.At(p)
	e, _, ok := f.kept.Get(p)
	if !ok || !e.IsDir() {
		if e, err = f.b.Stat(ctx, p); err != nil {
			return nil, err
		}
		f.kept.Agree(&e, p)
	}
	return n.found(ctx, &e, at, before, out), nil
}

// found answers with an entry of the directory n. Before is the unsaved state of its file before
// the daemon's answer.
func (n *node) found(ctx context.Context, e *client.Entry, at attrcache.Seen, before *content.Unsaved, out *fuse.EntryOut) *fusefs.Inode {
	inode := n.child(ctx, e)
	c := inode.Operations().(*node)
	c.fill(e, before, &out.Attr)
	c.times(e, at, out)
	return inode
}

// fill makes the attributes of an entry. Writes of this mount to a file count before they are
// committed. A commit may have come since the request to the daemon, so before counts too.
func (n *node) fill(e *client.Entry, before *content.Unsaved, out *fuse.Attr) {
	size, mtime := e.Size, e.ModTime
	if u := n.unsaved(); u != nil {
		size, mtime = u.Size, u.ModTime
	} else if before != nil {
		size, mtime = before.Size, before.ModTime
	}
	n.view.Tell(size)
	out.Blksize = room.BlockSize
	attr.Fill(e, size, mtime, out)
}

// Getattr implements stat.
func (n *node) Getattr(ctx context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	ctx, done := n.fsys.request(ctx)
	defer done()
	before := n.unsaved()
	e, keep, err := n.known(ctx)
	if err != nil {
		return n.fsys.errno(err)
	}
	out.SetTimeout(n.fsys.sharing.Keep(keep))
	n.fill(&e, before, &out.Attr)
	if n.isUnlinked() {
		out.Nlink = 0
	}
	return fusefs.OK
}

// stat returns the entry of a node. If it has no name any more, that is the last known one. While another node's daemon is
// waited for, here or at the daemon, names may change.
func (n *node) stat(ctx context.Context) (e client.Entry, err error) {
	err = n.fsys.apart(ctx, n, "", func(ctx context.Context) (err error) {
		e, err = n.statNow(ctx)
		return err
	})
	return e, err
}

func (n *node) statNow(ctx context.Context) (client.Entry, error) {
	f := n.fsys
	if n.isUnlinked() {
		return n.lastEntry(), nil
	}
	p, unshare, err := f.share(ctx, n, "")
	if err != nil {
		return client.Entry{}, err
	}
	defer unshare()
	e, err := f.b.Stat(ctx, p)
	if client.KindOf(err) == client.ErrNotFound || err == nil && (e.File != n.id || e.IsDir() != n.IsDir()) {
		return e, syscall.ESTALE // the name is nobody's or another file's by now, so the kernel looks it up again
	}
	if err == nil {
		f.kept.Agree(&e, p)
	}
	return e, err
}

// named calls do with the path of a node that has a name. Directories keep theirs meanwhile.
func (n *node) named(ctx context.Context, do func(ctx context.Context, p string) error) syscall.Errno {
	f := n.fsys
	if n.isUnlinked() {
		return syscall.EOPNOTSUPP
	}
	ctx, done := f.request(ctx)
	defer done()
	p, unshare, err := f.share(ctx, n, "")
	if err != nil {
		return f.errno(err)
	}
	defer unshare()
	return f.errno(do(ctx, p))
}

func (n *node) isUnlinked() bool {
	n.fsys.mu.Lock()
	defer n.fsys.mu.Unlock()
	return n.unlinked
}

// specialBits are the bits of a mode that entries do not have: setuid, setgid, sticky.
const specialBits = 0o7000

// Setattr implements truncate, chmod, chown and utimens.
func (n *node) Setattr(ctx context.Context, _ fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f := n.fsys
	ctx, done := f.request(ctx)
	defer done()
	if mode, ok := in.GetMode(); ok && mode&specialBits != 0 {
		return syscall.EPERM
	}
	if size, ok := in.GetSize(); ok {
		if err := passthrough.Settled(ctx, func() error { return n.truncate(ctx, int64(size)) }); err != nil {
			return f.errno(err)
		}
	}
	before := n.unsaved()
	a := attr.Of(in)
	if a.ModTime != nil {
		before = nil // it is committed, and then changed
	}
	e, err := n.setAttr(ctx, a)
	if err != nil {
		return f.errno(err)
	}
	n.fill(&e, before, &out.Attr)
	if n.isUnlinked() {
		out.Nlink = 0
	}
	return fusefs.OK
}

// setAttr changes attributes and returns the entry.
func (n *node) setAttr(ctx context.Context, a client.Attr) (client.Entry, error) {
	if n.isUnlinked() {
		return n.setLast(a), nil
	}
	if a == (client.Attr{}) {
		return n.stat(ctx)
	}
	if a.ModTime != nil && !n.IsDir() {
		// A commit sets the time of modification. Written bytes are committed before.
		if err := n.release(ctx); err != nil {
			return client.Entry{}, err
		}
	}
	p, unshare, err := n.fsys.share(ctx, n, "")
	if err != nil {
		return client.Entry{}, err
	}
	defer unshare()
	n.made.Set(nil)
	return n.fsys.setAttr(ctx, p, a)
}

func (f *FS) setAttr(ctx context.Context, p string, a client.Attr) (e client.Entry, err error) {
	if p == "" {
		return e, syscall.EPERM // the root's attributes are the buffer's
	}
	err = f.peers.Settle(ctx, func(bool) (err error) {
		e, err = f.b.SetAttr(ctx, p, a)
		return err
	})
	f.changes.Add(1)
	f.kept.Drop(p)
	return e, err
}

// give makes, if this process is another user's, a program's new file the property of the program's
// user.
func (f *FS) give(ctx context.Context, p string, caller fuse.Owner, mode *fs.FileMode) error {
	a := attr.Given(f.self, caller, mode)
	if a == (client.Attr{}) {
		return nil
	}
	_, err := f.setAttr(ctx, p, a)
	return err
}

// Mkdir implements mkdir.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	caller := request.Caller(ctx)
	ctx, done := n.fsys.request(ctx)
	defer done()
	inode, err := n.special(ctx, name, caller, out, func(p string) error { return n.fsys.b.Mkdir(ctx, p, fs.FileMode(mode).Perm()) },
		(*client.Entry).IsDir)
	return inode, n.fsys.errno(err)
}

// Link refuses hard links.
func (n *node) Link(context.Context, fusefs.InodeEmbedder, string, *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// Unlink implements unlink.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	ctx, done := n.fsys.request(ctx)
	defer done()
	return n.fsys.errno(n.remove(ctx, name))
}

// Rmdir implements rmdir.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno { return n.Unlink(ctx, name) }

// remove removes a name. Openers of the file keep its bytes.
func (n *node) remove(ctx context.Context, name string) error {
	f, victim := n.fsys, n.childNode(name)
	return victim.replaced(ctx, func() error {
		p, unshare, err := f.share(ctx, n, name)
		if err != nil {
			return err
		}
		defer unshare()
		defer f.kept.Drop(p)
		return f.settled.Remove(ctx, p)
	})
}

// Rename implements rename, with RENAME_NOREPLACE or RENAME_EXCHANGE.
func (n *node) Rename(ctx context.Context, name string, newParent fusefs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	ctx, done := n.fsys.request(ctx)
	defer done()
	m := move{from: n, name: name, to: newParent.(*node), newName: newName, noReplace: flags == unix.RENAME_NOREPLACE, exchange: flags == unix.RENAME_EXCHANGE}
	switch {
	case m.exchange:
		return n.fsys.errno(m.swap(ctx))
	case flags != 0 && !m.noReplace:
		return syscall.EINVAL
	}
	return n.fsys.errno(m.run(ctx))
}

// move is one rename.
type move struct {
	from      *node
	name      string
	to        *node
	newName   string
	noReplace bool
	exchange  bool
}

func (m *move) run(ctx context.Context) error {
	source, victim := m.from.childNode(m.name), m.to.childNode(m.newName)
	if source == nil {
		return syscall.ESTALE // the kernel looks it up again
	}
	if source == victim {
		return nil
	}
	if source.IsDir() {
		return m.directory(ctx, source, victim)
	}
	return source.quiet(ctx, func() error {
		return victim.replaced(ctx, func() error {
			unshare, err := m.from.fsys.names.Use(ctx, m.paths)
			if err != nil {
				return err
			}
			defer unshare()
			return m.carryOut(ctx, source, nil)
		})
	})
}

// directory renames a directory. Open files below it are committed under the old path before.
func (m *move) directory(ctx context.Context, source, victim *node) error {
	if victim != nil {
		if !victim.IsDir() {
			return syscall.ENOTDIR
		}
		if err := victim.remember(ctx); err != nil {
			return err
		}
	}
	return source.still(ctx, func() error { return m.alone(ctx, source, victim) })
}

// swap exchanges both names. Open files, and those below directories, are committed under the old paths before.
func (m *move) swap(ctx context.Context) error {
	source, other := m.from.childNode(m.name), m.to.childNode(m.newName)
	if source == nil || other == nil {
		return syscall.ESTALE // the kernel looks them up again
	}
	return source.still(ctx, func() error {
		return other.still(ctx, func() error { return m.alone(ctx, source, other) })
	})
}

// still is quiet of a file, or release of the files below a directory, and then do.
func (n *node) still(ctx context.Context, do func() error) error {
	if !n.IsDir() {
		return n.quiet(ctx, do)
	}
	for _, open := range n.fsys.openBelow(n) {
		if err := open.release(ctx); err != nil {
			return err
		}
	}
	return do()
}

// paths returns the old path and the new one.
func (m *move) paths() ([]string, error) {
	from, err := m.from.fsys.childPath(m.from, m.name)
	if err != nil {
		return nil, err
	}
	to, err := m.from.fsys.childPath(m.to, m.newName)
	return []string{from, to}, err
}

// alone is carryOut while nothing uses a path at or below the two. Open files below directories are found under the new paths afterwards.
func (m *move) alone(ctx context.Context, source, other *node) error {
	f := m.from.fsys
	done, err := f.names.Move(ctx, m.paths)
	if err != nil {
		return err
	}
	defer done()
	if err := m.carryOut(ctx, source, other); err != nil {
		return err
	}
	for _, open := range append(f.openBelow(source), f.openBelow(other)...) {
		open.moved.Store(true)
	}
	return nil
}

// carryOut renames or exchanges in the daemon, until the outcome is known, and in the tree. Other has the new name: it is
// exchanged, or an empty directory that is replaced, or nil.
func (m *move) carryOut(ctx context.Context, source, other *node) error {
	f := m.from.fsys
	p, err := m.paths()
	if err != nil {
		return err
	}
	if m.exchange {
		err = f.settled.Exchange(ctx, p[0], p[1])
	} else {
		err = f.settled.Rename(ctx, p[0], p[1], names.Moved{File: source.id, NoReplace: m.noReplace})
	}
	f.kept.Clear()
	if err != nil {
		return err
	}
	f.link(source, m.to, m.newName)
	if m.exchange {
		f.link(other, m.from, m.name)
	} else if other != nil {
		f.unlink(other)
	}
	return nil
}

// Statfs implements statfs.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	ctx, done := n.fsys.request(ctx)
	defer done()
	return n.fsys.errno(room.Statfs(ctx, n.fsys.c, n.fsys.b.Name(), out))
}
