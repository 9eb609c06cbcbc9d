package bbd

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/aside"
	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/reassert"
	"forebay/flusher"
	"forebay/internal/bb"
)

// recover compares what is in memory with the namespace, which is the truth about
// what exists, and takes everything up where the last life of the daemon left it:
//
//	entry    memory has it        memory has it not
//	open     open again, waits    lost (empty: made again)
//	         for its writer
//	dirty    queued               lost (empty: made again)
//	clean    resident             evicted: comes back when it is read
//	none     see fate.Decide      —
//
// An entry that names an older generation than the one that memory holds and knows to be
// acknowledged is as good as none (package fate).
//
// Of an open file "has it" means all that was committed, which only memory that was never
// lost can tell (package fate).
//
// Where a record cannot be read, as after an older release was put back, nothing is
// dropped: what is here may be what it is about.
//
// Files whose home is another node are left to it, and copies of them dropped, except
// second copies of what is dirty. What is missing here and has a second copy at another
// node gets that for its home.
func (d *Daemon) recover(ctx context.Context) error {
	d.wg.Go(func() {
		select {
		case <-time.After(d.cfg.ResumeGrace):
			d.store.FreeUncommitted()
			d.alloc.Wake()
		case <-d.ctx.Done():
		}
	})
	specs, err := d.meta.Buffers(ctx)
	if err != nil {
		return err
	}
	known := make(map[bb.FileID]struct{})
	files := reassert.HeldFiles(d.store)
	o := d.reassertOptions()
	kept, err := reassert.SettleBufferless(&o, specs, files, func(buffer string) (bool, error) { return d.meta.BufferGone(ctx, buffer) }, d.aside.Keep)
	if err != nil {
		return err
	}
	for _, file := range kept {
		known[file] = struct{}{}
	}
	var old map[bb.FileID]bb.Generation
	if d.cluster != nil {
		old = d.dirtyGenerations()
	}
	for _, spec := range specs {
		d.cfg.Steps.At("the namespace: buffers and files", func() string {
			return strings.TrimSpace("buffer " + spec.Name + ", " + bb.Count(len(files[spec.Name]), "file") + " in memory. " + d.silence())
		})
		if err := d.recoverBuffer(ctx, spec, files[spec.Name], known, old); err != nil {
			return err
		}
	}
	d.store.Settle() // what was lost with an earlier memory is recorded
	if unread := d.meta.Stats().Garbage; unread > 0 {
		// They may be of files that are here.
		d.log.Error("memory of files without an entry is kept: records of the namespace cannot be read, which a newer release may be able to", "records", unread)
		return nil
	}
	for f := range d.store.Files() {
		if _, ok := known[f.File]; !ok {
			d.store.Drop(f.File)
		}
	}
	return nil
}

// dirtyGenerations returns the newest generation of each file that memory has something
// of which is not known to be on the store.
func (d *Daemon) dirtyGenerations() map[bb.FileID]bb.Generation {
	newest := make(map[bb.FileID]bb.Generation)
	for f := range d.store.Files() {
		for _, g := range f.Generations {
			if g.Dirty > 0 {
				newest[f.File] = max(newest[f.File], g.Generation)
			}
		}
	}
	return newest
}

// recoverBuffer recovers a buffer, unless another daemon destroys it meanwhile.
func (d *Daemon) recoverBuffer(ctx context.Context, spec bb.Buffer, files map[bb.FileID]*fate.Held, known map[bb.FileID]struct{}, old map[bb.FileID]bb.Generation) error {
	b, err := d.takeUp(ctx, spec)
	if err == nil {
		err = b.recover(ctx, files, known, old)
	}
	if bb.KindOf(err) != bb.NotFound {
		return d.putAside(ctx, spec, b, known, err)
	}
	now, lookupErr := d.meta.Buffer(ctx, spec.Name)
	if bb.KindOf(lookupErr) != bb.NotFound {
		if lookupErr != nil || now.State != bb.BufferDestroying && now.Created.Equal(spec.Created) {
			return d.putAside(ctx, spec, b, known, err)
		}
	}
	if b != nil {
		d.buffers.Lock()
		delete(d.buffers.byName, b.name)
		d.buffers.Unlock()
		d.dropBuffer(b)
	}
	return nil
}

