package tables

import (
	"context"
	"maps"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// tree is a directory or file of a file system whose inodes have numbers of their own. Any name leads to the file 7.
type tree struct {
	fs.Inode
	forgotten map[uint64]int
}

const file = 7

func (n *tree) child(ctx context.Context) *fs.Inode {
	return n.NewInode(ctx, &tree{forgotten: n.forgotten}, fs.StableAttr{Ino: file})
}

func (n *tree) Lookup(ctx context.Context, _ string, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.child(ctx), 0
}

func (n *tree) LookupNode(ctx context.Context, _ uint64, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.child(ctx), 0
}

func (n *tree) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return n, 0, 0
}

func (n *tree) OnForget() { n.forgotten[n.StableAttr().Ino]++ }

func newTree() (*Tables, map[uint64]int) {
	root := &tree{forgotten: map[uint64]int{}}
	return New(fs.NewNodeFS(root, &fs.Options{ExternalNodeID: true})), root.forgotten
}

func lookup(t *testing.T, tables *Tables) {
	t.Helper()
	var out fuse.EntryOut
	if status := tables.Lookup(make(chan struct{}), &fuse.InHeader{NodeId: Root}, "name", &out); status != fuse.OK || out.NodeId != file {
		t.Fatalf("lookup: %v, node %d", status, out.NodeId)
	}
}

func open(t *testing.T, tables *Tables) uint64 {
	t.Helper()
	var out fuse.OpenOut
	if status := tables.Open(make(chan struct{}), &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: file}}, &out); status != fuse.OK {
		t.Fatal(status)
	}
	return out.Fh
}

// TestRestore restores lookups and open files with a gap between their numbers. The node is forgotten with the last lookup
// that the kernel has counted, in whichever process.
func TestRestore(t *testing.T) {
	earlier, _ := newTree()
	for range 5 {
		lookup(t, earlier)
	}
	earlier.Forget(file, 1)
	var numbers []uint64
	for range 3 {
		numbers = append(numbers, open(t, earlier))
	}
	earlier.Release(nil, &fuse.ReleaseIn{InHeader: fuse.InHeader{NodeId: file}, Fh: numbers[1]})
	state := earlier.State()

	tables, forgotten := newTree()
	if err := tables.Restore(state); err != nil {
		t.Fatal(err)
	}
	if got := tables.State(); !maps.Equal(got.Lookups, state.Lookups) || !maps.Equal(got.Handles, state.Handles) {
		t.Errorf("restored: %v, not %v", got, state)
	}
	if got := open(t, tables); got != numbers[1] {
		t.Errorf("the next open file has the number %d, not %d, which is free", got, numbers[1])
	}
	for _, number := range numbers {
		tables.Release(nil, &fuse.ReleaseIn{InHeader: fuse.InHeader{NodeId: file}, Fh: number})
	}
	lookup(t, tables)
	tables.Forget(file, 4)
	if forgotten[file] != 0 {
		t.Error("a node is forgotten before its last lookup")
	}
	tables.Forget(file, 1)
	if forgotten[file] != 1 {
		t.Errorf("after the last lookup, the node is forgotten %d times", forgotten[file])
	}
	if left := tables.State(); len(left.Lookups) != 0 || len(left.Handles) != 0 {
		t.Errorf("left: %v", left)
	}
}
