package powertest

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is a mounted file system. The process that mounts it does not map files of it. The garbage
// collector would wait for a page fault that only this process can answer.
type FS struct {
	Dir string // where it is mounted

	tb     testing.TB
	disk   *disk
	cut    *disk // state after the last cut
	faults faults
	attrs  time.Duration // for how long the kernel keeps attributes
	server *fuse.Server
}

// Mount mounts an empty file system on a directory, until the test ends. It skips a test that may
// not mount. In CI, where nothing may be missing, it fails the test.
func Mount(tb testing.TB, dir string) *FS {
	tb.Helper()
	return mountWith(tb, dir, 0, false)
}

// MountJournaled is Mount of a file system that keeps the order of names. A sync of anything makes
// all of them durable that there were by then, and removes those that were removed.
func MountJournaled(tb testing.TB, dir string) *FS {
	tb.Helper()
	return mountWith(tb, dir, 0, true)
}

// MountCaching is Mount, but the kernel keeps attributes, as it does of network file systems, and
// requests them less often.
func MountCaching(tb testing.TB, dir string) *FS {
	tb.Helper()
	return mountWith(tb, dir, cachedFor, false)
}

const cachedFor = time.Minute

func mountWith(tb testing.TB, dir string, attrs time.Duration, journaled bool) *FS {
	tb.Helper()
	f := mountable(tb, dir)
	f.attrs, f.disk.journaled = attrs, journaled
	f.mount()
	tb.Cleanup(f.unmount)
	return f
}

// mountable returns an empty file system that can be mounted.
func mountable(tb testing.TB, dir string) *FS {
	tb.Helper()
	mayMount(tb)
	return &FS{Dir: dir, tb: tb, disk: newDisk()}
}

// CutAfter cuts the power after so many more steps, which are changes and syncs. Everything then
// fails with EIO.
func (f *FS) CutAfter(steps int) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.until = len(f.disk.steps) + steps
}

// Cut cuts the power now.
func (f *FS) Cut() {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.off = true
}

// Steps describes the changes and syncs since the last Restart.
func (f *FS) Steps() []string {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return slices.Clone(f.disk.steps)
}

// SyncBytes does the certain part of syncfs(2) on a file system of disks. The bytes of all files are durable,
// their names are not.
func (f *FS) SyncBytes() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if errno := f.disk.syncBytes(); errno != 0 {
		return errno
	}
	return nil
}

// Restart mounts the survivors of a cut, which happens now if it has not yet. Files that are open
// fail.
func (f *FS) Restart(seed uint64) {
	f.tb.Helper()
	f.Cut()
	f.cut = f.disk
	f.Instead(seed)
}

// Remount mounts the file system again, over the first mount, as an administrator may when it does not
// answer. Calls of the first one that are held continue by themselves, and no call of the second
// waits for them.
func (f *FS) Remount() {
	f.tb.Helper()
	second := &FS{Dir: f.Dir, tb: f.tb, disk: f.disk, attrs: f.attrs}
	second.mount()
	f.tb.Cleanup(second.unmount)
}

// Instead mounts another seed's survivors of the last cut, in place of all later changes.
func (f *FS) Instead(seed uint64) {
	f.tb.Helper()
	f.Cut()
	f.unmount()
	f.disk = f.cut.survive(seed)
	f.mount()
}

func (f *FS) mount() {
	f.tb.Helper()
	server, err := fuse.NewServer(&calls{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: f.disk, faults: &f.faults, attrs: f.attrs}, f.Dir, &fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: "powertest", Name: "powertest",
		DisableReadDirPlus: true, MaxWrite: 1 << 20, Options: []string{"default_permissions"},
	})
	if err != nil {
		f.tb.Fatalf("mounting on %s: %v", f.Dir, err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		f.tb.Fatalf("mounting on %s: %v", f.Dir, err)
	}
	f.server = server
}

// unmount takes the mount away from those, too, that have files open.
func (f *FS) unmount() {
	if f.server == nil {
		return
	}
	if err := unix.Unmount(f.Dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		f.tb.Errorf("unmounting %s: %v", f.Dir, err)
		return
	}
	f.server.Wait()
	f.server = nil
}

// calls answers the kernel. Node ids are those of inodes. Nothing is cached but pages.
type calls struct {
	fuse.RawFileSystem
	disk   *disk
	faults *faults
	attrs  time.Duration
}

