package bbd

import (
	"cmp"
	"context"
	"io/fs"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

const permissionBits = fs.FileMode(0o777)

func (d *Daemon) stat(ctx context.Context, r *rpc.Request, m *wire.PathRequest) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "stat", m.Buffer)
	if err != nil {
		return nil, err
	}
	e, err := b.lookup(ctx, *r.Caller(), "stat", m.Path)
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
	entries, more, err := b.list(ctx, *r.Caller(), m.Path, m.After, limit)
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

// list returns a page of a directory. A page that is the first one shows all of a
// transaction or nothing: one that was decided meanwhile is looked for again.
func (b *buffer) list(ctx context.Context, c access.Caller, path, after string, limit int) (entries []bb.Entry, more bool, err error) {
	const op = "list"
	for range maxMoves {
		decisions := b.ns.KnownDecisions()
		e, v, err := b.look(ctx, c, op, path)
		switch {
		case err != nil:
			return nil, false, err
		case !e.IsDir():
			return nil, false, bb.E(bb.NotDirectory, op, b.address(path), "it is a file")
		case !c.Permits(e.UID, e.GID, e.Mode, access.Read):
			return nil, false, access.Denied(op, b.address(path), "read the directory")
		}
		entries, more, err = b.ns.ListUnion(ctx, v, after, limit)
		if bb.KindOf(err) == bb.NotFound && !v.Plain() {
			continue // it was folded meanwhile
		}
		if err != nil {
			return nil, false, bb.Wrap(op, b.address(path), err)
		}
		if after != "" {
			break
		}
		now, err := b.ns.Decisions(ctx)
		if err != nil {
			return nil, false, bb.Wrap(op, b.address(path), err)
		}
		if now == decisions {
			break
		}
	}
	return entries, more, nil
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
	make := b.mkdir
	if m.Parents {
		make = b.mkdirs
	}
	e, err := make(ctx, *r.Caller(), m.Path, m.Mode)
	if err != nil {
		return nil, err
	}
	return wire.FromEntry(&e), nil
}

// mkdirs creates a directory and those above it. One that is there already is no error.
func (b *buffer) mkdirs(ctx context.Context, c access.Caller, path string, mode uint32) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, bb.Wrap("mkdir", b.address(path), err)
	}
	for i := 1; i < len(names); i++ {
		_, err := b.mkdir(ctx, c, join(names[:i]), mode)
		if err != nil && bb.KindOf(err) != bb.Exists {
			return bb.Entry{}, partly(err)
		}
	}
	e, err := b.mkdir(ctx, c, path, mode)
	if bb.KindOf(err) == bb.Exists {
		e, err = b.lookup(ctx, c, "mkdir", path)
		if err == nil && !e.IsDir() {
			err = bb.E(bb.Exists, "mkdir", b.address(path), "a file has this name")
		}
	}
	return e, partly(err)
}

func (b *buffer) mkdir(ctx context.Context, c access.Caller, path string, mode uint32) (bb.Entry, error) {
	dir, name, err := b.parent(ctx, c, "mkdir", path)
	if err != nil {
		if names, _ := bb.SplitPath(path); len(names) == 0 {
			return bb.Entry{}, bb.E(bb.Exists, "mkdir", b.address(path), "the root directory exists")
		}
		return bb.Entry{}, err
	}
	if _, err := b.ns.Lookup(ctx, dir.id, name); err == nil {
		return bb.Entry{}, bb.E(bb.Exists, "mkdir", b.address(path), "the name is taken")
	}
	if err := b.mayMakeHidden(ctx, "mkdir", path); err != nil {
		return bb.Entry{}, err
	}
	if !c.Permits(dir.uid, dir.gid, dir.mode, access.Write) {
		return bb.Entry{}, access.Denied("mkdir", b.address(path), "write the directory")
	}
	e, err := b.ns.Mkdir(ctx, dir.id, name, namespace.Owner{UID: c.UID, GID: c.GIDs[0], Mode: fs.FileMode(mode) & permissionBits})
	return e, bb.Wrap("mkdir", b.address(path), err)
}

func (d *Daemon) setAttr(ctx context.Context, r *rpc.Request, m *wire.SetAttr) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "setattr", m.Buffer)
	if err != nil {
		return nil, err
	}
	dir, name, err := b.parent(ctx, *r.Caller(), "setattr", m.Path)
	if err == nil {
		err = b.mayChangeHidden("setattr", m.Path)
	}
	if err != nil {
		return nil, err
	}
	e, err := b.ns.Lookup(ctx, dir.id, name)
	if err != nil {
		return nil, bb.Wrap("setattr", b.address(m.Path), err)
	}
	if !r.Caller().Owns(e.UID) {
		return nil, access.Denied("setattr", b.address(m.Path), "change another user's file")
	}
	if m.Uid != nil && *m.Uid != e.UID && !r.Caller().System {
		return nil, access.Denied("setattr", b.address(m.Path), "give a file away")
	}
	if m.Gid != nil && *m.Gid != e.GID && !r.Caller().System && !slices.Contains(r.Caller().GIDs, *m.Gid) {
		return nil, access.Denied("setattr", b.address(m.Path), "give a file to a group that is not the user's")
	}
	e, err = b.ns.SetAttr(ctx, dir.id, name, attributes(m))
	if err != nil {
		return nil, bb.Wrap("setattr", b.address(m.Path), err)
	}
	return b.describe(&e), nil
}

func attributes(m *wire.SetAttr) namespace.Attr {
	var a namespace.Attr
	if m.Mode != nil {
		mode := fs.FileMode(*m.Mode) & permissionBits
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
