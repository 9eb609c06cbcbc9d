// Package powertest is a file system for tests that loses power. Unsynced changes survive in part, or not at
// all, drawn by a seed. It is mounted with FUSE, so any program can be put on it. It must never depend on the
// programs that write to it.
//
// POSIX to the letter survives for certain, not the habits of one file system: the bytes and the
// length of a file with its fsync (fdatasync, msync), its name with the fsync of the directory. Of
// the rest
//
//   - each sector of a file has any of its contents since the last fsync, by itself;
//   - the length is any that fits, with zeros where no sector survived;
//   - a name leads to any of its targets since the last fsync of its directory. A rename
//     within a directory survives whole or not at all. After one between two directories
//     the file has the new name, or the old one, or both; and none if only the directory
//     of the old one was synced;
//   - syncfs does nothing, as FUSE has no request for it. FS.SyncBytes is called in its place.
//
// MountJournaled behaves as ext4 and XFS, whose journals keep changes of names in order.
//
// Permissions and times always survive. No test is about them.
package powertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	sector = 512
	rootID = 1
)

// disk is the state of a file system: the visible one, and the part of it on the disk. Its methods
// return errnos as system calls do. All of them are EIO once the power is cut.
type disk struct {
	mu     sync.Mutex
	inodes map[uint64]*inode
	last   uint64
	steps  []string // every change and sync so far
	until  int      // after so many steps the power is cut; -1: it is not
	off    bool

	journaled bool // a sync of anything makes all names durable
	servers   Servers

	redirect func(name string) string // of lookups in the root directory; nil: none
}

// inode is a file, a directory or a symbolic link.
type inode struct {
	id       uint64
	mode     uint32 // with its type
	uid, gid uint32
	links    uint32
	mtime    time.Time
	target   string // of a symbolic link
	placed   Placed // nil: there are no servers

	now, kept []byte   // of a file; its content, and the part on the disk
	writes    []change // that are not

	names, keptNames map[string]uint64 // of a directory, likewise
	renames          []*naming
}

// change is a write, or a change of the length.
type change struct {
	off    int64
	data   []byte
	length int64 // if there is no data
}

// naming is a change of a directory: name leads to id (0: to nothing), and from, if there
// is one, to nothing.
type naming struct {
	name, from string
	id         uint64
	synced     bool
	after      *naming // of the old name of a rename; it goes only when the new one is there
}

func newDisk() *disk {
	d := &disk{inodes: map[uint64]*inode{}, until: -1}
	d.make(syscall.S_IFDIR|0o777, 0, 0)
	return d
}

// make makes an inode without a name.
func (d *disk) make(mode, uid, gid uint32) *inode {
	d.last++
	n := &inode{id: d.last, mode: mode, uid: uid, gid: gid, mtime: time.Now()}
	if n.isDir() {
		n.names, n.keptNames = map[string]uint64{}, map[string]uint64{}
	}
	d.inodes[n.id] = n
	return n
}

func (n *inode) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// step counts a change or a sync, which is not done if the power is cut before it.
func (d *disk) step(format string, args ...any) syscall.Errno {
	if d.off || d.until >= 0 && len(d.steps) >= d.until {
		d.off = true
		return syscall.EIO
	}
	d.steps = append(d.steps, fmt.Sprintf(format, args...))
	return 0
}

// get returns an inode. Reads fail, too, without power.
func (d *disk) get(id uint64) (*inode, syscall.Errno) {
	n := d.inodes[id]
	switch {
	case d.off:
		return nil, syscall.EIO
	case n == nil:
		return nil, syscall.ESTALE
	}
	return n, 0
}

func (d *disk) dir(id uint64) (*inode, syscall.Errno) {
	n, errno := d.get(id)
	if errno == 0 && !n.isDir() {
		errno = syscall.ENOTDIR
	}
	return n, errno
}

func (d *disk) lookup(dir uint64, name string) (*inode, syscall.Errno) {
	n, errno := d.dir(dir)
	if errno != 0 {
		return nil, errno
	}
	id, is := n.names[name]
	if !is {
		return nil, syscall.ENOENT
	}
	return d.get(id)
}

// set notes that a name of a directory leads elsewhere.
func (d *disk) set(dir *inode, c *naming) {
	if old := d.inodes[dir.names[c.name]]; old != nil {
		old.links--
	}
	delete(dir.names, c.name)
	if c.from != "" {
		delete(dir.names, c.from)
	}
	if c.id != 0 {
		dir.names[c.name] = c.id
	}
	dir.renames = append(dir.renames, c)
	dir.mtime = time.Now()
}

