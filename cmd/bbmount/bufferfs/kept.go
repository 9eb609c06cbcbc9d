package bufferfs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/attrcache"
)

// times sets how long the kernel keeps an answer with an entry. Bytes that are not committed change without events.
func (n *node) times(e *client.Entry, at attrcache.Seen, out *fuse.EntryOut) {
	attr := n.fsys.keep(e, at)
	if n.unsaved() != nil {
		attr = attrcache.Short
	}
	out.SetEntryTimeout(n.fsys.kept.Name(e, at))
	out.SetAttrTimeout(n.fsys.sharing.Keep(attr))
}

// known returns the entry of a node for its attributes, and how long the kernel may keep them.
func (n *node) known(ctx context.Context) (client.Entry, time.Duration, error) {
	f := n.fsys
	p, err := f.pathOf(n)
	if err != nil || n.isUnlinked() {
		e, err := n.stat(ctx)
		return e, attrcache.Short, err
	}
	if e, left, ok := f.kept.Get(p); ok && e.File == n.id && e.IsDir() == n.IsDir() {
		return e, left, nil
	}
	at := f.kept.At(p)
	e, err := n.stat(ctx)
	if err != nil || n.unsaved() != nil {
		return e, attrcache.Short, err
	}
	return e, f.keep(&e, at), nil
}

// keep returns how long the kernel may keep attributes. It drops a directory's with each entry that comes or goes. So these
// are kept here as well.
func (f *FS) keep(e *client.Entry, at attrcache.Seen) time.Duration {
	if e.IsDir() {
		f.kept.Keep(e, at)
	}
	return f.kept.Attributes(e, at)
}

// Writing reports whether uncommitted bytes make the attributes (kernel.Tree).
func (n *node) Writing() bool { return n.unsaved() != nil }

// Changes passes changes of others on to the kernel until ctx ends.
func (f *FS) Changes(ctx context.Context, watch attrcache.Watch) {
	f.kept.Run(ctx, watch, f.tree)
	f.tree.Wait()
}

// statSoon returns the daemon's entry for the kernel's tree, whose other names wait for it. A name that is dropped in vain is
// looked up again.
func (f *FS) statSoon(ctx context.Context, p string) (client.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return f.b.Stat(ctx, p)
}
