// Package entries answers requests that describe, list, make and change entries, and describes them with facts of
// this daemon alone: the committed part of an open file, files in memory, reasons of failed flushes. It must never
// depend on the writing, reading or flushing of a file.
package entries

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// Stat describes the entry of a path. Only the owner of a file that is open for writing has the size of its committed
// content. While another node that is the owner may answer soon, by gossip, Stat waits for it, and then fails with
// bb.Unavailable. A file of a node that was forgotten is lost, or another node's by then.
func (v *Service) Stat(ctx context.Context, r call.Request, m *wire.PathRequest) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "stat", m.Buffer)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		e, err := b.p.Paths.Lookup(ctx, *r.Caller(), "stat", m.Path)
		if err != nil {
			return nil, err
		}
		if e.State() != bb.StateOpen || !b.o.Owners.OwnedElsewhere(&e) {
			answer := b.Describe(&e)
			b.p.MarkSteps(ctx, path.Dir(paths.Clean(m.Path)), answer)
			return answer, nil
		}
		if r.Caller().Relayed {
			return nil, owner.Changed("stat", b.address(m.Path))
		}
		answer, err := v.askOwner(within, b, r, m, &e)
		if err == nil || ctx.Err() != nil || !v.mayAnswer(b.o.Owners.Of(&e), err) {
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-within.Done():
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}
}

// Waits of a request for a file's owner.
const (
	patience     = 20 * time.Second // all
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// askOwner returns the owner's description of a file that is open for writing, or that of its second copy.
func (v *Service) askOwner(ctx context.Context, b *Buffer, r call.Request, m *wire.PathRequest, e *bb.Entry) (*wire.Entry, error) {
	node, answer := b.o.Owners.Of(e), new(wire.Entry)
	err := v.o.Cluster.Ask(ctx, node, *r.Caller(), wire.Type_TYPE_STAT, m, answer)
	switch kind := bb.KindOf(err); {
	case err == nil && bb.State(answer.State) == bb.StateOpen && (len(answer.Holders) == 0 || answer.Holders[0] != string(node)):
		return nil, owner.Changed("stat", b.address(m.Path)) // an older daemon that owns the file no more does not have its size
	case err == nil:
		return answer, nil
	case kind != bb.Unavailable && kind != bb.Cancelled:
		return nil, err
	case owner.Replica(e) != "" && b.p.ReadSize(ctx, e, m.Path) == nil:
		return wire.FromEntry(e), nil
	}
	return nil, (&bb.Error{
		Kind: bb.Unavailable, Op: "stat", Path: b.address(m.Path), Node: node,
		Err: fmt.Errorf("the file is open for writing, and its size is not known: node %s does not answer (%v)", node, err), // not %w: nothing was changed
	}).WithRemedy("see bbctl nodes; if the node will not return: bbctl node forget " + string(node))
}

// mayAnswer reports whether it is worth asking again about a file, after an error of its owner.
func (v *Service) mayAnswer(node bb.NodeID, err error) bool {
	switch bb.KindOf(err) {
	case bb.Busy, bb.NotFound: // the file was moved, closed or removed meanwhile
		return true
	case bb.Unavailable:
		return v.o.Cluster.Expected(node)
	}
	return false
}

// Describe makes the message of an entry, with facts of this daemon alone: the size
// of a file that is being written, whether a clean one is resident, why its flush
// failed.
func (b *Buffer) Describe(e *bb.Entry) *wire.Entry {
	m := wire.FromEntry(e)
	if b.o.Owners.OwnedElsewhere(e) {
		if e.State() == bb.StateOpen {
			m.Reason = fmt.Sprintf("open for writing at node %s: its size is known there alone, stat asks that node", b.o.Owners.Of(e))
		}
		return m // only its owner has more
	}
	switch e.State() {
	case bb.StateOpen:
		if size, err := b.o.Store.Size(e.File, e.Generation); err == nil {
			m.Size = size
		}
	case bb.StateClean:
		if e.Type == bb.TypeFile && e.Size > 0 && !b.resident(e) {
			m.State = uint32(bb.StateEvicted)
		}
	case bb.StateDirty:
		m.Reason = cmp.Or(b.p.Dirty.Reason(e.File), m.Reason)
	}
	return m
}

// List describes a page of the entries of a directory. It asks no other node: a file that is open for writing elsewhere has
// the size in the namespace, and a reason.
func (v *Service) List(ctx context.Context, r call.Request, m *wire.ListRequest) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "list", m.Buffer)
	if err != nil {
		return nil, err
	}
	limit := int(m.Limit)
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	entries, more, err := b.p.Paths.List(ctx, *r.Caller(), m.Path, m.After, limit)
	if err != nil {
		return nil, err
	}
	reply := &wire.ListReply{More: more}
	bytes := 0
	for i := range entries {
		m := b.Describe(&entries[i])
		if bytes += proto.Size(m) + entryOverhead; bytes > wire.MaxMessage && i > 0 {
			reply.More = true
			break
		}
		reply.Entries = append(reply.Entries, m)
	}
	b.p.MarkSteps(ctx, paths.Clean(m.Path), reply.Entries...)
	return reply, nil
}

