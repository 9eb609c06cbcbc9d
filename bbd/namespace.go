package bbd

import (
	"cmp"
	"context"
	"io/fs"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/paths"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

func (d *Daemon) stat(ctx context.Context, r *rpc.Request, m *wire.PathRequest) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "stat", m.Buffer)
	if err != nil {
		return nil, err
	}
	e, err := b.paths.Lookup(ctx, *r.Caller(), "stat", m.Path)
	if err != nil {
		return nil, err
	}
	if e.State() == bb.StateOpen && b.owners.Foreign(&e) && !r.Caller().Relayed {
		// Only its home knows how much of it is committed.
		var now wire.Entry
		if b.d.cluster.Ask(ctx, b.owners.Of(&e), *r.Caller(), wire.Type_TYPE_STAT, m, &now) == nil {
			return &now, nil
		}
	}
	return b.describe(&e), nil
}

// describe makes the message of an entry, with what only this daemon knows: the size
// of a file that is being written, whether a clean one is resident, why its flush
// failed.
func (b *buffer) describe(e *bb.Entry) *wire.Entry {
	m := wire.FromEntry(e)
	if b.owners.Foreign(e) {
		return m // only its home knows more
	}
	switch e.State() {
	case bb.StateOpen:
		if size, err := b.d.store.Size(e.File, e.Generation); err == nil {
			m.Size = size
		}
	case bb.StateClean:
		if e.Type == bb.TypeFile && e.Size > 0 && !b.d.resident(e) {
			m.State = uint32(bb.StateEvicted)
		}
	case bb.StateDirty:
		m.Reason = cmp.Or(b.dirty.Reason(e.File), m.Reason)
	}
	return m
}

func (d *Daemon) list(ctx context.Context, r *rpc.Request, m *wire.ListRequest) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "list", m.Buffer)
	if err != nil {
		return nil, err
	}
	limit := int(m.Limit)
	if limit <= 0 || limit > maxListPage {
		limit = maxListPage
	}
	entries, more, err := b.paths.List(ctx, *r.Caller(), m.Path, m.After, limit)
	if err != nil {
		return nil, err
	}
	reply := &wire.ListReply{More: more}
	bytes := 0
	for i := range entries {
		m := b.describe(&entries[i])
		if bytes += proto.Size(m) + entryOverhead; bytes > wire.MaxMessage && i > 0 {
			reply.More = true
			break
		}
		reply.Entries = append(reply.Entries, m)
	}
	return reply, nil
}

// maxListPage is how many entries a page has at most. It has fewer where their names
// are long, or the reasons why their flush failed: it has to fit a message.
const maxListPage = 2000

// entryOverhead is what an entry takes in a list of them beyond its own size, and
// its share of what else the message holds.
const entryOverhead = 16

func (d *Daemon) mkdir(ctx context.Context, r *rpc.Request, m *wire.Mkdir) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "mkdir", m.Buffer)
	if err != nil {
		return nil, err
	}
	if _, err := bb.SplitPath(m.Path); err != nil {
		return nil, bb.Wrap("mkdir", b.address(m.Path), err)
	}
	make := b.paths.Mkdir
	if m.Parents {
		make = b.paths.MkdirAll
	}
	e, err := make(ctx, *r.Caller(), m.Path, fs.FileMode(m.Mode))
	if err != nil {
		return nil, err
	}
	return wire.FromEntry(&e), nil
}

func (d *Daemon) setAttr(ctx context.Context, r *rpc.Request, m *wire.SetAttr) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "setattr", m.Buffer)
	if err != nil {
		return nil, err
	}
	e, err := b.paths.SetAttr(ctx, *r.Caller(), m.Path, attributes(m))
	if err != nil {
		return nil, err
	}
	return b.describe(&e), nil
}

func attributes(m *wire.SetAttr) namespace.Attr {
	var a namespace.Attr
	if m.Mode != nil {
		mode := fs.FileMode(*m.Mode) & paths.PermissionBits
		a.Mode = &mode
	}
	a.UID, a.GID = m.Uid, m.Gid
	if m.MtimeNs != nil {
		t := time.Unix(0, *m.MtimeNs)
		a.MTime = &t
	}
	return a
}

// lost lists the files of a buffer that are lost or set aside.
func (d *Daemon) lost(ctx context.Context, r *rpc.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "lost", m.Name)
	if err != nil {
		return nil, err
	}
	aside, err := b.reassertion.AsideDir(ctx)
	if err != nil {
		return nil, bb.Wrap("lost", b.address(""), err)
	}
	answer, bytes := &wire.Entries{}, 0
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if !e.Lost && (e.IsDir() || e.Parent != aside) {
			return nil
		}
		path, err := b.pathAt(ctx, e.Place())
		if err != nil {
			return nil // removed meanwhile
		}
		m := b.describe(&e)
		m.Path = path
		if bytes += proto.Size(m) + entryOverhead; bytes > wire.MaxMessage {
			if err := r.More(answer, nil); err != nil {
				return err
			}
			answer, bytes = &wire.Entries{}, proto.Size(m)+entryOverhead
		}
		answer.Entries = append(answer.Entries, m)
		return nil
	})
	if err != nil {
		return nil, bb.Wrap("lost", b.address(""), err)
	}
	return answer, nil
}