// locked does something with the disk to oneself, unless the call is to fail.
func (c *calls) locked(call string, f func(d *disk) syscall.Errno) fuse.Status {
	return c.faults.around(call, func() syscall.Errno {
		c.disk.mu.Lock()
		defer c.disk.mu.Unlock()
		return f(c.disk)
	})
}

func (n *inode) attr(a *fuse.Attr) {
	*a = fuse.Attr{
		Ino: n.id, Size: uint64(len(n.now)), Blocks: uint64(len(n.now)+sector-1) / sector, Blksize: 4096,
		Mode: n.mode, Nlink: n.links, Owner: fuse.Owner{Uid: n.uid, Gid: n.gid},
		Mtime: uint64(n.mtime.Unix()), Mtimensec: uint32(n.mtime.Nanosecond()),
	}
	if n.isDir() {
		a.Nlink = 2
	}
	a.Atime, a.Atimensec, a.Ctime, a.Ctimensec = a.Mtime, a.Mtimensec, a.Mtime, a.Mtimensec
}

func (n *inode) entry(out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.id, 1
	n.attr(&out.Attr)
}

// named answers with the present target of a name.
func (c *calls) named(call string, out *fuse.EntryOut, f func(d *disk) (*inode, syscall.Errno)) fuse.Status {
	return c.locked(call, func(d *disk) syscall.Errno {
		n, errno := f(d)
		if errno == 0 {
			n.entry(out)
			out.SetAttrTimeout(c.attrs)
		}
		return errno
	})
}

func (c *calls) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return c.named("lookup", out, func(d *disk) (*inode, syscall.Errno) {
		if d.redirect != nil && in.NodeId == rootID {
			name = d.redirect(name)
		}
		return d.lookup(in.NodeId, name)
	})
}

func (c *calls) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return c.locked("getattr", func(d *disk) syscall.Errno {
		n, errno := d.get(in.NodeId)
		if errno == 0 {
			n.attr(&out.Attr)
			out.SetTimeout(c.attrs)
		}
		return errno
	})
}

func (c *calls) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return c.locked("setattr", func(d *disk) syscall.Errno {
		n, errno := d.get(in.NodeId)
		if errno != 0 {
			return errno
		}
		if errno := d.changes(n, in); errno != 0 {
			return errno
		}
		if size, is := in.GetSize(); is {
			if errno := d.truncate(in.NodeId, int64(size)); errno != 0 {
				return errno
			}
		}
		if mode, is := in.GetMode(); is {
			n.mode = n.mode&syscall.S_IFMT | mode&^syscall.S_IFMT
		}
		if uid, is := in.GetUID(); is {
			n.uid = uid
		}
		if gid, is := in.GetGID(); is {
			n.gid = gid
		}
		if mtime, is := in.GetMTime(); is {
			n.mtime = mtime
		}
		if n.placed != nil {
			n.placed.Owned(n.uid, n.gid)
		}
		n.attr(&out.Attr)
		out.SetTimeout(c.attrs)
		return 0
	})
}

func (c *calls) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return c.named("mknod", out, func(d *disk) (*inode, syscall.Errno) { return d.addFor(&in.InHeader, name, in.Mode, "", false) })
}

func (c *calls) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return c.named("mkdir", out, func(d *disk) (*inode, syscall.Errno) {
		return d.addFor(&in.InHeader, name, syscall.S_IFDIR|in.Mode, "", false)
	})
}

func (c *calls) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return c.named("symlink", out, func(d *disk) (*inode, syscall.Errno) {
		return d.addFor(in, name, syscall.S_IFLNK|0o777, target, false)
	})
}

func (c *calls) Readlink(_ <-chan struct{}, in *fuse.InHeader) (target []byte, status fuse.Status) {
	status = c.locked("readlink", func(d *disk) syscall.Errno {
		n, errno := d.get(in.NodeId)
		if errno == 0 {
			target = []byte(n.target)
		}
		return errno
	})
	return target, status
}

func (c *calls) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return c.named("link", out, func(d *disk) (*inode, syscall.Errno) { return d.link(in.Oldnodeid, in.NodeId, name) })
}

