package flusher

import (
	"context"
	"slices"
	"sync"
	"time"

	"forebay/flusher/storeop"
	"forebay/internal/bb"
)

// hold keeps flushes away from paths.
type hold struct {
	paths    []string
	newNames []string // of a rename or an exchange: suspects there are left to Held.Renamed and Held.Exchanged
}

// concerns reports whether a flush under the path would collide: a file's own
// path, or one below a held directory. A path "" holds all.
func (h *hold) concerns(path string) bool {
	return slices.ContainsFunc(h.paths, func(held string) bool { return bb.Overlaps(held, path) })
}

// Hold keeps the files at and below clean paths ("": all of the buffer) from being flushed until
// release is called. Flushes in flight there are cancelled, and when Hold returns they have ended:
// either recorded by upload.Job.Done, or not visible in the store once pending operations are carried out.
// Take it before a rename (with both names) or a removal is decided, and release it after Apply. So
// no flush works with a name that is no longer the file's, and removed files do not come back.
//
// An attempt whose store does not answer is waited for as long as Options.Patience. From then on it
// is overtaken: with any outcome, changes under the hold win.
//
// Several holds may overlap. The error is that of ctx, or bb.Unavailable after Close. Then nothing
// is held.
func (f *Flusher) Hold(ctx context.Context, buffer string, paths ...string) (*Held, error) {
	if len(paths) == 0 {
		return nil, bb.E(bb.Invalid, "hold", buffer, "no path is named")
	}
	return f.hold(ctx, buffer, &hold{paths: slices.Clone(paths)})
}

// HoldRename is Hold of both names of a rename. But an object that a Put may have left under the
// new name stays there. Once something of a name is durable, it stays until something newer
// replaces it. If the rename is carried out, Held.Renamed follows.
func (f *Flusher) HoldRename(ctx context.Context, buffer, from, to string) (*Held, error) {
	return f.hold(ctx, buffer, &hold{paths: []string{from, to}, newNames: []string{to}})
}

// HoldExchange is Hold of the two names of an exchange. Objects that a Put may have left under them stay
// there, as under the new name of a rename. If the exchange is carried out, Held.Exchanged follows.
func (f *Flusher) HoldExchange(ctx context.Context, buffer, a, b string) (*Held, error) {
	return f.hold(ctx, buffer, &hold{paths: []string{a, b}, newNames: []string{a, b}})
}

