package bbd

import (
	"context"
	"io"
	"os"
	"runtime"
	"slices"

	"forebay/bbd/access"
	"forebay/bbd/change"
	"forebay/bbd/fate"
	"forebay/bbd/handle"
	"forebay/bbd/origin"
	"forebay/bbd/peer"
	"forebay/bbd/readcache"
	"forebay/bbd/reassert"
	"forebay/bbd/rpc"
	"forebay/bbd/writeback"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// ownWho is whom sessions with peers act for that serve clients of this process's user.
func ownWho() peer.Who {
	return peer.Who{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), System: true}
}

// BreakFabric closes the one-sided connection of the session with a node, and leaves
// the session as it is.
func (d *Daemon) BreakFabric(ctx context.Context, node bb.NodeID) error {
	s, err := d.cluster.Session(ctx, node, ownWho())
	if err != nil {
		return err
	}
	conn, err := s.Fabric(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Discard requests a node to discard a file's newest generation, or all of it.
func (d *Daemon) Discard(ctx context.Context, node bb.NodeID, name, path string, all bool) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return err
	}
	m := &wire.Discard{Buffer: name, File: uint64(e.File), Generation: uint64(e.Generation)}
	if all {
		m.Generation = 0
	}
	return d.cluster.Ask(ctx, node, access.Daemon(), wire.Type_TYPE_DISCARD, m, nil)
}

// Promote makes this node the owner of a file whose second copy it has.
func (d *Daemon) Promote(ctx context.Context, name, path string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return err
	}
	return b.Replicas().Promote(ctx, &e, e.File, e.Generation)
}

// BeginNodeDrain is a drain of this node that does not end.
func (d *Daemon) BeginNodeDrain() { d.draining.Begin() }

// BreakSessions breaks the sessions with a node.
func (d *Daemon) BreakSessions(node bb.NodeID) { d.cluster.Drop(node) }

// OpenFiles returns how many files of a buffer are open for writing, and by how many.
func (d *Daemon) OpenFiles(name string) (files, writers int) {
	b := d.buffers.Served(name)
	for _, f := range b.Files().All() {
		files++
		writers += f.Writers()
	}
	return files, writers
}

// PeerHandles returns how many files sessions of other daemons have open here.
func (d *Daemon) PeerHandles() int { return d.heldByPeers(handle.Handles) }

// PeerLeases returns how many leases sessions of other daemons hold here.
func (d *Daemon) PeerLeases() int { return d.heldByPeers(handle.Leases) }

// heldByPeers returns how many resources of a kind sessions of other daemons have.
func (d *Daemon) heldByPeers(kind rpc.Kind) (n int) {
	for _, s := range d.server.Sessions() {
		if s.Peer() != "" {
			n += s.Held(kind)
		}
	}
	return n
}

// DropFiles drops all that this node has of a buffer's files.
func (d *Daemon) DropFiles(name string) {
	for f := range d.store.Files() {
		if f.Buffer == name {
			d.store.Drop(f.File)
		}
	}
}

// Recheck requests the owner of the file at a path, another node, to check the store, as after a flush
// that came late.
func (d *Daemon) Recheck(ctx context.Context, name, path string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return err
	}
	return d.cluster.Ask(ctx, b.Owner(&e), access.Daemon(), wire.Type_TYPE_RECHECK, &wire.Recheck{Buffer: name, Path: path}, nil)
}

// Registered returns the regions that are registered with libfabric.
func (d *Daemon) Registered() []bb.RegionID { return d.fabric.Registered() }