// add makes something under a name.
func (d *disk) add(dir uint64, name string, mode, uid, gid uint32, target string) (*inode, syscall.Errno) {
	parent, errno := d.dir(dir)
	if errno != 0 {
		return nil, errno
	}
	if _, is := parent.names[name]; is {
		return nil, syscall.EEXIST
	}
	if errno := d.step("make %s", name); errno != 0 {
		return nil, errno
	}
	n := d.make(mode, uid, gid)
	n.links, n.target = 1, target
	d.set(parent, &naming{name: name, id: n.id})
	return n, 0
}

func (d *disk) link(id, dir uint64, name string) (*inode, syscall.Errno) {
	n, errno := d.get(id)
	if errno != 0 {
		return nil, errno
	}
	parent, errno := d.dir(dir)
	if errno != 0 {
		return nil, errno
	}
	if _, is := parent.names[name]; is {
		return nil, syscall.EEXIST
	}
	if errno := d.step("link %s", name); errno != 0 {
		return nil, errno
	}
	n.links++
	d.set(parent, &naming{name: name, id: id})
	return n, 0
}

// remove removes a name, of a directory if isDir, else of something else.
func (d *disk) remove(dir uint64, name string, isDir bool) syscall.Errno {
	n, errno := d.lookup(dir, name)
	switch {
	case errno != 0:
		return errno
	case isDir && !n.isDir():
		return syscall.ENOTDIR
	case !isDir && n.isDir():
		return syscall.EISDIR
	case len(n.names) > 0:
		return syscall.ENOTEMPTY
	}
	if errno := d.step("remove %s", name); errno != 0 {
		return errno
	}
	d.set(d.inodes[dir], &naming{name: name})
	d.unnamed(n)
	return 0
}

// unnamed reports to the servers that the last name of a file is gone, if it was the last one.
func (d *disk) unnamed(n *inode) {
	if n.placed != nil && n.links <= 1 {
		n.placed.Removed()
	}
}

const (
	renameNoReplace = 1 << 0
	renameExchange  = 1 << 1
)

func (d *disk) rename(from uint64, old string, to uint64, name string, flags uint32) syscall.Errno {
	n, errno := d.lookup(from, old)
	if errno != 0 {
		return errno
	}
	target, errno := d.dir(to)
	if errno != 0 {
		return errno
	}
	there := d.inodes[target.names[name]]
	switch {
	case flags&renameExchange != 0:
		return syscall.EINVAL
	case there == n:
		return 0
	case there == nil:
	case flags&renameNoReplace != 0:
		return syscall.EEXIST
	case there.isDir() && !n.isDir():
		return syscall.EISDIR
	case !there.isDir() && n.isDir():
		return syscall.ENOTDIR
	case len(there.names) > 0:
		return syscall.ENOTEMPTY
	}
	if d.servers != nil && from != to && !sameProject(d.inodes[from].placed, target.placed, n.placed) {
		return syscall.EXDEV
	}
	if errno := d.step("rename %s to %s", old, name); errno != 0 {
		return errno
	}
	if there != nil {
		d.unnamed(there)
	}
	if from == to {
		d.set(target, &naming{name: name, from: old, id: n.id})
		return 0
	}
	came := &naming{name: name, id: n.id}
	d.set(target, came)
	n.links++ // the old name is none of its any more
	d.set(d.inodes[from], &naming{name: old, after: came})
	return 0
}

func (d *disk) read(id uint64, p []byte, off int64) (int, syscall.Errno) {
	n, errno := d.get(id)
	if errno != 0 || off >= int64(len(n.now)) {
		return 0, errno
	}
	return copy(p, n.now[off:]), 0
}

func (d *disk) write(id uint64, p []byte, off int64) syscall.Errno {
	n, errno := d.get(id)
	if errno == 0 {
		errno = d.step("write %d bytes at %d of %d", len(p), off, id)
	}
	if errno == 0 {
		n.apply(change{off: off, data: slices.Clone(p)})
	}
	return errno
}

func (d *disk) truncate(id uint64, length int64) syscall.Errno {
	n, errno := d.get(id)
	if errno == 0 && length != int64(len(n.now)) {
		if errno = d.step("truncate %d to %d", id, length); errno == 0 {
			n.apply(change{length: length})
		}
	}
	return errno
}

// allocate is fallocate without flags, which lengthens the file.
func (d *disk) allocate(id uint64, length int64) syscall.Errno {
	n, errno := d.get(id)
	if errno != 0 || length <= int64(len(n.now)) {
		return errno
	}
	return d.truncate(id, length)
}

func (n *inode) apply(c change) {
	n.now = c.on(n.now)
	n.writes = append(n.writes, c)
	n.mtime = time.Now()
}

// on returns a content after a change.
func (c change) on(p []byte) []byte {
	if c.data == nil {
		return resize(p, int(c.length))
	}
	p = resize(p, max(len(p), int(c.off)+len(c.data)))
	copy(p[c.off:], c.data)
	return p
}

