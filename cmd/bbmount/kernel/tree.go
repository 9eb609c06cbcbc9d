// Package kernel has what the kernel keeps of a mount: names, attributes, sizes and pages. It drops what others have
// changed. It must never depend on the content of a file.
package kernel

import (
	"context"
	"path"
	"strings"

	fusefs "github.com/hanwen/go-fuse/v2/fs"

	"forebay/client"
)

// Tree are the kernel's names, of which changes of others are dropped. Its methods do not wait for that: the kernel drops a
// name when no look-up in its directory waits for an answer, which may last while another node's daemon is away.
type Tree struct {
	root  *fusefs.Inode
	stat  func(ctx context.Context, path string) (client.Entry, error)
	lanes *lanes
}

// NewTree returns the names below a root. Stat returns the daemon's entry of a path. The other names of its directory wait for it.
func NewTree(root *fusefs.Inode, stat func(ctx context.Context, path string) (client.Entry, error)) *Tree {
	return &Tree{root, stat, newLanes()}
}

// Wait returns when all is dropped. No other method is called meanwhile.
func (t *Tree) Wait() { t.lanes.wait() }

// Steps about a name.
const (
	check kind = iota // drops it if it leads elsewhere
	leave             // the same, and what is below it if it is another directory's
	drop
)

// writing is a node whose uncommitted bytes make its attributes.
type writing interface{ Writing() bool }

// find returns the inode at a path, nil if the kernel has none.
func (t *Tree) find(at string) *fusefs.Inode {
	in := t.root
	for name := range strings.SplitSeq(at, "/") {
		if in != nil && name != "" && name != "." {
			in = in.GetChild(name)
		}
	}
	return in
}

// attributes is the offset that stands for no bytes in the kernel's notification.
const attributes = -1

// DropAttributes has the kernel request the attributes of an inode again. It waits for no page and no lock of a file, so
// that a request about the inode may call it.
func DropAttributes(in *fusefs.Inode) {
	in.NotifyContent(attributes, 0) // an inode that the kernel has forgotten is no error
}

// DropPages has the kernel drop its pages of n bytes at an offset. It waits for readers of these pages, and for writers of
// mappings, so that their requests must not wait for the caller.
func DropPages(in *fusefs.Inode, off, n int64) {
	in.NotifyContent(off, n) // an inode that the kernel has forgotten is no error
}

// Changed drops the attributes at a path.
func (t *Tree) Changed(path string) {
	in := t.find(path)
	if in == nil {
		return
	}
	if w, ok := in.Operations().(writing); ok && w.Writing() {
		return // an event of this mount's own commit comes before its answer
	}
	DropAttributes(in)
}

// Moved drops the attributes at a path, and the name if it leads elsewhere. The name of a directory is dropped only if
// it leads to none, since that unmounts what is mounted below it.
func (t *Tree) Moved(ctx context.Context, at string) {
	t.later(at, check, func() { t.check(ctx, at) })
}

// Left is Moved of a name that something was moved away from. If a directory has the name still, both were exchanged, and the
// kernel's names below it are another directory's.
func (t *Tree) Left(ctx context.Context, at string) {
	t.later(at, leave, func() {
		t.check(ctx, at)
		if in := t.find(at); in == nil || !in.IsDir() {
			return
		}
		if e, err := t.stat(ctx, at); err != nil || e.IsDir() {
			t.Below(at)
		}
	})
}

// later drops the attributes at a path that the kernel has, and takes a step about its name.
func (t *Tree) later(at string, k kind, do func()) {
	if in := t.find(at); in != nil {
		DropAttributes(in)
		t.lanes.add(t.find(path.Dir(at)), about{k, path.Base(at)}, do)
	}
}

// check drops the name at a path if it leads elsewhere.
func (t *Tree) check(ctx context.Context, at string) {
	in := t.find(at)
	if in == nil {
		return
	}
	e, err := t.stat(ctx, at)
	leads := client.KindOf(err) != client.ErrNotFound && (err != nil || e.IsDir() == in.IsDir())
	if !leads || !in.IsDir() && (err != nil || uint64(e.File) != in.StableAttr().Ino) {
		dropName(t.find(path.Dir(at)), path.Base(at))
	}
}

// Below drops the attributes below a path, "" for all, and the names of files.
func (t *Tree) Below(at string) {
	left := []*fusefs.Inode{t.find(at)}
	if left[0] != nil && !left[0].IsDir() {
		t.drop(t.find(path.Dir(at)), path.Base(at))
	}
	for ; len(left) > 0 && left[0] != nil; left = left[1:] {
		in := left[0]
		DropAttributes(in)
		for name, c := range in.Children() {
			if !c.IsDir() {
				t.drop(in, name)
			}
			left = append(left, c)
		}
	}
}

func (t *Tree) drop(dir *fusefs.Inode, name string) {
	t.lanes.add(dir, about{drop, name}, func() { dropName(dir, name) })
}

// dropName drops one name of an inode, which has a second one if it was found there after a rename by others. It waits for
// look-ups in the directory.
func dropName(dir *fusefs.Inode, name string) {
	if dir != nil {
		dir.NotifyEntry(name) // a name that the kernel has forgotten is no error
	}
}
