// Package recovery compares what a start finds in memory of a buffer's files with their entries, and
// opens, queues, keeps or reports each file. It must never know which buffers a daemon serves, nor decide
// by itself what is missing of a file, which package fate does.
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

// Start is what the recoveries of all buffers share at one start. It is used by one goroutine at a time.
type Start struct {
	Known map[bb.FileID]struct{}      // files that stay in memory
	Dirty map[bb.FileID]bb.Generation // of each file what DirtyGenerations returns; nil: this daemon is alone
	Was   fate.Reassertion            // what became of files that the namespace had forgotten
}

// Keep keeps a file in memory.
func (s *Start) Keep(file bb.FileID) { s.Known[file] = struct{}{} }

// DirtyGenerations returns the newest generation of each file that memory has something of which is not
// known to be on the store.
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

// Recover leaves all files of a buffer where the last life of the daemon left them. Files are what memory
// has of the buffer. It is called once, before anybody else uses the buffer.
//
//	entry    memory has it        memory has it not
//	open     open again, waits    lost (empty: made again)
//	         for its writer
//	dirty    queued               lost (empty: made again)
//	clean    resident             evicted: comes back when it is read
//	none     see fate.Decide      —
//
// A symbolic link is in its entry; a dirty one is queued.
//
// An entry that names an older generation than the one that memory holds and knows to be
// acknowledged is as good as none (package fate).
//
// Of an open file "has it" means all that was committed, which only memory that was never
// lost can tell (package fate).
//
// Files whose owner is another node are left to it, and copies of them dropped, except
// second copies of what is dirty. What is missing here and has a second copy at another
// node gets that for its owner.
func (b *Buffer) Recover(ctx context.Context, files map[bb.FileID]*fate.Held, start *Start) error {
	var gone, elsewhere []bb.Entry
	sv := fate.NewSurvey(files)
	err := b.p.Entries.Scan(ctx, sv, func(e *bb.Entry, behind bool) {
		if e.Type == bb.TypeSymlink && e.State() == bb.StateDirty && !b.o.Owners.Foreign(e) {
			b.Requeue(ctx, e)
		}
		if behind || e.Type != bb.TypeFile {
			return
		}
		if b.o.Owners.Foreign(e) {
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
	restored, err := b.p.Entries.Recover(ctx, sv)
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
	return b.settleGone(ctx, gone)
}

// settleGone leaves files that miss something to their second copies, and reports those that have none.
func (b *Buffer) settleGone(ctx context.Context, gone []bb.Entry) error {
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

// RecoverFile recovers one file, and returns what is missing of it; nothing: "".
func (b *Buffer) RecoverFile(ctx context.Context, e *bb.Entry) (missing string) {
	s := b.o.Store
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
	if missing != "" && empty && state != bb.StateClean && b.p.Open.Remake(e) == nil {
		missing = ""
	}
	switch {
	case state == bb.StateClean:
		return "" // what is missing was evicted
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

// missing compares what this node has of a file with its entry; nothing missing: "".
func (b *Buffer) missing(e *bb.Entry) string {
	s := b.o.Store
	f := fate.Survived{Node: b.o.Owners.Self, MemoryLost: s.MemoryLost(), Damage: cmp.Or(damage(s, b.name), b.doubt)}
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

// damage returns what recovery could not read that may have been about files of a buffer; "": nothing.
func damage(s Store, buffer string) string {
	for _, found := range s.Damage() {
		if fate.CouldBeIn(&found, buffer) {
			return found.What
		}
	}
	return ""
}

// Doubt returns why files of a buffer that are open may be old or have holes, for all that memory tells: a later
// start finds less. "": they are whole.
func Doubt(s Store, buffer string) string {
	if s.MemoryLost() {
		return "the memory was lost before the buffer was set aside"
	}
	return damage(s, buffer)
}

// Suspect has files that Recover finds open count as damaged, for a Doubt of an earlier start; "": it does not.
func (b *Buffer) Suspect(doubt string) { b.doubt = doubt }

// Requeue queues a dirty file that was found in memory. The last life of the daemon may have been flushing
// it, so the flusher gets to know where an object of it may be.
func (b *Buffer) Requeue(ctx context.Context, e *bb.Entry) {
	path, err := b.pathAt(ctx, e.Place())
	object := ""
	if e.Type == bb.TypeSymlink {
		object = path // whatever the buffer's codec is
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
		b.o.Log.Warn("the second copy of a file was lost with this node's memory", "file", e.File, "home", b.o.Owners.Of(e), "err", err)
	}
	return err == nil
}

// yield drops what this node has left of a file, in favour of the second copy at another
// node: what is left would be read here. Of a generation that was open it is struck out,
// since a later start would not know that something is missing; of a closed one, size and
// checksum tell at each start.
func (b *Buffer) yield(e *bb.Entry) (err error) {
	if e.Open {
		err = b.o.Store.Void(e.File, e.Generation)
	}
	b.o.Store.Drop(e.File)
	return err
}

// ReportLost marks a file lost whose bytes are gone, with the reason, and publishes that (contract 9).
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
