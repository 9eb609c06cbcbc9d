// Package lustretest is a Lustre for tests: a file system in the memory of the test, mounted by FUSE, whose
// servers answer as those of Lustre do where that differs from a local disk. Programs of the test that query
// the type of the file system would get FUSE, so that Lustre's type is injected into them. It must never import
// the store that it tests.
//
// The simulated parts, with their places in Lustre's source (2.15):
//
//   - the attribute lustre.lov, set of a file that was opened with O_LOV_DELAY_CREATE, inherited from the directory
//     otherwise, and returned with the number of targets that there were (lustre/llite/xattr.c, lustre/lod). One that
//     is set later is ignored without an error (ll_setstripe_ea). The objects of a progressive layout's
//     components are made by the first write there. Bytes of a component on the metadata server are written to
//     that, at most as many as dom_stripesize allows;
//   - ENOSPC of a target that is full, while statfs sums up the others (lustre/ofd);
//   - targets that do not answer: writes to their objects, and syncs, wait until they do (a client waits for recovery). An
//     eviction fails them with EIO instead (ptlrpc_invalidate_import);
//   - EDQUOT of users, groups and projects, whose id is set and read by the calls of ioctl(2) for it (ll_fsxattr). New files in a directory with an inherited project have it. A move into one that has another, or out of it, fails with EXDEV;
//   - root squash and nodemaps: the servers map a caller to another user (lustre/mdt/mdt_identity.c, nodemap).
//
// Not simulated: several metadata targets, locks, caches of clients, time-outs.
package lustretest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"forebay/internal/powertest"
)

const defaultStripe = 1 << 20 // LOV_DESC_STRIPE_SIZE_DEFAULT

// Target is an object storage target.
type Target struct {
	Pool string // "": none
	Room int64  // bytes; 0: without end
}

// Options describe the file system. The zero value has no targets.
type Options struct {
	Name    string // of the file system; "": scratch
	Targets []Target
	MDT     Target // the metadata target
	DoM     int64  // dom_stripesize: bytes of a file that may be on the metadata target; 0: 1 MiB; NoDoM: none
	// Seen returns the user that a user of this node is for the servers. nil means the same user.
	// SquashRoot is one.
	Seen func(uid, gid uint32) (uint32, uint32)
}

// NoDoM: no bytes of files are on the metadata target.
const NoDoM = -1

// MDT is the number of the metadata target.
const MDT = -1

// Nobody is the user that SquashRoot makes of root.
const Nobody = 65534

// SquashRoot maps root to nobody (the parameter root_squash of a metadata server).
func SquashRoot(uid, gid uint32) (seenUID, seenGID uint32) {
	if uid == 0 {
		return Nobody, Nobody
	}
	return uid, gid
}

// Kind is whose quota it is.
type Kind string

// The kinds.
const (
	User    Kind = "user"
	Group   Kind = "group"
	Project Kind = "project"
)

type owner struct {
	kind Kind
	id   uint32
}

// FS is a mounted Lustre.
type FS struct {
	*powertest.FS
	o Options

	mu      sync.Mutex
	changed sync.Cond // of mu: a target answers again, or evicts
	targets []target
	mdt     target
	limits  map[owner]int64
	used    map[owner]int64
	next    int
}

type target struct {
	Target
	used    int64
	silent  bool
	evicted int // how often
	waiting int // calls
}

// Mount mounts an empty Lustre on a directory, until the test ends.
func Mount(tb testing.TB, dir string, o Options) *FS {
	tb.Helper()
	o.Name, o.DoM = cmp.Or(o.Name, "scratch"), cmp.Or(o.DoM, 1<<20)
	f := &FS{o: o, mdt: target{Target: o.MDT}, limits: map[owner]int64{}, used: map[owner]int64{}}
	f.changed.L = &f.mu
	for _, t := range o.Targets {
		f.targets = append(f.targets, target{Target: t})
	}
	f.FS = powertest.MountServed(tb, dir, f)
	tb.Cleanup(func() { // before it is unmounted
		for i := MDT; i < len(f.targets); i++ {
			f.Answer(i)
		}
	})
	return f
}

// target returns a target by its number, or the metadata target. The lock is held.
func (f *FS) target(i int) *target {
	if i == MDT {
		return &f.mdt
	}
	return &f.targets[i]
}

// Fill makes a target, or MDT, full.
func (f *FS) Fill(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.target(i)
	t.Room = max(t.used, 1)
}

// UsedOf returns how many bytes of files are on a target, or on MDT.
func (f *FS) UsedOf(i int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target(i).used
}

