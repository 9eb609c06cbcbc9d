package powertest

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Servers play those of a file system that spreads the bytes of its files over targets, and decides itself about
// rights. Their methods, and those of their results, may be called concurrently.
type Servers interface {
	// Caller returns a user of this node from the view of the servers.
	Caller(uid, gid uint32) (seenUID, seenGID uint32)
	// New is called for each file, directory and link that is made. Parent is nil for the root. A bare file waits
	// for its layout.
	New(parent Placed, uid, gid uint32, isDir, bare bool) Placed
}

// Placed is the servers' part of a file or directory.
type Placed interface {
	// Layout and SetLayout get and set the attribute lustre.lov.
	Layout() ([]byte, syscall.Errno)
	SetLayout(value []byte) syscall.Errno
	// Write is called before bytes are written, and may wait.
	Write(off, n int64) syscall.Errno
	// Sync is called before the bytes are synced, and may wait.
	Sync() syscall.Errno
	// Project returns the project id, and whether new files in a directory inherit it.
	Project() (id uint32, inherited bool)
	// Owned is called when the owner has changed.
	Owned(uid, gid uint32)
	// Removed is called when no name leads to a file any more.
	Removed()
}

// MountServed is MountCaching of a file system with servers.
func MountServed(tb testing.TB, dir string, s Servers) *FS {
	tb.Helper()
	f := mountable(tb, dir)
	f.attrs, f.disk.servers = cachedFor, s
	f.disk.inodes[rootID].placed = s.New(nil, 0, 0, true, false)
	f.mount()
	tb.Cleanup(f.unmount)
	return f
}

// addFor makes a caller's new inode. A bare file waits for its layout, since it was opened with O_ASYNC, since the
// kernel does not pass O_NOCTTY, the other flag of O_LOV_DELAY_CREATE, on.
func (d *disk) addFor(in *fuse.InHeader, name string, mode uint32, target string, bare bool) (*inode, syscall.Errno) {
	if errno := d.refused(in.NodeId, &in.Caller); errno != 0 {
		return nil, errno
	}
	uid, gid := d.seen(in.Uid, in.Gid)
	n, errno := d.add(in.NodeId, name, mode, uid, gid, target)
	if errno != 0 {
		return nil, errno
	}
	if d.servers != nil {
		n.placed = d.servers.New(d.inodes[in.NodeId].placed, n.uid, n.gid, n.isDir(), bare)
	}
	return n, 0
}

// changes refuses a change of attributes by a caller that is neither the file's owner nor root for
// the servers. Only root gives a file away.
func (d *disk) changes(n *inode, in *fuse.SetAttrIn) syscall.Errno {
	if d.servers == nil {
		return 0
	}
	uid, gid := d.seen(in.Caller.Uid, in.Caller.Gid)
	toUID, owner := in.GetUID()
	_, group := in.GetGID()
	_, mode := in.GetMode()
	switch {
	case uid == 0:
		return 0
	case owner && toUID != n.uid, (group || mode) && uid != n.uid:
		return syscall.EPERM
	case uid != in.Caller.Uid || gid != in.Caller.Gid:
		return d.refused(in.NodeId, &in.Caller)
	}
	return 0
}

// sameProject reports whether something may be moved from one directory into another. Neither into one whose project is
// inherited and not that of the moved one, nor out of one whose project is inherited into one of another project. mdd_rename
// calls mdd_rename_sanity_check for it (lustre/mdd/mdd_dir.c). The check is the one that early releases with project quotas
// make of everything. Later ones make it of directories alone, and give a file that is moved the project of its new
// directory.
func sameProject(from, to, n Placed) bool {
	left, leftInherits := from.Project()
	came, comesInto := to.Project()
	own, _ := n.Project()
	return (!comesInto || came == own) && (!leftInherits || left == came)
}

// seen returns the user that the caller is for the servers, and the owner of a new file of the
// caller's.
func (d *disk) seen(uid, gid uint32) (seenUID, seenGID uint32) {
	if d.servers == nil {
		return uid, gid
	}
	return d.servers.Caller(uid, gid)
}

const mayWrite = 2

// refused makes a check that the kernel of this node does not make. It is whether a caller that is
// another user for the servers may write a file, or change a directory.
func (d *disk) refused(id uint64, caller *fuse.Caller) syscall.Errno {
	uid, gid := d.seen(caller.Uid, caller.Gid)
	if uid == caller.Uid && gid == caller.Gid || uid == 0 {
		return 0
	}
	n, errno := d.get(id)
	if errno != 0 {
		return errno
	}
	bits := n.mode
	switch {
	case n.uid == uid:
		bits >>= 6
	case n.gid == gid:
		bits >>= 3
	}
	if bits&mayWrite == 0 {
		return syscall.EACCES
	}
	return 0
}

// mayChange is refused, for the change of a directory.
func (c *calls) mayChange(in *fuse.InHeader, dirs ...uint64) fuse.Status {
	if c.disk.servers == nil {
		return fuse.OK
	}
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	for _, dir := range dirs {
		if errno := c.disk.refused(dir, &in.Caller); errno != 0 {
			return fuse.Status(errno)
		}
	}
	return fuse.OK
}

// placed returns the servers' part of an inode, or nil if there are no servers.
func (c *calls) placed(id uint64) Placed {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	n, errno := c.disk.get(id)
	if errno != 0 {
		return nil
	}
	return n.placed
}

const layoutAttr = "lustre.lov"

// GetXAttr gets the layout.
func (c *calls) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	p := c.placed(in.NodeId)
	if attr != layoutAttr || p == nil {
		return 0, fuse.Status(syscall.EOPNOTSUPP)
	}
	var value []byte
	status := c.faults.around("getxattr", func() (errno syscall.Errno) {
		value, errno = p.Layout()
		return errno
	})
	switch {
	case status != fuse.OK:
		return 0, status
	case len(dest) < len(value):
		return uint32(len(value)), fuse.Status(syscall.ERANGE)
	}
	return uint32(copy(dest, value)), fuse.OK
}

// SetXAttr sets it.
func (c *calls) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, attr string, value []byte) fuse.Status {
	p := c.placed(in.NodeId)
	if attr != layoutAttr || p == nil {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return c.faults.around("setxattr", func() syscall.Errno { return p.SetLayout(value) })
}

// Ioctl gets the project: FS_IOC_FSGETXATTR returns struct fsxattr (linux/fs.h), of which are used the flags at 0 and the
// project at 16.
func (c *calls) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, _ []byte, _ *fuse.IoctlOut, outbuf []byte) fuse.Status {
	const (
		getFSXAttr  = 0x801c581f
		fsxattrSize = 28
		inheritFlag = 0x200 // FS_XFLAG_PROJINHERIT
	)
	p := c.placed(in.NodeId)
	if p == nil || in.Cmd != getFSXAttr || len(outbuf) < fsxattrSize {
		return fuse.Status(syscall.ENOTTY)
	}
	id, inherited := p.Project()
	clear(outbuf[:fsxattrSize])
	if inherited {
		binary.NativeEndian.PutUint32(outbuf, inheritFlag)
	}
	binary.NativeEndian.PutUint32(outbuf[16:], id)
	return fuse.OK
}

// Placed returns the servers' part of the inode at a path, or nil if there is none.
func (f *FS) Placed(name string) Placed {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n := f.disk.inodes[rootID]
	for part := range strings.SplitSeq(name, "/") {
		if n = f.disk.inodes[n.names[part]]; n == nil {
			return nil
		}
	}
	return n.placed
}