// putAside ends the recovery of a buffer that has failed, with all that memory has of the buffer kept:
// one buffer keeps no daemon from starting. It returns errors that are not of the buffer alone.
func (d *Daemon) putAside(ctx context.Context, spec bb.Buffer, b *buffer, known map[bb.FileID]struct{}, why error) error {
	if !aside.Concerns(why) || ctx.Err() != nil {
		return why
	}
	if b != nil {
		d.buffers.Lock()
		delete(d.buffers.byName, b.name)
		d.buffers.Unlock()
		b.gate.Destroyed()
		d.flusher.ForgetBuffer(b.name)
		b.forgetFiles()
	}
	held := reassert.HeldFiles(d.store)[spec.Name]
	for file := range held {
		known[file] = struct{}{}
	}
	entry := d.aside.Put(spec, held, why)
	d.log.Error("a buffer is set aside", "buffer", spec.Name, "files", entry.Files, "bytes", entry.Bytes, "dirty", entry.Dirty, "err", entry.Err)
	d.emit(bb.Event{Kind: bb.EventAside, Buffer: spec.Name, Bytes: entry.Dirty, Reason: entry.Err.Error()})
	return nil
}

// takeUp makes a buffer one that this daemon serves.
func (d *Daemon) takeUp(ctx context.Context, spec bb.Buffer) (*buffer, error) {
	ns, err := d.meta.Namespace(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	b := newBuffer(d, spec, ns)
	d.stores.LookUp(spec.Backing)
	d.buffers.Lock()
	defer d.buffers.Unlock()
	d.buffers.byName[spec.Name] = b
	return b, nil
}

// reportsAtOnce bounds the entries that are marked lost at once at a start.
const reportsAtOnce = 16

func (b *buffer) recover(ctx context.Context, files map[bb.FileID]*fate.Held, known map[bb.FileID]struct{}, old map[bb.FileID]bb.Generation) error {
	if err := b.writeback.ReplayStoreOps(ctx); err != nil {
		return err
	}
	if b.Spec().Backing != "" {
		b.d.wg.Go(func() { b.sweep(b.d.ctx) })
	}
	var gone, elsewhere []bb.Entry
	sv := fate.NewSurvey(files)
	err := b.reassertion.Scan(ctx, sv, func(e *bb.Entry, behind bool) {
		if behind || e.Type != bb.TypeFile {
			return
		}
		if b.owners.Foreign(e) {
			if b.recoverReplica(e) {
				known[e.File] = struct{}{}
			} else if old[e.File] != 0 {
				elsewhere = append(elsewhere, *e)
			}
			return
		}
		known[e.File] = struct{}{}
		if missing := b.recoverFile(ctx, e); missing != "" {
			e.Reason = missing
			gone = append(gone, *e)
		}
	})
	if err == nil {
		var r reassert.Recovered
		r, err = b.reassertion.Recover(ctx, sv)
		for _, file := range r.Kept {
			known[file] = struct{}{}
		}
		gone = append(gone, r.Gone...)
	}
	if err != nil {
		return err
	}
	b.writeback.ReconcileStale(ctx, elsewhere, old)
	reports, reporting := errgroup.WithContext(ctx)
	reports.SetLimit(reportsAtOnce)
	for i := range gone {
		if owner.Replica(&gone[i]) != "" {
			if err := b.yield(&gone[i]); err != nil {
				return errors.Join(err, reports.Wait())
			}
			b.replicas.PromoteLater(&gone[i])
			continue
		}
		reports.Go(func() error { return b.reportLost(reporting, &gone[i]) })
	}
	return reports.Wait()
}

// recoverFile takes one file up and says what is missing of it; nothing: "".
func (b *buffer) recoverFile(ctx context.Context, e *bb.Entry) (missing string) {
	s := b.d.store
	state := e.State()
	if state == bb.StateLost {
		s.Drop(e.File)
		return "" // known already
	}
	missing = b.missing(e)
	empty := e.Size == 0 && state != bb.StateOpen // the entry of an open file knows no size
	if missing != "" && (state == bb.StateClean || empty) {
		s.Drop(e.File)
	}
	if missing != "" && empty && state != bb.StateClean && b.open.Remake(e) == nil {
		missing = ""
	}
	switch {
	case state == bb.StateClean:
		return "" // what is missing was evicted
	case missing != "":
		return missing
	case state == bb.StateOpen:
		b.open.Reopen(e)
	default:
		if err := s.Seal(e.File, e.Generation); err != nil {
			return err.Error()
		}
		b.requeue(ctx, e)
	}
	return ""
}

// missing compares what this node has of a file with its entry; nothing missing: "".
func (b *buffer) missing(e *bb.Entry) string {
	s := b.d.store
	f := fate.Survived{Node: b.d.cfg.Node, MemoryLost: s.MemoryLost(), Damage: b.d.damageIn(b.name)}
	adopt := s.Adopt
	if e.State() == bb.StateClean {
		adopt = s.AdoptClean
	}
	f.Adopted = adopt(e.File, e.Generation)
	if f.Adopted == nil || bb.KindOf(f.Adopted) == bb.Lost {
		f.Sum, f.Size, f.Unsummed = s.Checksum(e.File, e.Generation)
	}
	return fate.Missing(e, &f)
}

// requeue queues a dirty file that recovery found. The last life of the daemon may
// have been flushing it, so the flusher is told where an object of it may be.
func (b *buffer) requeue(ctx context.Context, e *bb.Entry) {
	path, err := b.pathAt(ctx, e.Place())
	b.open.IdentifyFound(e, path)
	since := e.MTime
	if made := b.Spec().Created; since.Before(made) {
		since = made // a user has set the file's time back: it is no older here than its buffer
	}
	b.writeback.Enqueue(*e, flusher.Item{
		Key: b.key(e), Size: e.Size, DirtySince: since, ClosedAt: since,
		Path: path, Suspect: err == nil && e.Stored().Generation == 0, Attempts: e.Unrecorded(),
	})
}

// sweep removes what the last life of the daemon left of unfinished uploads.
func (b *buffer) sweep(ctx context.Context) {
	store, err := b.d.stores.Get(ctx, b.name)
	if err == nil {
		_, err = store.Sweep(ctx)
	}
	if err != nil && ctx.Err() == nil {
		b.d.log.Warn("removing unfinished uploads", "buffer", b.name, "err", err)
	}
}

// reportLost marks a file whose bytes are gone, with the reason, and says so to everybody (contract 9).
func (b *buffer) reportLost(ctx context.Context, e *bb.Entry) error {
	e.Lost, e.Open = true, false
	if _, err := b.ns.Put(ctx, *e); err != nil {
		return err
	}
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		path = e.Name
	}
	b.sayLost(e, path)
	return nil
}