// Silence makes a target not answer.
func (f *FS) Silence(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target(i).silent = true
}

// Answer makes a target answer again.
func (f *FS) Answer(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target(i).silent = false
	f.changed.Broadcast()
}

// AwaitCalls waits until so many calls wait for targets that do not answer.
func (f *FS) AwaitCalls(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		waiting := 0
		for i := MDT; i < len(f.targets); i++ {
			if t := f.target(i); t.silent {
				waiting += t.waiting
			}
		}
		if waiting >= n {
			return
		}
		f.changed.Wait()
	}
}

// Evict makes a target that is back evict this client, so that calls that wait for it fail.
func (f *FS) Evict(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.target(i)
	t.silent = false
	t.evicted++
	f.changed.Broadcast()
}

// Limit sets a quota, in bytes.
func (f *FS) Limit(k Kind, id uint32, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits[owner{k, id}] = bytes
}

// Used returns the usage that counts against a quota.
func (f *FS) Used(k Kind, id uint32) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used[owner{k, id}]
}

// CheckServers prints the output of "lfs check servers" (do_target_check of lustre/utils/liblustreapi.c). A ping
// of a target whose server is away fails with EAGAIN.
func (f *FS) CheckServers() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%s-MDT0000-mdc-ffff9e5c41a3b000 active.\n", f.o.Name)
	for i := range f.targets {
		device := fmt.Sprintf("%s-OST%04x-osc-ffff9e5c41a3b000", f.o.Name, i)
		if f.targets[i].silent {
			fmt.Fprintf(&text, "lfs check: error: check '%s': Resource temporarily unavailable (11)\n", device)
		} else {
			fmt.Fprintf(&text, "%s active.\n", device)
		}
	}
	return text.String()
}

// Imports returns the files "import" of this client's devices, by their paths below /sys/kernel/debug/lustre, in the
// form of lprocfs_import_seq_show (lustre/obdclass/lprocfs_status.c).
func (f *FS) Imports() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := map[string]string{}
	add := func(kind, target, state string) {
		device := fmt.Sprintf("%s-%s-%s-ffff9e5c41a3b000", f.o.Name, target, kind)
		files[kind+"/"+device+"/import"] = fmt.Sprintf("import:\n    name: %s\n    target: %s-%s_UUID\n    state: %s\n    instance: 2\n"+
			"    connect_flags: [ write_grant, server_lock ]\n    import_flags: [ replayable, pingable, connect_tried ]\n", device, f.o.Name, target, state)
	}
	add("mdc", "MDT0000", "FULL")
	for i := range f.targets {
		state := "FULL"
		if f.targets[i].silent {
			state = "DISCONN"
		}
		add("osc", fmt.Sprintf("OST%04x", i), state)
	}
	return files
}

// Caller is a user from the view of the servers.
func (f *FS) Caller(uid, gid uint32) (seenUID, seenGID uint32) {
	if f.o.Seen == nil {
		return uid, gid
	}
	return f.o.Seen(uid, gid)
}

// New makes the servers' part of a file or directory.
func (f *FS) New(parent powertest.Placed, uid, gid uint32, isDir, bare bool) powertest.Placed {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &file{fs: f, isDir: isDir, uid: uid, gid: gid, blocks: map[int64]bool{}}
	if dir, ok := parent.(*file); ok {
		n.byDefault = dir.byDefault
		if dir.inherited {
			n.project, n.inherited = dir.project, isDir
		}
	}
	if !isDir && !bare {
		n.comps = slices.Clone(n.byDefault)
		if n.comps == nil {
			n.comps = []component{{end: eof, count: 1}}
		}
		f.make(&n.comps[0])
	}
	return n
}

// file is the servers' part of a file or directory. All is guarded by the file system's lock.
type file struct {
	fs        *FS
	isDir     bool
	uid, gid  uint32
	project   uint32
	inherited bool
	byDefault []component // of a directory, for new files there; nil: the file system's
	comps     []component // of a file; nil: it waits for its layout
	blocks    map[int64]bool
}

// make makes the objects of a component. They lie on the targets of its pool that have room, as
// many as were requested or as there are. A pool that does not exist is no pool (lod_find_pool).
func (f *FS) make(c *component) {
	if c.onMDT {
		c.objects = []int{}
		return
	}
	if c.stripe == 0 {
		c.stripe = defaultStripe
	}
	exists := slices.ContainsFunc(f.targets, func(t target) bool { return t.Pool == c.pool })
	if !exists {
		c.pool = ""
	}
	want := c.count
	if want == 0 {
		want = 1
	}
	c.objects = []int{}
	for range f.targets {
		i := f.next % len(f.targets)
		f.next++
		if (c.pool == "" || f.targets[i].Pool == c.pool) && len(c.objects) < want {
			c.objects = append(c.objects, i)
		}
	}
	f.next -= len(f.targets) - 1 // the next file begins on the next target
}