// Regions returns the regions of a tier.
func (d *Daemon) Regions(tier bb.Tier) (ids []bb.RegionID) {
	for _, r := range d.store.Regions() {
		if r.Tier == tier {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// ReadOn begins to read a file's object on the store, calls meanwhile, and then reads the file's
// extents evicted by then as the same reader. It returns how much that was.
func (d *Daemon) ReadOn(ctx context.Context, name, path string, meanwhile func()) (bytes int64, err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return 0, err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return 0, err
	}
	object := &origin.Object{Of: b.Sources(), Entry: &e}
	defer object.Close()
	read := func(from, to int64, want *uint64) error {
		return object.Read(ctx, []origin.Run{{From: from, To: to}}, func(_ context.Context, r origin.Run, from io.Reader) error {
			p := make([]byte, r.Size())
			if _, err := io.ReadFull(from, p); err != nil {
				return err
			}
			if want != nil && checksum.Sum(p) != *want {
				return bb.Checksum
			}
			return nil
		})
	}
	if err := read(0, 1000, nil); err != nil {
		return 0, err
	}
	meanwhile()
	now, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return 0, err
	}
	object.Entry = &now
	snap, err := d.store.Snapshot(now.File, now.Generation)
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	for _, x := range readcache.EvictedOf(snap.Extents(0, snap.Size(), 0)) {
		if x.FileOffset < 1000 {
			continue // the stream is past it
		}
		whole := x.FileOffset - x.Cut
		if err := read(whole, whole+x.WholeLength, &x.Checksum); err != nil {
			return bytes, err
		}
		bytes += x.WholeLength
	}
	return bytes, nil
}

// PauseFlushes keeps a buffer's flushes from beginning, until the returned function is called.
func (d *Daemon) PauseFlushes(name string) (resume func()) {
	d.flusher.Pause(name)
	return func() { d.flusher.Resume(name) }
}

// RecordFlush does the steps of a flush of a buffer's only dirty file until the namespace has
// recorded it. The flusher gets no result, as if the answer had been lost.
func (d *Daemon) RecordFlush(ctx context.Context, name string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	var (
		key flusher.Key
		at  bb.Place
	)
	for file, f := range b.Dirty().All() {
		key, at = flusher.Key{Buffer: name, File: file, Generation: f.Generation}, f.At
	}
	j, err := d.catalog().Begin(ctx, key)
	if err != nil {
		return err
	}
	defer j.Close()
	to, err := d.stores.Get(ctx, name)
	if err != nil {
		return err
	}
	o, err := to.Put(ctx, j.Path(), j.Source(), backing.PutOptions{})
	if err != nil {
		return err
	}
	_, err = b.Tree().Update(ctx, at.Dir, at.Name, func(e *bb.Entry) error {
		e.SetFlushed(bb.Flushed{Generation: key.Generation, ETag: o.ETag, Size: o.Size, Checksum: o.Checksum})
		return nil
	})
	return err
}

// SetAside sets a buffer aside as a start does that cannot read its namespace.
func (d *Daemon) SetAside(ctx context.Context, name string, why error) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	_, err = d.work.buffers.SetAside(ctx, b.Spec(), b, why)
	return err
}

// DestroyAside destroys a buffer that was set aside, as its owner's call does that found it in the list.
func (d *Daemon) DestroyAside(ctx context.Context, spec bb.Buffer) error {
	return d.aside.Destroy(ctx, &access.Caller{UID: spec.UID, GIDs: []uint32{spec.GID}}, &spec)
}

// Aside returns a buffer that was set aside.
func (d *Daemon) Aside(name string) (bb.Buffer, bool) {
	kept, is := d.aside.Find(name)
	return kept.Spec, is
}

// Destroy destroys a buffer without discarding anything, and calls meanwhile when it has
// found that it may be destroyed. An error of meanwhile is a reason not to.
func (d *Daemon) Destroy(ctx context.Context, name string, meanwhile func() error) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	return d.work.buffers.DestroyIf(ctx, b, func(ctx context.Context) error {
		if err := b.Saved(ctx); err != nil {
			return err
		}
		return meanwhile()
	})
}

// Missed returns how often a buffer was looked at, until the channel is closed, and a file
// that was open at the look before was neither open nor dirty. Nothing may be flushed.
func (d *Daemon) Missed(name string, until <-chan struct{}) (n int) {
	b := d.buffers.Served(name)
	var open []bb.FileID
	for {
		select {
		case <-until:
			return n
		default:
		}
		for _, file := range open {
			f := b.Files().Of(file)
			if _, dirty := b.Dirty().Of(file); f == nil && !dirty {
				n++
			}
		}
		open = b.Files().Begun()
		runtime.Gosched()
	}
}

// ChangesWaiting returns how many changes of a buffer wait for the end of a freeze.
func (d *Daemon) ChangesWaiting(name string) int {
	b := d.buffers.Served(name)
	if b == nil {
		return 0
	}
	return b.Gate().Waiting()
}

// RenamedBefore turns a file that has replaced a flushed one into the state of an older release,
// since its entry has no record of that, and a noted rename has. It returns the function that
// carries the rename out on the store, as after a start.
func (d *Daemon) RenamedBefore(ctx context.Context, name, path string) (carryOut func() (kept bool, ops []storeop.Op, err error), err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return nil, err
	}
	op := namespace.StoreOp{Op: namespace.OpRename, OldPath: "before.tmp", NewPath: path, File: e.File, Replaced: e.Replaced(), Revision: e.Revision}
	_, err = b.Tree().Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		now.SetBefore(bb.Flushed{}, now.Attempts())
		return nil
	})
	return func() (bool, []storeop.Op, error) {
		kept, err := b.Writeback().KeepReplaced(ctx, &op)
		return kept, writeback.StoreOps(&op, b.Spec().Codec), err
	}, err
}