func (f *Flusher) hold(ctx context.Context, buffer string, h *hold) (*Held, error) {
	q, attempts, err := f.place(h, buffer)
	if err != nil {
		return nil, err
	}
	held := &Held{f: f, q: q, h: h}
	orphan, err := f.outwait(ctx, attempts)
	if err != nil {
		held.Release()
		return nil, bb.Wrap("hold", buffer, err)
	}
	if err := f.clearRecorded(ctx, q, h); err != nil {
		held.Release()
		return nil, bb.Wrap("hold", buffer, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A removal that is queued still, of any hold, is lost with this process, and operations before
	// it may have given its object another name. The change is noted as if it were under the held
	// names.
	held.Orphan = q.removeSuspects(h) || orphan || q.ops.Any(func(op *storeop.Op) bool { return op.Orphan })
	return held, nil
}

// clearRecorded checks objects under held names that a flush without an answer may have recorded. A
// recorded one is not an orphan object. The hold's change concerns it as it does every other. Nothing
// of the held names is in flight.
func (f *Flusher) clearRecorded(ctx context.Context, q *queue, h *hold) error {
	recorder, ok := f.opts.Catalog.(Recorder)
	if !ok {
		return nil
	}
	f.mu.Lock()
	unsure := map[*entry]Key{}
	for e := range q.suspect {
		if e.unsure && h.concernsSuspect(e) {
			unsure[e] = e.item.Key
		}
	}
	f.mu.Unlock()
	for e, key := range unsure {
		recorded, err := recorder.Recorded(ctx, key)
		if err != nil {
			return err
		}
		if recorded {
			f.mu.Lock()
			q.clearSuspect(e)
			f.mu.Unlock()
		}
	}
	return nil
}

func (h *hold) concernsSuspect(e *entry) bool { return h.concerns(e.suspect) || h.concerns(e.path) }

// outwait waits until attempts have ended or are overtaken. It reports whether one of the
// latter may still make an object without a record.
func (f *Flusher) outwait(ctx context.Context, attempts []*attempt) (orphan bool, err error) {
	timer := time.NewTimer(f.opts.Patience)
	defer timer.Stop()
	impatient := timer.C
	for i := 0; i < len(attempts); {
		fl := attempts[i]
		select {
		case <-fl.ended:
			i++
			continue
		case <-ctx.Done():
			return false, ctx.Err()
		case <-impatient:
		}
		f.mu.Lock()
		for _, fl := range attempts[i:] {
			orphan = fl.overtake() && fl.named && fl.wasNew || orphan
		}
		attempts = slices.DeleteFunc(attempts[i:], func(fl *attempt) bool { return fl.overtaken })
		f.mu.Unlock()
		i, impatient = 0, nil
	}
	return orphan, nil
}

// Held is the result of Hold.
type Held struct {
	// Orphan: objects may be in the store under the held names without a record in the namespace.
	// Their removal is queued. Noted with the hold's change, it also survives the end of this
	// process.
	Orphan bool

	f    *Flusher
	q    *queue
	h    *hold
	once sync.Once
}

// Renamed records that a file has got the new name of HoldRename, its object on the store, and the codec of its flushes.
// Call it before Forget of the file that had the name, and before Apply.
func (h *Held) Renamed(file bb.FileID, flushed bb.Flushed, flushes string) {
	h.Exchanged([2]storeop.Exchanged{{Dir: true}, {File: file, Flushed: flushed, Flushes: flushes}})
}

// Exchanged records that the two names of HoldExchange were exchanged. It has the files or directories that had them
// before. Call it before Apply.
func (h *Held) Exchanged(had [2]storeop.Exchanged) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	q := h.q
	codec := q.f.opts.Policy(q.buffer).Codec
	var left [2]bool
	for i, name := range h.h.newNames {
		left[i] = q.takeSuspect(q.objectName(name))
	}
	for i, name := range h.h.newNames {
		if !left[i] {
			continue
		}
		switch storeop.FateOf(&had[i], &had[1-i], codec) {
		case storeop.Moves:
			q.leave(q.objectName(h.h.newNames[1-i]), had[i].File)
		case storeop.Stays:
			q.leave(q.objectName(name), had[1-i].File)
		case storeop.Goes:
			q.removeObject(q.objectName(name))
		}
	}
}

// takeSuspect forgets that an object may be there without a record, and reports whether it may.
func (q *queue) takeSuspect(object string) bool {
	_, left := q.orphans[object]
	delete(q.orphans, object)
	for e := range q.suspect {
		if e.suspect == object {
			q.clearSuspect(e)
			left = true
		}
	}
	return left
}

// leave records that an object may be there without a record, under the name of a file whose flush replaces it. The
// file may be open for writing.
func (q *queue) leave(object string, file bb.FileID) {
	if e := q.entries[file]; e != nil && e.suspect == "" {
		q.setSuspect(e, object)
	} else {
		q.orphans[object] = struct{}{}
	}
}

// Quiet waits until nothing is left to do on the store under the held names. Then the flushes of
// another flusher there are not undone by this one. The error is that of ctx.
func (h *Held) Quiet(ctx context.Context) error {
	return h.until(ctx, func(*storeop.Op) bool { return false })
}

// CleanedUp waits until objects that cancelled flushes may have left under the held names are gone from
// the store. The error is that of ctx.
func (h *Held) CleanedUp(ctx context.Context) error {
	return h.until(ctx, func(op *storeop.Op) bool { return !op.Orphan })
}

// until waits until none but some operations concern the held names.
func (h *Held) until(ctx context.Context, but func(*storeop.Op) bool) error {
	for {
		h.f.mu.Lock()
		busy := h.q.ops.Any(func(op *storeop.Op) bool {
			return !but(op) && slices.ContainsFunc(h.h.paths, op.Concerns)
		}) || slices.ContainsFunc(h.h.paths, h.q.blocked)
		changed := h.q.changed
		h.f.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return bb.Wrap("hold", h.q.buffer, ctx.Err())
		}
	}
}

// Release ends the hold. Idempotent.
func (h *Held) Release() { h.once.Do(func() { h.f.lift(h.q, h.h) }) }

// blocked reports whether an attempt that was overtaken has not ended yet and concerns a
// path. mu is held.
func (q *queue) blocked(path string) bool {
	for fl := range q.running {
		if fl.blocks(path) {
			return true
		}
	}
	return false
}

// place begins a hold and cancels the attempts that it concerns. Those not yet fixed to a path check
// for holds later.
func (f *Flusher) place(h *hold, buffer string) (*queue, []*attempt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return nil, nil, bb.E(bb.Unavailable, "hold", buffer, "the daemon is stopping")
	}
	q := f.queue(buffer)
	q.holds[h] = struct{}{}
	q.epoch++
	var attempts []*attempt
	for fl := range q.running {
		if fl.path != "" && h.concerns(fl.path) {
			fl.cancel(errHeld)
			attempts = append(attempts, fl)
		}
	}
	return q, attempts, nil
}

// lift ends a hold.
func (f *Flusher) lift(q *queue, h *hold) {
	f.mu.Lock()
	delete(q.holds, h)
	q.epoch++ // an attempt that looked up its path during the hold may have the former one
	q.release(h.paths)
	f.mu.Unlock()
	f.kick()
}

// removeSuspects queues the removal of objects that a cancelled or failed Put may have left under a
// held name, since they have no record in the namespace, so no rename or removal would carry them
// along. It reports whether there are any.
func (q *queue) removeSuspects(h *hold) (some bool) {
	for e := range q.suspect {
		if h.concernsSuspect(e) && !q.keeps(h, e.suspect) {
			q.removeObject(e.suspect)
			q.clearSuspect(e)
			some = true
		}
	}
	for object := range q.orphans {
		if h.concerns(q.removal(object).Old) && !q.keeps(h, object) {
			q.removeObject(object)
			delete(q.orphans, object)
			some = true
		}
	}
	return some
}

// keeps reports whether a hold leaves an object to what follows.
func (q *queue) keeps(h *hold, object string) bool {
	return slices.ContainsFunc(h.newNames, func(name string) bool { return object == q.objectName(name) })
}