// Layout is the attribute.
func (n *file) Layout() ([]byte, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	comps := n.comps
	if n.isDir {
		comps = n.byDefault
	}
	if comps == nil {
		return nil, syscall.ENODATA
	}
	return attr(comps), 0
}

// SetLayout sets the attribute, of a directory the default.
func (n *file) SetLayout(value []byte) syscall.Errno {
	comps, errno := parse(value, max(n.fs.o.DoM, 0))
	if errno != 0 {
		return errno
	}
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	switch {
	case n.isDir:
		n.byDefault = comps
	case n.comps == nil:
		n.comps = comps
		n.fs.make(&n.comps[0])
	}
	return 0
}

// Write finds the objects of the bytes, waits for their targets, and counts room and quotas.
func (n *file) Write(off, size int64) syscall.Errno {
	f := n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.comps == nil {
		n.comps = []component{{end: eof, count: 1}}
	}
	for at := off / stripeUnit * stripeUnit; at < off+size; at += stripeUnit {
		t := n.target(at)
		if t == nil {
			return syscall.EIO
		}
		if errno := f.wait(t); errno != 0 {
			return errno
		}
		if n.blocks[at] {
			continue
		}
		if t.Room > 0 && t.used+stripeUnit > t.Room {
			return syscall.ENOSPC
		}
		for _, o := range n.owners() {
			if limit, is := f.limits[o]; is && f.used[o]+stripeUnit > limit {
				return syscall.EDQUOT
			}
		}
		n.blocks[at] = true
		t.used += stripeUnit
		n.count(stripeUnit)
	}
	return 0
}

// target returns the target that a byte of the file is on.
func (n *file) target(at int64) *target {
	for i := range n.comps {
		c := &n.comps[i]
		if uint64(at) >= c.end {
			continue
		}
		if c.onMDT {
			return &n.fs.mdt
		}
		if c.objects == nil {
			n.fs.make(c)
		}
		if len(c.objects) == 0 {
			return nil
		}
		return &n.fs.targets[c.objects[at/c.stripe%int64(len(c.objects))]]
	}
	return nil
}

// wait waits until a target answers.
func (f *FS) wait(t *target) syscall.Errno {
	was := t.evicted
	t.waiting++
	f.changed.Broadcast()
	for t.silent && was == t.evicted {
		f.changed.Wait()
	}
	t.waiting--
	if was != t.evicted {
		return syscall.EIO
	}
	return 0
}

func (n *file) owners() []owner {
	return []owner{{User, n.uid}, {Group, n.gid}, {Project, n.project}}
}

// count counts bytes against the quotas of the owners.
func (n *file) count(bytes int64) {
	for _, o := range n.owners() {
		n.fs.used[o] += bytes
	}
}

// Sync waits for the targets of all objects.
func (n *file) Sync() syscall.Errno {
	f := n.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n.comps {
		if n.comps[i].onMDT {
			if errno := f.wait(&f.mdt); errno != 0 {
				return errno
			}
		}
		for _, o := range n.comps[i].objects {
			if errno := f.wait(&f.targets[o]); errno != 0 {
				return errno
			}
		}
	}
	return 0
}

// Project returns the project id, and whether new files in the directory inherit it.
func (n *file) Project() (id uint32, inherited bool) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	return n.project, n.inherited
}

// SetProject does the same as "lfs project -s -p ID DIR".
func (f *FS) SetProject(dir string, id uint32) {
	n := f.Placed(dir).(*file)
	f.mu.Lock()
	defer f.mu.Unlock()
	n.move(func() { n.project, n.inherited = id, true })
}

// Owned counts the bytes of a file against its new owner.
func (n *file) Owned(uid, gid uint32) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	n.move(func() { n.uid, n.gid = uid, gid })
}

// move counts a file against others.
func (n *file) move(change func()) {
	bytes := int64(len(n.blocks)) * stripeUnit
	n.count(-bytes)
	change()
	n.count(bytes)
}

// Removed frees the room of a file.
func (n *file) Removed() {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	for at := range n.blocks {
		if t := n.target(at); t != nil {
			t.used -= stripeUnit
		}
	}
	n.count(-int64(len(n.blocks)) * stripeUnit)
	clear(n.blocks)
}
