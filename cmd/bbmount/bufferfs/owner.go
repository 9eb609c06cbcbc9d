package bufferfs

import (
	"context"
	"syscall"

	"forebay/client"
	"forebay/cmd/bbmount/content"
	"forebay/cmd/bbmount/opened"
)

// owner is a node for its content (content.Owner).
type owner struct{ n *node }

// copied returns the content of a file that is not open.
func (n *node) copied() *content.Copied {
	return content.Copy(owner{n}, &n.view, n.fsys.sharing)
}

// Open implements content.Owner.
func (o owner) Open(ctx context.Context, how client.OpenOptions) (content.File, client.Entry, error) {
	f, e, err := o.n.openFile(ctx, how)
	if err != nil {
		return nil, e, err
	}
	return f, e, nil
}

// openFile opens the file that the node is. While another node's daemon is waited for, names may change.
func (n *node) openFile(ctx context.Context, o client.OpenOptions) (file *opened.File, e client.Entry, err error) {
	err = n.fsys.peers.Until(ctx, func() (err error) {
		file, e, err = n.openNow(ctx, o)
		return err
	})
	return file, e, err
}

func (n *node) openNow(ctx context.Context, o client.OpenOptions) (*opened.File, client.Entry, error) {
	f := n.fsys
	p, unshare, err := f.share(ctx, n, "")
	if err != nil {
		return nil, client.Entry{}, err
	}
	defer unshare()
	file, err := opened.Open(f.ctx, ctx, f.b, p, o)
	if client.KindOf(err) == client.ErrNotFound {
		err = syscall.ESTALE // another client has removed it
	}
	if err != nil {
		return nil, client.Entry{}, err
	}
	e, err := file.Entry()
	if err == nil && e.File != n.id {
		err = syscall.ESTALE
	}
	if err != nil {
		file.Abort()
		return nil, client.Entry{}, err
	}
	return file, e, nil
}

// Stat implements content.Owner.
func (o owner) Stat(ctx context.Context) (client.Entry, error) { return o.n.stat(ctx) }

// Until implements content.Owner.
func (o owner) Until(ctx context.Context, do func() error) error {
	return o.n.fsys.peers.Until(ctx, do)
}

// Moved implements content.Owner.
func (o owner) Moved() bool { return o.n.moved.Swap(false) }

// Closing implements content.Owner. The entry of a file that this mount has made and closed, for the first time, is kept. A
// kept one of another file is older than the bytes that were committed, and their event may come late.
func (o owner) Closing() func(u *content.Unsaved, err error) {
	n := o.n
	p, _ := n.fsys.pathOf(n) // none of a file without a name, whose entry nothing asks for
	at := n.fsys.kept.At(p)
	return func(u *content.Unsaved, err error) {
		switch e, ok := n.made.Take(); {
		case at.Path == "":
		case !ok || err != nil:
			n.fsys.kept.Drop(at.Path)
		default:
			e.Size, e.ModTime, e.State = u.Size, u.ModTime, client.StateDirty
			n.fsys.kept.Committed(&e, at)
		}
	}
}

// Closed implements content.Owner.
func (o owner) Closed() { o.n.fsys.changes.Add(1) }
