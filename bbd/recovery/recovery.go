// Package recovery compares the bytes of a buffer's files that a start finds in memory with their entries, and
// opens, queues, keeps or reports each file. It must never depend on the daemon's other buffers, nor decide
// which bytes of a file are missing, as package fate does.
package recovery

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
)

// Start is the state that the recoveries of all buffers share at one start. It is used by one goroutine at a time.
type Start struct {
	Known map[bb.FileID]struct{}      // files that stay in memory
	Dirty map[bb.FileID]bb.Generation // the result of DirtyGenerations; nil: this daemon is alone
	Was   fate.Reassertion            // files whose entries the namespace had lost
}

// Keep keeps a file in memory.
func (s *Start) Keep(file bb.FileID) { s.Known[file] = struct{}{} }

// DirtyGenerations returns, for each file with bytes that are not known to be on the store, its newest
// generation in memory.
func DirtyGenerations(files iter.Seq[store.FileInfo]) map[bb.FileID]bb.Generation {
	newest := make(map[bb.FileID]bb.Generation)
	for f := range files {
		for _, g := range f.Generations {
			if g.Dirty > 0 {
				newest[f.File] = max(newest[f.File], g.Generation)
			}
		}
	}
	return newest
}

// reportsAtOnce bounds the entries that are marked lost at once at a start.
const reportsAtOnce = 16

// Recover restores the state of all files of a buffer at the end of the last instance of the daemon. Files are
// the buffer's files in memory. It is called once, before any other use of the buffer.
//
//	entry    memory has it        memory has it not
//	open     open again, waits    lost (empty: made again)
//	         for its writer
//	dirty    queued               lost (empty: made again)
//	clean    resident             evicted: comes back when it is read
//	none     see fate.Decide      —
//
// A symbolic link is in its entry. A dirty one is queued.
//
// An entry of a generation older than the acknowledged one in memory counts as none (package fate).
//
// Of an open file "has it" means all committed bytes. Only memory that was never lost is proof of
// that (package fate).
//
// Files of other owners are left to them, and copies of them dropped, except
// second copies of dirty files. If bytes of a file are missing here and another node has its
// second copy, that node becomes the owner.
func (b *Buffer) Recover(ctx context.Context, files map[bb.FileID]*fate.Held, start *Start) error {
	var gone, elsewhere []bb.Entry
	inv := fate.NewInventory(files)
	err := b.p.Entries.Scan(ctx, inv, func(e *bb.Entry, behind bool) {
		if e.Type == bb.TypeSymlink && e.State() == bb.StateDirty && !b.o.Owners.OwnedElsewhere(e) {
			b.Requeue(ctx, e)
		}
		if behind || e.Type != bb.TypeFile {
			return
		}
		if b.o.Owners.OwnedElsewhere(e) {
			if b.recoverReplica(e) {
				start.Keep(e.File)
			} else if start.Dirty[e.File] != 0 {
				elsewhere = append(elsewhere, *e)
			}
			return
		}
		start.Keep(e.File)
		if missing := b.RecoverFile(ctx, e); missing != "" {
			e.Reason = missing
			gone = append(gone, *e)
		}
	})
	if err != nil {
		return err
	}
	restored, err := b.p.Entries.Recover(ctx, inv)
	for _, file := range restored.Kept {
		start.Keep(file)
	}
	start.Was.Add(&restored.Was)
	if err != nil {
		return err
	}
	b.p.Queue.ReconcileStale(ctx, elsewhere, start.Dirty)
	gone = append(gone, restored.Gone...)
	for i := range gone {
		path, _ := b.pathAt(ctx, gone[i].Place())
		start.Was.Lost = append(start.Was.Lost, fate.Unexplained{File: gone[i].File, Generation: gone[i].Generation, Path: cmp.Or(path, gone[i].Name), Bytes: gone[i].Size, Reason: gone[i].Reason})
	}
	return b.reportGone(ctx, gone)
}

// reportGone leaves incomplete files to their second copies, and reports those without one.
func (b *Buffer) reportGone(ctx context.Context, gone []bb.Entry) error {
	reports, reporting := errgroup.WithContext(ctx)
	reports.SetLimit(reportsAtOnce)
	for i := range gone {
		if owner.Replica(&gone[i]) != "" {
			if err := b.yield(&gone[i]); err != nil {
				return errors.Join(err, reports.Wait())
			}
			b.p.Replicas.PromoteLater(&gone[i])
			continue
		}
		reports.Go(func() error { return b.ReportLost(reporting, &gone[i]) })
	}
	return reports.Wait()
}

