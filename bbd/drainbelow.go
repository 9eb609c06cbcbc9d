package bbd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/fate"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// A drain below a path goes by the namespace: it waits for the contents that files have
// there when it begins, and then for the renames and removals that concern them. What
// others write in the same buffer, and cannot save, does not hold it up.

// drained is what a drain waits for: all of a buffer, or what lies at a path and below it.
type drained struct {
	b     *buffer
	below string // "": all
}

// has reports whether a path is part of it, or leads to it.
func (d drained) has(path string) bool {
	return bb.Overlaps(path, d.below)
}

// each calls visit with its files, and with what finds the path of each, or bb.NotFound if
// it is removed meanwhile: in a whole buffer that takes a look for each.
func (d drained) each(ctx context.Context, visit func(e *bb.Entry, path func() (string, error)) error) error {
	if d.below == "" {
		return d.b.ns.ScanAll(ctx, func(e bb.Entry) error {
			if e.Type != bb.TypeFile {
				return nil
			}
			return visit(&e, func() (string, error) { return d.b.pathAt(ctx, place{e.Parent, e.Name}) })
		})
	}
	found, err := d.files(ctx)
	for i := 0; i < len(found) && err == nil; i++ {
		err = visit(&found[i].entry, func() (string, error) { return found[i].path, nil })
	}
	return err
}

// walkTries is how often a tree is walked that changes meanwhile.
const walkTries = 5

// located is a file with its path.
type located struct {
	path  string
	entry bb.Entry
}

// files returns those at the path and below it.
func (d drained) files(ctx context.Context) (found []located, err error) {
	for range walkTries {
		found, err = d.look(ctx)
		if bb.KindOf(err) != bb.NotFound { // else a directory went while its names were read
			break
		}
	}
	return found, err
}

// look is one try of files.
func (d drained) look(ctx context.Context) (found []located, err error) {
	add := func(path string, e *bb.Entry) error {
		found = append(found, located{path, *e})
		return nil
	}
	system := access.Caller{System: true}
	e, v, err := d.b.look(ctx, system, "drain", d.below)
	if err != nil {
		return nil, err
	}
	if !e.IsDir() {
		return []located{{d.below, e}}, nil
	}
	err = d.b.walk(ctx, system, &e, v, d.below, add)
	return found, err
}

// requeueAfter is how long a dirty file may be missing in the flusher's queue before it is
// put there: between its close and that there is a moment.
const requeueAfter = 2 * time.Second

// drainHereBelow flushes what this daemon is the home of at a path and below it.
func (b *buffer) drainHereBelow(ctx context.Context, path string, p *transfer.Progress) (*wire.Progress, error) {
	if err := b.closeAbandoned(ctx); err != nil {
		return nil, err
	}
	unsaved, _, err := b.mendForgotten(ctx)
	if err != nil {
		return nil, err
	}
	unsaved = slices.DeleteFunc(unsaved, func(u fate.Unexplained) bool { return u.Path != "" && !(drained{b, path}).has(u.Path) })
	dirty, report, err := b.noteBelow(ctx, path)
	if err != nil {
		return nil, err
	}
	var files, bytes int64
	for _, f := range dirty {
		files, bytes = files+1, bytes+f.entry.Size
	}
	p.Update(func(m *wire.Progress) { m.FilesTotal, m.BytesTotal = files, bytes })
	for began := time.Now(); len(dirty) > 0 && ctx.Err() == nil; {
		keys := make([]flusher.Key, 0, len(dirty))
		for _, f := range dirty {
			keys = append(keys, b.key(&f.entry))
		}
		for _, u := range b.d.flusher.Settle(ctx, b.name, keys, func(left, size int64) {
			p.Update(func(m *wire.Progress) { m.FilesDone, m.BytesDone = files-left, bytes-size })
		}) {
			c := content{u.Key.File, u.Key.Generation}
			u.Path = cmp.Or(u.Path, dirty[c].path)
			delete(dirty, c)
			report.Unsaved = append(report.Unsaved, u)
		}
		if err := b.stillDirty(ctx, path, dirty); err != nil && ctx.Err() == nil {
			return nil, err
		}
		// Not queued, and dirty: recorded as clean or queued a moment later, or never.
		if time.Since(began) > requeueAfter {
			for _, f := range dirty {
				b.enqueue(f.entry, flusher.Item{Key: b.key(&f.entry), Size: f.entry.Size})
			}
		}
		if len(dirty) > 0 {
			select {
			case <-time.After(settling):
			case <-ctx.Done():
			}
		}
	}
	for _, f := range dirty {
		report.Unsaved = append(report.Unsaved, flusher.Unsaved{Path: f.path, Bytes: f.entry.Size})
	}
	report.UnsavedCount = len(report.Unsaved)
	answer := p.Done()
	addReport(answer, &report)
	addUnexplained(answer, unsaved)
	return answer, nil
}