func resize(p []byte, length int) []byte {
	if length <= len(p) {
		return p[:length]
	}
	if length > cap(p) {
		longer := make([]byte, length, length+length/4)
		copy(longer, p)
		return longer
	}
	was := len(p)
	p = p[:length]
	clear(p[was:])
	return p
}

// sync makes a file or a directory durable as it is.
func (d *disk) sync(id uint64) syscall.Errno {
	n, errno := d.get(id)
	if errno == 0 {
		errno = d.step("sync %d", id)
	}
	if errno != 0 {
		return errno
	}
	for _, c := range n.writes {
		n.kept = c.on(n.kept)
	}
	n.writes = nil
	n.syncNames()
	if d.journaled {
		for _, n := range d.inodes {
			n.syncNames()
		}
	}
	return 0
}

// syncBytes makes the bytes of all files durable, and no name.
func (d *disk) syncBytes() syscall.Errno {
	if errno := d.step("sync all bytes"); errno != 0 {
		return errno
	}
	for _, n := range d.inodes {
		for _, c := range n.writes {
			n.kept = c.on(n.kept)
		}
		n.writes = nil
	}
	return 0
}

func (n *inode) syncNames() {
	if len(n.renames) > 0 {
		for _, c := range n.renames {
			c.synced = true
		}
		n.keptNames, n.renames = maps.Clone(n.names), nil
	}
}

// odds are the probability that unsynced changes survive.
type odds struct{ names, bytes float64 }

// Seeds up to Corners are the extremes: nothing survives, all of it, the names alone, the
// bytes alone. Those above are chance.
const Corners = 4

func oddsOf(seed uint64, rng *rand.Rand) odds {
	corners := [Corners]odds{{0, 0}, {1, 1}, {1, 0}, {0, 1}}
	if seed < Corners {
		return corners[seed]
	}
	some := []float64{0.05, 0.5, 0.95}
	return odds{some[rng.IntN(len(some))], some[rng.IntN(len(some))]}
}

// survive returns the state when the power comes back.
func (d *disk) survive(seed uint64) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	return d.left(seed)
}

// left is survive without the cut.
func (d *disk) left(seed uint64) *disk {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &survivor{
		was: d, is: &disk{inodes: map[uint64]*inode{}, last: d.last, until: -1, journaled: d.journaled},
		rng: rng, odds: oddsOf(seed, rng), came: map[*naming]bool{},
	}
	s.keep(rootID)
	return s.is
}

type survivor struct {
	was, is *disk
	rng     *rand.Rand
	odds    odds
	came    map[*naming]bool // which changes of names survived
}

func (s *survivor) chance(p float64) bool { return s.rng.Float64() < p }

// keep adds an inode with all below it. A directory has one name.
func (s *survivor) keep(id uint64) bool {
	if n := s.is.inodes[id]; n != nil {
		if n.isDir() {
			return false
		}
		n.links++
		return true
	}
	old := s.was.inodes[id]
	n := &inode{id: id, mode: old.mode, uid: old.uid, gid: old.gid, links: 1, mtime: old.mtime, target: old.target}
	s.is.inodes[id] = n
	if !n.isDir() {
		n.now = s.content(old)
		n.kept = slices.Clone(n.now)
		return true
	}
	n.names = map[string]uint64{}
	names := s.names(old)
	for _, name := range slices.Sorted(maps.Keys(names)) { // so that the seed alone decides
		if s.keep(names[name]) {
			n.names[name] = names[name]
		}
	}
	n.keptNames = maps.Clone(n.names)
	return true
}

func (s *survivor) names(n *inode) map[string]uint64 {
	names := maps.Clone(n.keptNames)
	for _, c := range n.renames {
		if !s.survived(c) {
			continue
		}
		delete(names, c.from)
		delete(names, c.name)
		if c.id != 0 {
			names[c.name] = c.id
		}
	}
	return names
}

// survived decides once whether a change of a name survives.
func (s *survivor) survived(c *naming) bool {
	if c == nil || c.synced {
		return true
	}
	came, decided := s.came[c]
	if !decided {
		came = s.chance(s.odds.names) && s.survived(c.after)
		s.came[c] = came
	}
	return came
}

func (s *survivor) content(n *inode) []byte {
	p := slices.Clone(n.kept)
	for _, c := range n.writes {
		if c.data == nil {
			if s.chance(s.odds.bytes) {
				p = c.on(p)
			}
			continue
		}
		for at := 0; at < len(c.data); {
			end := min(len(c.data), at+sector-int(c.off+int64(at))%sector)
			if s.chance(s.odds.bytes) {
				p = change{off: c.off + int64(at), data: c.data[at:end]}.on(p)
			}
			at = end
		}
	}
	if len(p) < len(n.now) && s.chance(s.odds.names/2) { // the length is there, the bytes are not
		p = resize(p, len(n.now))
	}
	return p
}