// sayLost says to everybody that a file was lost.
func (b *buffer) sayLost(e *bb.Entry, path string) {
	d := b.d
	d.log.Error("a file was lost", "buffer", b.name, "path", path, "bytes", e.Size, "file", e.File, "generation", e.Generation, "reason", e.Reason)
	d.observe.Lost(e.Size)
	d.emit(bb.Event{Kind: bb.EventLost, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size, Reason: e.LostReason()})
}

// recoverReplica keeps the second copy of a file that recovery found, if it counts.
func (b *buffer) recoverReplica(e *bb.Entry) bool {
	state := e.State()
	if owner.Replica(e) != b.d.cfg.Node || state != bb.StateDirty && state != bb.StateOpen {
		return false
	}
	var err error
	if e.Open {
		if missing := b.missing(e); missing != "" {
			err = errors.Join(errors.New(missing), b.yield(e))
		}
	} else {
		err = b.d.store.Adopt(e.File, e.Generation) // a promotion compares it with the entry
	}
	if err != nil {
		b.d.log.Warn("the second copy of a file was lost with this node's memory", "file", e.File, "home", b.owners.Of(e), "err", err)
	}
	return err == nil
}

// yield drops what this node has left of a file, in favour of the second copy at another
// node: what is left would be read here. Of a generation that was open it is struck out,
// since a later start would not know that something is missing; of a closed one, size and
// checksum tell at each start.
func (b *buffer) yield(e *bb.Entry) (err error) {
	if e.Open {
		err = b.d.store.Void(e.File, e.Generation)
	}
	b.d.store.Drop(e.File)
	return err
}

// damageIn returns what recovery could not read that may have been about files of a
// buffer; "": nothing.
func (d *Daemon) damageIn(buffer string) string {
	for _, found := range d.store.Damage() {
		if fate.CouldBeIn(&found, buffer) {
			return found.What
		}
	}
	return ""
}