func (c *calls) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if status := c.mayChange(in, in.NodeId); status != fuse.OK {
		return status
	}
	return c.locked("unlink", func(d *disk) syscall.Errno { return d.remove(in.NodeId, name, false) })
}

func (c *calls) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if status := c.mayChange(in, in.NodeId); status != fuse.OK {
		return status
	}
	return c.locked("rmdir", func(d *disk) syscall.Errno { return d.remove(in.NodeId, name, true) })
}

func (c *calls) Rename(_ <-chan struct{}, in *fuse.RenameIn, old, name string) fuse.Status {
	if status := c.mayChange(&in.InHeader, in.NodeId, in.Newdir); status != fuse.OK {
		return status
	}
	return c.locked("rename", func(d *disk) syscall.Errno { return d.rename(in.NodeId, old, in.Newdir, name, in.Flags) })
}

func (c *calls) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return c.named("create", &out.EntryOut, func(d *disk) (*inode, syscall.Errno) {
		return d.addFor(&in.InHeader, name, syscall.S_IFREG|in.Mode, "", in.Flags&syscall.O_ASYNC != 0)
	})
}

func (c *calls) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return c.locked("open", func(d *disk) syscall.Errno {
		if in.Flags&syscall.O_TRUNC != 0 {
			return d.truncate(in.NodeId, 0)
		}
		_, errno := d.get(in.NodeId)
		return errno
	})
}

func (c *calls) Read(_ <-chan struct{}, in *fuse.ReadIn, p []byte) (result fuse.ReadResult, status fuse.Status) {
	status = c.locked("read", func(d *disk) syscall.Errno {
		n, errno := d.read(in.NodeId, p, int64(in.Offset))
		result = fuse.ReadResultData(p[:n])
		return errno
	})
	return result, status
}

func (c *calls) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (uint32, fuse.Status) {
	fault := c.faults.next("write")
	if fault.Short {
		p = p[:len(p)/2]
	}
	placed := c.placed(in.NodeId)
	return uint32(len(p)), fault.around(func() syscall.Errno {
		if placed != nil {
			if errno := placed.Write(int64(in.Offset), int64(len(p))); errno != 0 {
				return errno
			}
		}
		c.disk.mu.Lock()
		defer c.disk.mu.Unlock()
		return c.disk.write(in.NodeId, p, int64(in.Offset))
	})
}

func (c *calls) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return c.locked("fallocate", func(d *disk) syscall.Errno { return d.allocate(in.NodeId, int64(in.Offset+in.Length)) })
}

func (c *calls) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	placed := c.placed(in.NodeId)
	return c.faults.around("fsync", func() syscall.Errno {
		if placed != nil {
			if errno := placed.Sync(); errno != 0 {
				return errno
			}
		}
		c.disk.mu.Lock()
		defer c.disk.mu.Unlock()
		return c.disk.sync(in.NodeId)
	})
}

func (c *calls) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return c.locked("fsyncdir", func(d *disk) syscall.Errno { return d.sync(in.NodeId) })
}

func (c *calls) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status {
	return c.faults.around("flush", func() syscall.Errno { return 0 })
}

func (c *calls) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (c *calls) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return c.locked("opendir", func(d *disk) syscall.Errno {
		_, errno := d.dir(in.NodeId)
		return errno
	})
}

func (c *calls) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.locked("readdir", func(d *disk) syscall.Errno {
		dir, errno := d.dir(in.NodeId)
		if errno != 0 {
			return errno
		}
		// An entry's offset is its inode's number. It stays while others come and go.
		type entry struct {
			name string
			id   uint64
		}
		var all []entry
		for name, id := range dir.names {
			if id > in.Offset {
				all = append(all, entry{name, id})
			}
		}
		slices.SortFunc(all, func(a, b entry) int { return int(a.id) - int(b.id) })
		for _, e := range all {
			if !out.AddDirEntry(fuse.DirEntry{Name: e.name, Ino: e.id, Mode: d.inodes[e.id].mode, Off: e.id}) {
				break
			}
		}
		return 0
	})
}

func (c *calls) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 1 << 28 // 1 TiB
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks, Bavail: blocks, Files: blocks, Ffree: blocks, Bsize: 4096, Frsize: 4096, NameLen: 255}
	return c.faults.around("statfs", func() syscall.Errno { return 0 })
}
