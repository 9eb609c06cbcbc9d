package bbd

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/backings"
	"forebay/bbd/bufferspec"
	"forebay/bbd/drain"
	"forebay/bbd/freeze"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// buffer finds a buffer that this daemon has taken up.
func (d *Daemon) buffer(ctx context.Context, name string) (*buffer, error) {
	if err := bb.CheckBufferName(name); err != nil {
		return nil, err
	}
	b := d.served(name)
	if kept, is := d.aside.Find(name); is && b == nil {
		return nil, kept.Err
	}
	if b == nil && d.cluster != nil {
		return d.lookUpBuffer(ctx, name)
	}
	if b == nil {
		return nil, bb.E(bb.NotFound, "buffer", name, "there is no such buffer").WithRemedy("see bbctl buffer list")
	}
	return b, nil
}

func (d *Daemon) bufferCreate(ctx context.Context, r *rpc.Request, m *wire.Buffer) (proto.Message, error) {
	spec := m.AsBuffer()
	c := *r.Caller()
	if !c.System || spec.UID == 0 && spec.GID == 0 {
		spec.UID, spec.GID = c.UID, c.GIDs[0]
	}
	bufferspec.Complete(&spec, m, time.Now())
	b, held, err := d.createBuffer(ctx, c, spec, bb.MaxFound+1)
	if err != nil {
		return nil, bb.Wrap("buffer create", bb.Address{Buffer: spec.Name}.String(), err)
	}
	spec = b.Spec()
	spec.Found, spec.FoundTotal = held.Name, held.Files
	return wire.FromBuffer(&spec), nil
}

// createBuffer checks everything that can be wrong before anything is changed. It returns too what
// the store holds already, counted to count.
func (d *Daemon) createBuffer(ctx context.Context, c access.Caller, spec bb.Buffer, count int) (b *buffer, held backings.Contents, err error) {
	if err := bufferspec.Check(&spec); err != nil {
		return nil, held, err
	}
	if !d.hasDisk() {
		if err := bufferspec.CheckWithoutDisk(spec.Tiers); err != nil {
			return nil, held, err
		}
	}
	if spec.Replicas > 1 && d.cluster == nil {
		return nil, held, bb.E(bb.Unsupported, "replicas", fmt.Sprint(spec.Replicas), "this daemon is alone: there is no second node")
	}
	if spec.Replicas > 1 {
		if err := d.cluster.AllSupport("second copies", wire.VersionReplicas); err != nil {
			return nil, held, err
		}
	}
	if spec.BackingID, held, err = d.checkBacking(ctx, c, spec, count); err != nil {
		return nil, held, err
	}
	shared := spec.Shared
	spec.Shared = false // of the request alone
	if err := d.checkOverlap(ctx, c, &spec, shared); err != nil {
		return nil, held, err
	}
	unlock, err := d.buffers.changing.Lock(ctx, spec.Name)
	if err != nil {
		return nil, held, bb.Wrap("buffer create", spec.Name, err)
	}
	defer unlock()
	ctx = d.ctx // carried through: a buffer that exists must be taken up
	made, err := d.meta.CreateBuffer(ctx, spec)
	if err != nil {
		return nil, held, maybeMade(err)
	}
	if err := d.withdrawOverlap(ctx, c, &made, shared); err != nil {
		return nil, held, err
	}
	b, err = d.takeUp(ctx, made)
	if err != nil {
		return nil, held, bb.MaybeDone(err)
	}
	d.emit(bb.Event{Kind: bb.EventCreated, Buffer: spec.Name})
	return b, held, nil
}

// maybeMade returns the namespace's error of a buffer that was to be made. The buffer may be
// there, unless the error is a refusal.
func maybeMade(err error) error {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Internal:
		return bb.MaybeDone(err)
	}
	return err
}

// hasDisk reports whether this daemon or another one of the cluster has a disk tier.
func (d *Daemon) hasDisk() bool {
	return d.cfg.Store.DiskDir != "" || d.cluster != nil && slices.ContainsFunc(d.cluster.Members(), func(m gossip.Member) bool { return m.Disk.Capacity > 0 })
}

// checkBacking finds out now what would otherwise fail at the first flush. A daemon
// that runs as root writes where the buffer's owner may, not where root may. It returns which
// directory the backing is now, and what it holds. One that does not exist is refused, not made: most often
// it is one whose file system is not mounted.
func (d *Daemon) checkBacking(ctx context.Context, c access.Caller, spec bb.Buffer, count int) (id string, held backings.Contents, err error) {
	if spec.Backing == "" {
		return "", held, nil
	}
	where, err := bb.ParseBacking(spec.Backing)
	if err != nil {
		return "", held, err
	}
	if where.IsDirectory() && d.inside(where.Path) {
		return "", held, bb.E(bb.Invalid, "backing", spec.Backing, "lies in the daemon's own folder").WithRemedy("choose another directory")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backings.Patience, backings.NotAnswered(spec.Backing))
	defer cancel()
	id, held, err = d.stores.Probe(ctx, c, spec, where, count)
	return id, held, backings.Answered(ctx, err)
}

// inside reports whether a path is, is in, or holds one of the daemon's own folders.
func (d *Daemon) inside(p string) bool {
	for _, own := range []string{d.cfg.StateDir, d.cfg.Store.ShmDir, d.cfg.Store.DiskDir} {
		if own != "" && bb.Overlaps(path.Clean(p), path.Clean(own)) {
			return true
		}
	}
	return false
}

func (d *Daemon) bufferGet(ctx context.Context, r *rpc.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "buffer show", m.Name)
	if err != nil {
		return nil, err
	}
	spec := b.Spec()
	return wire.FromBuffer(&spec), nil
}