// RecoverFile recovers one file, and describes its missing bytes. "" means that none are missing.
func (b *Buffer) RecoverFile(ctx context.Context, e *bb.Entry) (missing string) {
	s := b.o.Store
	state := e.State()
	if state == bb.StateLost {
		s.Drop(e.File)
		return "" // known already
	}
	missing = b.missing(e)
	empty := e.Size == 0 && state != bb.StateOpen // the entry of an open file has no size
	if missing != "" && (state == bb.StateClean || empty) {
		s.Drop(e.File)
	}
	if missing != "" && empty && state != bb.StateClean && b.p.Open.Remake(e) == nil {
		missing = ""
	}
	switch {
	case state == bb.StateClean:
		return "" // the missing bytes were evicted
	case missing != "":
		return missing
	case state == bb.StateOpen:
		b.p.Open.Reopen(e)
	default:
		if err := s.Seal(e.File, e.Generation); err != nil {
			return err.Error()
		}
		b.Requeue(ctx, e)
	}
	return ""
}

// missing compares a file's bytes on this node with its entry. It returns "" if none are missing.
func (b *Buffer) missing(e *bb.Entry) string {
	s := b.o.Store
	f := fate.Survived{Node: b.o.Owners.Self, MemoryLost: s.MemoryLost(), Damage: cmp.Or(damage(s, b.name), b.earlier)}
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

// damage describes records that recovery could not read and that may be of a buffer's files. "" means that there are
// none.
func damage(s Store, buffer string) string {
	for _, found := range s.Damage() {
		if fate.CouldBeIn(&found, buffer) {
			return found.What
		}
	}
	return ""
}

// Damage returns the reason why open files of a buffer may be old or have holes. It is recorded, since a later
// start may not find it. "": they are whole.
func Damage(s Store, buffer string) string {
	if s.MemoryLost() {
		return "the memory was lost before the buffer was set aside"
	}
	return damage(s, buffer)
}

// Suspect makes open files in Recover count as damaged, for damage that an earlier start found. "" means that there is none.
func (b *Buffer) Suspect(damage string) { b.earlier = damage }

// Requeue queues a dirty file that was found in memory. The last instance of the daemon may have been flushing
// it, so the flusher gets the path of a possible object.
func (b *Buffer) Requeue(ctx context.Context, e *bb.Entry) {
	path, err := b.pathAt(ctx, e.Place())
	object := ""
	if e.Type == bb.TypeSymlink {
		object = path // with any codec of the buffer
	} else {
		b.p.Open.IdentifyFound(e, path)
	}
	spec := b.p.Spec()
	since := dirtySince(e, &spec)
	b.p.Queue.Enqueue(*e, flusher.Item{
		Key: flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation}, Size: e.Size, DirtySince: since, ClosedAt: since,
		Path: path, Object: object, Suspect: err == nil && e.Stored().Generation == 0, Attempts: e.Unrecorded(),
	})
}

// recoverReplica keeps the second copy of a file, and reports whether it counts.
func (b *Buffer) recoverReplica(e *bb.Entry) bool {
	state := e.State()
	if owner.Replica(e) != b.o.Owners.Self || state != bb.StateDirty && state != bb.StateOpen {
		return false
	}
	var err error
	if e.Open {
		if missing := b.missing(e); missing != "" {
			err = errors.Join(errors.New(missing), b.yield(e))
		}
	} else {
		err = b.o.Store.Adopt(e.File, e.Generation) // a promotion compares it with the entry
	}
	if err != nil {
		b.o.Log.Warn("the second copy of a file was lost with this node's memory", "file", e.File, "owner", b.o.Owners.Of(e), "err", err)
	}
	return err == nil
}

// yield drops the rest of a file on this node, in favour of the second copy at another node. Otherwise
// the rest would be read here. An open generation is struck out, since a later start could not detect
// that bytes are missing. The size and checksum of a closed one prove it at each start.
func (b *Buffer) yield(e *bb.Entry) (err error) {
	if e.Open {
		err = b.o.Store.Void(e.File, e.Generation)
	}
	b.o.Store.Drop(e.File)
	return err
}

// ReportLost marks a file as lost, with the reason, and publishes that (contract 9).
func (b *Buffer) ReportLost(ctx context.Context, e *bb.Entry) error {
	e.Lost, e.Open = true, false
	if _, err := b.p.Names.Put(ctx, *e); err != nil {
		return err
	}
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		path = e.Name
	}
	b.PublishLost(e, path)
	return nil
}

// PublishLost logs, counts and publishes a file that was lost.
func (b *Buffer) PublishLost(e *bb.Entry, path string) {
	b.o.Log.Error("a file was lost", "buffer", b.name, "path", path, "bytes", e.Size, "file", e.File, "generation", e.Generation, "reason", e.Reason)
	b.o.Lost(e.Size)
	b.o.Emit(bb.Event{Kind: bb.EventLost, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size, Reason: e.LostReason()})
}