// RemoveEntryAlone removes a file's entry as a removal does that is killed before the daemon drops
// the bytes.
func (d *Daemon) RemoveEntryAlone(ctx context.Context, name, path string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	dir, last, err := b.Tree().ResolveParent(ctx, path)
	if err == nil {
		_, err = b.Tree().Remove(ctx, dir, last, namespace.RemoveOptions{})
	}
	return err
}

// Reassert restores a buffer's entries from memory.
func (d *Daemon) Reassert(ctx context.Context, name string) (remade, aside []string, left int, err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, nil, 0, err
	}
	r, err := b.Reassertion().Reassert(ctx)
	return r.Remade, r.SetAside, len(r.Left), err
}

// AgeEntry lets an entry name an earlier generation, as a namespace does that was set back.
func (d *Daemon) AgeEntry(ctx context.Context, name, path string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	dir, last, err := b.Tree().ResolveParent(ctx, path)
	if err == nil {
		_, err = b.Tree().Update(ctx, dir, last, func(e *bb.Entry) error { e.Generation--; return nil })
	}
	return err
}

// Merge moves the entries of a directory to another one, where nothing is in their way.
func (d *Daemon) Merge(ctx context.Context, name, from, to string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	x, err := b.Tree().Resolve(ctx, from)
	if err != nil {
		return err
	}
	y, err := b.Tree().Resolve(ctx, to)
	if err != nil {
		return err
	}
	return change.Mover{Of: b.Changes}.Merge(ctx, x.Dir, y.Dir)
}

// Identified reports whether a file's identity in memory is that of its entry.
func (d *Daemon) Identified(ctx context.Context, name, path string) (bool, error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return false, err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return false, err
	}
	id, ok := d.store.IdentityOf(e.File)
	return ok && id.Dir == e.Parent && id.Name == e.Name, nil
}

// RecoverStale settles a buffer's memory as a start does, twice by one reading of the namespace.
// The second time is as after a repair whose answer was lost.
func (d *Daemon) RecoverStale(ctx context.Context, name string) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	inv := fate.NewInventory(reassert.HeldFiles(d.store)[name])
	if err := b.Reassertion().Scan(ctx, inv, func(*bb.Entry, bool) {}); err != nil {
		return err
	}
	for range 2 {
		if _, err := b.Reassertion().Recover(ctx, inv); err != nil {
			return err
		}
	}
	return nil
}

// ForgetQueue takes a file out of the flusher's queue, as a flush does that finds no entry.
func (d *Daemon) ForgetQueue(name, path string) {
	b, err := d.buffer(d.ctx, name)
	if err != nil {
		return
	}
	var keys []flusher.Key
	for f, x := range b.Dirty().All() {
		if x.At.Name == path {
			keys = append(keys, flusher.Key{Buffer: name, File: f, Generation: x.Generation})
		}
	}
	for _, k := range keys { // the flusher requests the buffer's policy, which needs its lock
		d.flusher.Forget(k)
	}
}

// SetEntryBack gives a file its former entry, as a namespace that has gone back does.
func (d *Daemon) SetEntryBack(ctx context.Context, buffer, path string, was bb.Entry) error {
	b := d.buffers.Served(buffer)
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return err
	}
	_, err = b.Tree().Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		was.Revision = now.Revision
		*now = was
		return nil
	})
	return err
}

// EntryOf returns a file's entry.
func (d *Daemon) EntryOf(ctx context.Context, buffer, path string) (bb.Entry, error) {
	return d.buffers.Served(buffer).Tree().Resolve(ctx, path)
}

// RequestBytes returns how much of the memory for requests a user has.
func (d *Daemon) RequestBytes(uid uint32) int64 {
	return d.server.RequestBytes(uid)
}

// SetRevision has the identity of a file name a revision.
func (d *Daemon) SetRevision(ctx context.Context, name, path string, revision uint64) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	e, err := b.Tree().Resolve(ctx, path)
	if err != nil {
		return err
	}
	id, _ := d.store.IdentityOf(e.File)
	id.Revision = revision
	return d.store.Identify(&id)
}

// RevisionOf returns the revision of an entry.
func (d *Daemon) RevisionOf(ctx context.Context, name, path string) (uint64, error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return 0, err
	}
	e, err := b.Tree().Resolve(ctx, path)
	return e.Revision, err
}
