package bufferfs

import (
	"context"
	"os"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/content"
	"forebay/internal/bb"
)

// State is what a process needs that goes on for this one, besides what the kernel holds (package tables).
type State struct {
	Nodes   []Node
	Names   []Name
	Listed  map[uint32][]string // names that were passed, by the number of the open directory
	Retries map[uint32]string
}

// Node is a file or directory that the kernel has looked up.
type Node struct {
	Number   uint64
	Type     uint32 // as in the mode
	File     bb.FileID
	Dir      uint64 // where it lies, or lay
	Name     string
	Unlinked bool
	Last     client.Entry // of one without a name

	Size       int64 // that the kernel has
	Generation bb.Generation

	Scratch int // descriptor of the content of an open file without a name; 0: none
	ModTime time.Time
}

// Name is an entry of the kernel's tree.
type Name struct {
	Dir, Node uint64
	Name      string
}

// carried is what State was made from, or made of.
type carried struct {
	nodes  map[uint64]*node
	listed map[uint32][]string
}

// inside reports whether a call comes from this process: no program can cancel it (package tables).
func inside(ctx context.Context) bool {
	c, ok := ctx.(*fuse.Context)
	return ok && c.Cancel == nil
}

func (n *node) number() uint64 {
	if n == n.fsys.root {
		return fuse.FUSE_ROOT_ID
	}
	return n.StableAttr().Ino
}

// FirstNumber returns a number above those of all directories.
func (s *State) FirstNumber() uint64 {
	first := uint64(1) << 63
	for i := range s.Nodes {
		if s.Nodes[i].File == 0 {
			first = max(first, s.Nodes[i].Number+1)
		}
	}
	return first
}

// Prepare shortens a later Save. It copies contents that no other process could open.
func (f *FS) Prepare(ctx context.Context) error {
	for _, n := range f.all(new([]Name)) {
		if n.isUnlinked() && !n.IsDir() {
			if _, err := n.save(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Save commits what open files hold, and returns the state. No request is being carried out, and the open directories were
// asked (tables.Ask). The file system may be used on.
func (f *FS) Save(ctx context.Context) (*State, error) {
	s := &State{Listed: f.carried.listed, Retries: f.retries.Saved()}
	f.carried.listed = nil
	for _, n := range f.all(&s.Names) {
		saved, err := n.save(ctx)
		if err != nil {
			return nil, err
		}
		s.Nodes = append(s.Nodes, saved)
	}
	return s, nil
}

// all returns all nodes but the root, each once, and appends the kernel's names.
func (f *FS) all(names *[]Name) (all []*node) {
	seen := map[*node]bool{f.root: true}
	add := func(n *node) {
		if !seen[n] {
			seen[n] = true
			all = append(all, n)
		}
	}
	for left := []*node{f.root}; len(left) > 0; left = left[1:] {
		for name, in := range left[0].Children() {
			c := in.Operations().(*node)
			*names = append(*names, Name{left[0].number(), c.number(), name})
			if !seen[c] {
				left = append(left, c)
			}
			add(c)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.mu.files {
		add(n)
	}
	for n := range f.mu.gone {
		add(n)
	}
	return all
}

func (n *node) save(ctx context.Context) (Node, error) {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return Node{}, err
	}
	defer unlock()
	s := Node{Number: n.number(), Type: n.Mode(), File: n.id, Last: n.lastEntry()}
	n.fsys.mu.Lock()
	s.Name, s.Unlinked = n.name, n.unlinked
	if n.parent != nil {
		s.Dir = n.parent.number()
	}
	n.fsys.mu.Unlock()
	if n.backing != nil {
		return s, bb.E(bb.Busy, "restart", s.Name, "programs read the file by passthrough").WithRemedy("repeat it when they have closed it")
	}
	c := n.current()
	if c != nil {
		err = n.changed(c.Release(ctx))
	}
	if o, ok := c.(*content.Orphan); ok && err == nil {
		s.ModTime = o.Unsaved().ModTime
		s.Scratch, err = o.Scratch(ctx)
	}
	s.Size, s.Generation = n.view.Saved()
	return s, err
}

// Restore makes the nodes of a state. File returns the open file of a descriptor.
func (f *FS) Restore(ctx context.Context, s *State, file func(fd int) *os.File) error {
	f.carried = carried{nodes: map[uint64]*node{fuse.FUSE_ROOT_ID: f.root}, listed: s.Listed}
	f.retries.Restore(s.Retries)
	for i := range s.Nodes {
		n := f.newNode(s.Nodes[i].File)
		f.carried.nodes[s.Nodes[i].Number] = n
		f.root.NewInode(ctx, n, fusefs.StableAttr{Mode: s.Nodes[i].Type, Ino: s.Nodes[i].Number})
	}
	for i := range s.Nodes {
		if err := f.carried.nodes[s.Nodes[i].Number].restore(&s.Nodes[i], file); err != nil {
			return err
		}
	}
	for _, l := range s.Names {
		dir, n := f.carried.nodes[l.Dir], f.carried.nodes[l.Node]
		if dir == nil || n == nil {
			return bb.E(bb.Internal, "restart", l.Name, "a name without a node")
		}
		dir.AddChild(l.Name, n.EmbeddedInode(), true)
	}
	return nil
}

func (n *node) restore(s *Node, file func(fd int) *os.File) error {
	f := n.fsys
	n.view.Restore(s.Size, s.Generation)
	n.state.last = s.Last
	if s.Scratch != 0 {
		o, err := content.Restored(file(s.Scratch), s.ModTime)
		if err != nil {
			return bb.Wrap("restart", s.Name, err)
		}
		n.become(o)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.id != 0 {
		f.mu.files[n.id] = n
	}
	dir := f.carried.nodes[s.Dir]
	if dir == nil {
		dir = f.root // it was forgotten, as was each name that leads to it
	}
	n.putIn(dir, s.Name)
	if s.Unlinked {
		n.takeOut()
		n.unlinked = true
		f.mu.gone[n] = struct{}{}
	}
	return nil
}

// LookupNode returns a node of a restored state.
func (n *node) LookupNode(ctx context.Context, number uint64, _ *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	c := n.fsys.carried.nodes[number]
	if !inside(ctx) || c == nil {
		return nil, syscall.ESTALE
	}
	return c.EmbeddedInode(), fusefs.OK
}

// reopen opens a file that was open in the earlier process.
func (n *node) reopen(ctx context.Context, flags uint32) (*handle, error) {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if n.current() == nil {
		n.become(n.copied())
	}
	return n.opened(flags), nil
}

// Restored ends the restoration of a state. The kernel's names and attributes may be older than changes of others.
func (f *FS) Restored() {
	f.carried = carried{}
	f.tree.Below("")
}

// Ioctl notes an open directory for Save. Programs get ENOTTY.
func (n *node) Ioctl(ctx context.Context, h fusefs.FileHandle, _ uint32, arg uint64, _, _ []byte) (int32, syscall.Errno) {
	d, ok := h.(*directory)
	if !ok || !inside(ctx) {
		return 0, syscall.ENOTTY
	}
	if n.fsys.carried.listed == nil {
		n.fsys.carried.listed = map[uint32][]string{}
	}
	n.fsys.carried.listed[uint32(arg)] = d.names
	return 0, fusefs.OK
}