// maxPage is how many entries a page has at most. It has fewer where their names are long, or the
// reasons why their flush failed, since it has to fit a message.
const maxPage = 2000

// entryOverhead is an entry's size in a list of them beyond its own size, and
// its share of the rest of the message.
const entryOverhead = 16

// Mkdir makes a directory.
func (v *Service) Mkdir(ctx context.Context, r call.Request, m *wire.Mkdir) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "mkdir", m.Buffer)
	if err != nil {
		return nil, err
	}
	if _, err := bb.SplitPath(m.Path); err != nil {
		return nil, bb.Wrap("mkdir", b.address(m.Path), err)
	}
	make := b.p.Paths.Mkdir
	if m.Parents {
		make = b.p.Paths.MkdirAll
	}
	e, err := make(ctx, *r.Caller(), m.Path, fs.FileMode(m.Mode))
	if err != nil {
		return nil, err
	}
	return wire.FromEntry(&e), nil
}

// Mknod makes a symbolic link, a FIFO or a socket.
func (v *Service) Mknod(ctx context.Context, r call.Request, m *wire.Mknod) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "mknod", m.Buffer)
	if err != nil {
		return nil, err
	}
	if _, err := bb.SplitPath(m.Path); err != nil {
		return nil, bb.Wrap("mknod", b.address(m.Path), err)
	}
	e := bb.Entry{Type: bb.EntryType(min(m.Type, math.MaxUint8)), Extras: bb.Extras{Target: string(m.Target)}, Mode: fs.FileMode(m.Mode)}
	if !e.Type.Special() {
		return nil, bb.E(bb.Invalid, "mknod", b.address(m.Path), e.Type.Noun()+" is not made with mknod")
	}
	if v.o.Cluster != nil {
		if err := v.o.Cluster.AllSupport("symbolic links, FIFOs and sockets", wire.VersionSpecial); err != nil {
			return nil, err
		}
	}
	if e, err = b.p.Paths.Mknod(ctx, *r.Caller(), m.Path, e, b.p.Make); err != nil {
		return nil, err
	}
	if err := b.p.Flushed(ctx, *r.Caller(), "mknod", paths.Clean(m.Path)); err != nil {
		return nil, err
	}
	return b.Describe(&e), nil
}

// SetAttr changes attributes of an entry.
func (v *Service) SetAttr(ctx context.Context, r call.Request, m *wire.SetAttr) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "setattr", m.Buffer)
	if err != nil {
		return nil, err
	}
	e, err := b.p.Paths.SetAttr(ctx, *r.Caller(), m.Path, attributes(m))
	if err != nil {
		return nil, err
	}
	b.p.Changed(m.Path)
	return b.Describe(&e), nil
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

// Lost lists the files of a buffer that are lost or set aside.
func (v *Service) Lost(ctx context.Context, r call.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "lost", m.Name)
	if err != nil {
		return nil, err
	}
	aside, err := b.p.AsideDir(ctx)
	if err != nil {
		return nil, bb.Wrap("lost", b.address(""), err)
	}
	answer, bytes := &wire.Entries{}, 0
	err = b.p.Names.ScanAll(ctx, func(e bb.Entry) error {
		if !e.Lost && (e.IsDir() || e.Parent != aside) {
			return nil
		}
		path, err := b.pathAt(ctx, e.Place())
		if err != nil {
			return nil // removed meanwhile
		}
		m := b.Describe(&e)
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

// resident reports whether this node has all of a file's bytes.
func (b *Buffer) resident(e *bb.Entry) bool {
	snap, err := b.o.Store.Snapshot(e.File, e.Generation)
	if err != nil {
		return false
	}
	defer snap.Close()
	for _, x := range snap.Extents(0, snap.Size(), 0) {
		if x.State == store.Evicted {
			return false
		}
	}
	return true
}