func (d *Daemon) bufferList(ctx context.Context, r *rpc.Request, _ *wire.Empty) (proto.Message, error) {
	specs, err := d.bufferSpecs(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wire.Buffers{}
	for _, spec := range specs {
		if tokenFits(r.Session(), &spec) && r.Caller().Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			answer.Buffers = append(answer.Buffers, wire.FromBuffer(&spec))
		}
	}
	return answer, nil
}

// bufferSpecs returns all buffers there are, in order of their names.
func (d *Daemon) bufferSpecs(ctx context.Context) ([]bb.Buffer, error) {
	if d.cluster != nil {
		specs, err := d.meta.Buffers(ctx)
		slices.SortFunc(specs, func(x, y bb.Buffer) int { return strings.Compare(x.Name, y.Name) })
		return specs, err
	}
	var specs []bb.Buffer
	for _, b := range d.allBuffers() {
		specs = append(specs, b.Spec())
	}
	for _, b := range d.aside.Buffers() {
		specs = append(specs, b.Spec)
	}
	slices.SortFunc(specs, func(x, y bb.Buffer) int { return strings.Compare(x.Name, y.Name) })
	return specs, nil
}

// allBuffers returns the buffers that this daemon has taken up, in order of their names.
func (d *Daemon) allBuffers() []*buffer {
	d.buffers.Lock()
	defer d.buffers.Unlock()
	all := make([]*buffer, 0, len(d.buffers.byName))
	for _, b := range d.buffers.byName {
		all = append(all, b)
	}
	slices.SortFunc(all, func(x, y *buffer) int { return strings.Compare(x.name, y.name) })
	return all
}

func (d *Daemon) bufferDestroy(ctx context.Context, r *rpc.Request, m *wire.BufferDestroy) (proto.Message, error) {
	if kept, is := d.aside.Find(m.Name); is && m.Discard && tokenFits(r.Session(), &kept.Spec) {
		return &wire.Empty{}, d.aside.Destroy(ctx, r.Caller(), &kept.Spec)
	}
	b, err := d.bufferFor(ctx, r.Session(), "buffer destroy", m.Name)
	if err != nil {
		return nil, err
	}
	if !r.Caller().Owns(b.Spec().UID) {
		return nil, access.Denied("buffer destroy", b.address(""), "destroy another user's buffer")
	}
	may := func(ctx context.Context) error { return drain.Saved(ctx, drainBuffer{b}, b.open.Count()) }
	if m.Discard {
		may = nil
	}
	if err := d.destroyBuffer(ctx, b, may); err != nil {
		return nil, bb.Wrap("buffer destroy", b.address(""), err)
	}
	return &wire.Empty{}, nil
}

// destroyBuffer deletes a buffer if may, which is called while no daemon changes the buffer,
// returns nil (contract 11). Without may, whatever is in it goes.
func (d *Daemon) destroyBuffer(ctx context.Context, b *buffer, may func(context.Context) error) error {
	held, err := d.flusher.Hold(ctx, b.name, "")
	if err != nil {
		return err
	}
	defer held.Release()
	if may == nil {
		return d.deleteBuffer(ctx, b)
	}
	var others freeze.Cluster
	if d.cluster != nil {
		others = d.cluster
	}
	frozen, err := freeze.Everywhere(ctx, b.gate, others, b.name)
	if err != nil {
		return err
	}
	defer frozen.End()
	if err := may(ctx); err != nil {
		return err
	}
	if err := frozen.Intact(); err != nil {
		return err
	}
	return d.deleteBuffer(ctx, b)
}

// deleteBuffer takes a buffer out of the namespace, and then of memory.
func (d *Daemon) deleteBuffer(ctx context.Context, b *buffer) error {
	unlock, err := d.buffers.changing.Lock(ctx, b.name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = d.ctx // carried through, as above
	d.buffers.Lock()
	known := d.buffers.byName[b.name] == b
	if known {
		delete(d.buffers.byName, b.name)
	}
	d.buffers.Unlock()
	if !known {
		return bb.E(bb.NotFound, "destroy", b.address(""), "the buffer was destroyed meanwhile")
	}
	if err := d.meta.DestroyBuffer(ctx, b.name); err != nil {
		d.buffers.Lock()
		d.buffers.byName[b.name] = b
		d.buffers.Unlock()
		return err
	}
	d.dropBuffer(b)
	d.emit(bb.Event{Kind: bb.EventDestroyed, Buffer: b.name})
	return nil
}

// dropBuffer forgets a buffer that was destroyed, with all its bytes.
func (d *Daemon) dropBuffer(b *buffer) {
	b.gate.Destroyed()
	d.flusher.ForgetBuffer(b.name)
	b.forgetFiles()
	d.dropFiles(b.name)
	d.work.batch.Destroyed(jobBuffer{b})
	d.forgetStore(b.name)
}

// forgetStore closes the store of a buffer that is served no more: another one may get its name.
func (d *Daemon) forgetStore(buffer string) {
	if err := d.stores.Forget(buffer); err != nil {
		d.log.Warn("closing the store of a buffer that is served no more", "buffer", buffer, "err", err)
	}
}

// forgetFiles forgets the files that are open or dirty.
func (b *buffer) forgetFiles() {
	b.open.Clear()
	b.dirty.Clear()
	b.writers.Clear()
}

// dropFiles drops what memory has of a buffer.
func (d *Daemon) dropFiles(buffer string) {
	for f := range d.store.Files() {
		if f.Buffer == buffer {
			d.store.Drop(f.File)
		}
	}
}