// noteBelow returns what of this node's is dirty at a path and below it, and reports what
// is kept back there, or open.
func (b *buffer) noteBelow(ctx context.Context, below string) (dirty map[content]located, report flusher.Report, err error) {
	dirty = map[content]located{}
	keep := b.Spec().Keep
	note := func(names *[]string, count *int, path string) {
		if *count++; len(*names) < transfer.MaxNamed {
			*names = append(*names, path)
		}
	}
	found, err := drained{b, below}.files(ctx)
	for _, f := range found {
		state := f.entry.State()
		_, kept := plan.Kept(keep, f.path)
		switch {
		case b.foreign(&f.entry):
		case state == bb.StateOpen:
			note(&report.Open, &report.OpenCount, f.path)
		case state == bb.StateDirty && kept:
			note(&report.Held, &report.HeldCount, f.path)
		case state == bb.StateDirty:
			dirty[content{f.entry.File, f.entry.Generation}] = f
		}
	}
	return dirty, report, err
}

// stillDirty leaves those contents that are this node's, and dirty.
func (b *buffer) stillDirty(ctx context.Context, below string, dirty map[content]located) error {
	if len(dirty) == 0 {
		return nil
	}
	found, err := drained{b, below}.files(ctx)
	if err == nil {
		still := map[content]bool{}
		for _, f := range found {
			if f.entry.State() == bb.StateDirty && !b.foreign(&f.entry) {
				still[content{f.entry.File, f.entry.Generation}] = true
			}
		}
		maps.DeleteFunc(dirty, func(c content, _ located) bool { return !still[c] })
	}
	if bb.KindOf(err) == bb.NotFound {
		if _, lookErr := b.ns.Resolve(ctx, below); bb.KindOf(lookErr) == bb.NotFound { // it was removed, or renamed
			clear(dirty)
			return nil
		}
	}
	return err
}

// fold finishes the transactions that are decided and whose output lies there.
func (d drained) fold(ctx context.Context) error {
	all, err := d.b.ns.Txns(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		if t := &all[i]; t.State.Decided() && !t.State.Over() && d.has(t.Destination) {
			err = d.b.materializer.Wait(ctx, t.ID)
		}
	}
	return err
}

// carriedOut waits until no daemon has anything left to do on the store. bb.Unavailable,
// naming the node, if ctx ends first.
func (d drained) carriedOut(ctx context.Context) error {
	if d.below == "" && d.b.d.cluster == nil {
		return nil // the flusher waits for them
	}
	for b := d.b; ; {
		ops, err := d.operations(ctx)
		if err != nil || len(ops) == 0 {
			return err
		}
		by := ops[0].By
		if b.carriesOut(by) {
			if err := b.d.flusher.OpsStuck(b.name, ops[0].OldPath); err != nil {
				return bb.Wrap("drain", b.address(ops[0].OldPath), err)
			}
		} else if !b.d.cluster.Serves(by) {
			return bb.E(bb.Unavailable, "drain", b.address(ops[0].OldPath), "node "+string(by)+", which has yet to rename or remove what the store has there, does not answer").
				WithRemedy("wait for it; if it is gone for good: bbctl node forget " + string(by))
		}
		select {
		case <-time.After(othersPause / 10):
		case <-ctx.Done():
			return bb.E(bb.Unavailable, "drain", b.address(ops[0].OldPath), "node "+string(by)+" has yet to rename or remove what the store has there")
		}
	}
}

// rest is what a drain has left of its files, by the word of the namespace.
type rest struct {
	dirty     map[content]string // paths of the closed files that no pattern keeps back, whatever their home
	lost      []*wire.Failure    // the first of the lost ones
	lostTotal int64
}

