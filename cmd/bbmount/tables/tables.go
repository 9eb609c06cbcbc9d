// Package tables has what the kernel holds of a mount: how often it has looked each node up, and the numbers of open files and
// directories. It has a new process's file system begin with the same. It must never know what a node is.
package tables

import (
	"encoding/binary"
	"fmt"
	"maps"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/internal/bb"
)

// Root is the number of the mount's root.
const Root = fuse.FUSE_ROOT_ID

// Handle is an open file or directory.
type Handle struct {
	Node  uint64
	Flags uint32 // of open
	Dir   bool
}

// State is what the kernel holds.
type State struct {
	Lookups map[uint64]uint64 // by node
	Handles map[uint32]Handle // by number
}

// Tables is a file system as it is, of which is noted what the kernel holds.
type Tables struct {
	fuse.RawFileSystem
	mu struct {
		sync.Mutex
		State
		// Of the lookups, those that the file system does not know of, since another process has answered them.
		earlier map[uint64]uint64
	}
}

// New returns the tables of a file system that the kernel holds nothing of.
func New(calls fuse.RawFileSystem) *Tables {
	t := &Tables{RawFileSystem: calls}
	t.mu.Lookups, t.mu.Handles, t.mu.earlier = map[uint64]uint64{}, map[uint32]Handle{}, map[uint64]uint64{}
	return t
}

// State returns a copy.
func (t *Tables) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return State{maps.Clone(t.mu.Lookups), maps.Clone(t.mu.Handles)}
}

// Ask has the file system look at each open directory: by an ioctl that comes from no program, whose argument is the number.
func (t *Tables) Ask() {
	for number, h := range t.State().Handles {
		if h.Dir {
			t.RawFileSystem.Ioctl(nil, &fuse.IoctlIn{InHeader: fuse.InHeader{NodeId: h.Node}, Fh: uint64(number), Arg: uint64(number)}, nil, &fuse.IoctlOut{}, nil)
		}
	}
}

// Restore has a new file system know nodes by a lookup of "." in them, and open what was open, as calls that come from no
// program. The flags of a directory are its number.
func (t *Tables) Restore(s State) error {
	for node, n := range s.Lookups {
		var out fuse.EntryOut
		if node == Root {
			continue
		}
		if status := t.RawFileSystem.Lookup(nil, &fuse.InHeader{NodeId: node}, ".", &out); status != fuse.OK || out.NodeId != node {
			return failed("node", node, status)
		}
		if n > 1 {
			t.mu.earlier[node] = n - 1
		}
	}
	// The file system counts numbers up from 1. What is between them is opened, and closed at the end.
	var between []uint64
	for number, left := uint32(1), len(s.Handles); left > 0; number++ {
		h, ok := s.Handles[number]
		if ok {
			left--
		} else {
			h = Handle{Node: Root, Dir: true}
			between = append(between, uint64(number))
		}
		in, open := &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: h.Node}, Flags: h.Flags}, t.RawFileSystem.Open
		if h.Dir {
			in.Flags, open = number, t.RawFileSystem.OpenDir
		}
		var out fuse.OpenOut
		if status := open(nil, in, &out); status != fuse.OK || out.Fh != uint64(number) {
			return failed("open file", uint64(number), status)
		}
	}
	for _, number := range between {
		t.RawFileSystem.ReleaseDir(&fuse.ReleaseIn{InHeader: fuse.InHeader{NodeId: Root}, Fh: number})
	}
	t.mu.State = s
	return nil
}

func failed(what string, number uint64, status fuse.Status) error {
	return bb.E(bb.Internal, "restart", "", fmt.Sprintf("%s %d cannot be carried over: %v", what, number, status))
}

// looked counts a lookup.
func (t *Tables) looked(node uint64, status fuse.Status) fuse.Status {
	if status == fuse.OK && node != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.Lookups[node]++
	}
	return status
}

func (t *Tables) opened(number uint64, h Handle, status fuse.Status) fuse.Status {
	if status == fuse.OK {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.Handles[uint32(number)] = h
	}
	return status
}

func (t *Tables) closed(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.Handles, uint32(number))
}

// Forget is the inverse of lookups.
func (t *Tables) Forget(node, n uint64) {
	if known := t.forgotten(node, n); known > 0 {
		t.RawFileSystem.Forget(node, known)
	}
}

// forgotten returns how many of n lookups the file system knows of.
func (t *Tables) forgotten(node, n uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.Lookups[node] -= n; t.mu.Lookups[node] == 0 {
		delete(t.mu.Lookups, node)
	}
	e := min(n, t.mu.earlier[node])
	if t.mu.earlier[node] -= e; t.mu.earlier[node] == 0 {
		delete(t.mu.earlier, node)
	}
	return n - e
}

// Lookup counts one.
func (t *Tables) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	status := t.RawFileSystem.Lookup(cancel, in, name, out)
	return t.looked(out.NodeId, status)
}

// Mknod counts a lookup.
func (t *Tables) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	status := t.RawFileSystem.Mknod(cancel, in, name, out)
	return t.looked(out.NodeId, status)
}

// Mkdir counts a lookup.
func (t *Tables) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	status := t.RawFileSystem.Mkdir(cancel, in, name, out)
	return t.looked(out.NodeId, status)
}

// Symlink counts a lookup.
func (t *Tables) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	status := t.RawFileSystem.Symlink(cancel, in, target, name, out)
	return t.looked(out.NodeId, status)
}

// Link counts a lookup.
func (t *Tables) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	status := t.RawFileSystem.Link(cancel, in, name, out)
	return t.looked(out.NodeId, status)
}

// Create counts a lookup, and notes the open file.
func (t *Tables) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	status := t.RawFileSystem.Create(cancel, in, name, out)
	t.looked(out.NodeId, status)
	return t.opened(out.Fh, Handle{Node: out.NodeId, Flags: in.Flags}, status)
}

// Open notes the open file.
func (t *Tables) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	status := t.RawFileSystem.Open(cancel, in, out)
	return t.opened(out.Fh, Handle{Node: in.NodeId, Flags: in.Flags}, status)
}

// OpenDir notes the open directory.
func (t *Tables) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	status := t.RawFileSystem.OpenDir(cancel, in, out)
	return t.opened(out.Fh, Handle{Node: in.NodeId, Dir: true}, status)
}

// Release notes that a file is closed. Its number may be another's as soon as the file system knows.
func (t *Tables) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	t.closed(in.Fh)
	t.RawFileSystem.Release(cancel, in)
}

// ReleaseDir notes that a directory is closed.
func (t *Tables) ReleaseDir(in *fuse.ReleaseIn) {
	t.closed(in.Fh)
	t.RawFileSystem.ReleaseDir(in)
}

// Sizes, in bytes, of the structures in an answer to readdirplus (linux/fuse.h).
const (
	entryOut = 128
	dirent   = 24
)

// ReadDirPlus counts a lookup of each entry but "." and "..", which have the node 0.
func (t *Tables) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	status := t.RawFileSystem.ReadDirPlus(cancel, in, out)
	for p := out.Bytes(); len(p) >= entryOut+dirent; {
		t.looked(binary.NativeEndian.Uint64(p), fuse.OK)
		name := int(binary.NativeEndian.Uint32(p[entryOut+16:]))
		p = p[min(len(p), entryOut+(dirent+name+7)/8*8):]
	}
	return status
}