// rest looks what of the drained files is dirty, and what is lost. A path that has been
// removed since has nothing left.
func (d drained) rest(ctx context.Context) (rest, error) {
	left := rest{dirty: map[content]string{}}
	keep := d.b.Spec().Keep
	err := d.each(ctx, func(e *bb.Entry, find func() (string, error)) error {
		state := e.State()
		if state != bb.StateDirty && state != bb.StateLost {
			return nil
		}
		path, err := find()
		if bb.KindOf(err) == bb.NotFound {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if state == bb.StateLost {
			left.addFile(e, path)
		} else if _, kept := plan.Kept(keep, path); !kept {
			left.dirty[content{e.File, e.Generation}] = path
		}
		return nil
	})
	if bb.KindOf(err) == bb.NotFound && d.below != "" {
		if _, lookErr := d.b.ns.Resolve(ctx, d.below); bb.KindOf(lookErr) == bb.NotFound {
			return rest{}, nil
		}
	}
	return left, err
}

// addFile adds a lost file.
func (l *rest) addFile(e *bb.Entry, path string) {
	if l.lostTotal++; len(l.lost) < transfer.MaxNamed {
		l.lost = append(l.lost, &wire.Failure{Path: path, Kind: uint32(bb.Lost), Bytes: e.Size, Reason: e.LostReason()})
	}
}

// addLost adds the lost files to what a drain has not saved: no flush brings them back, so a
// drain fails as long as there are any. They come last, behind what may be saved yet.
func (l *rest) addLost(answer *wire.Progress) {
	answer.FailedTotal += l.lostTotal
	room := transfer.NamesBytes
	for _, f := range answer.Failed {
		room -= len(f.Path) + len(f.Reason)
	}
	for _, f := range l.lost {
		if room -= len(f.Path) + len(f.Reason); room < 0 || len(answer.Failed) == transfer.MaxNamed {
			return
		}
		answer.Failed = append(answer.Failed, f)
	}
}

// drainAlone flushes at a daemon that is alone, until timed ends. The namespace has the last
// word on a whole buffer: a file that is closed and not yet queued is waited for too.
func (d *Daemon) drainAlone(ctx, timed context.Context, r *rpc.Request, m *wire.Drain, of drained) (*wire.Progress, rest, error) {
	p := transfer.ProgressTo(r)
	answer, err := of.b.drainShare(timed, m, p)
	if err != nil {
		return nil, rest{}, err
	}
	left, err := of.rest(ctx)
	if err != nil || of.below != "" || !transfer.Saved(answer) || len(left.dirty) == 0 {
		return answer, left, err
	}
	again, err := of.b.drainHereBelow(timed, "", p)
	if err != nil {
		return nil, rest{}, err
	}
	again.FilesTotal, again.FilesDone = again.FilesTotal+answer.FilesTotal, again.FilesDone+answer.FilesDone
	again.BytesTotal, again.BytesDone = again.BytesTotal+answer.BytesTotal, again.BytesDone+answer.BytesDone
	left, err = of.rest(ctx)
	return again, left, err
}

// addAway adds what is not saved because its home does not answer.
func (d drained) addAway(ctx context.Context, answer *wire.Progress, isAway func(bb.NodeID) bool) error {
	return d.each(ctx, func(e *bb.Entry, find func() (string, error)) error {
		state := e.State()
		if state != bb.StateDirty && state != bb.StateOpen || !isAway(d.b.home(e)) {
			return nil
		}
		answer.FailedTotal++
		answer.FilesTotal++
		answer.BytesTotal += e.Size
		if len(answer.Failed) >= transfer.MaxNamed {
			return nil
		}
		path, err := find()
		if err != nil {
			path = e.Name
		}
		answer.Failed = append(answer.Failed, &wire.Failure{
			Path: path, Kind: uint32(bb.Unavailable), Bytes: e.Size, Reason: cluster.AwayReason(d.b.home(e)),
		})
		return nil
	})
}

// operations returns those that concern it.
func (d drained) operations(ctx context.Context) ([]namespace.StoreOp, error) {
	all, err := d.b.ns.StoreOps(ctx)
	ours := all[:0]
	for _, op := range all {
		if d.has(op.OldPath) || op.NewPath != "" && d.has(op.NewPath) {
			ours = append(ours, op)
		}
	}
	return ours, err
}
