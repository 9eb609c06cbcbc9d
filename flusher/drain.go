package flusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"forebay/flusher/why"
	"forebay/internal/bb"
)

// Wait returns nil when nothing of the key is queued any more: it, or a newer generation, is durable. It makes the flush of
// the file urgent. If the file went away meanwhile, it is bb.NotFound. If the context ends first, the error has the reason
// of the last failure. The key must have been queued before, since a key that was not is indistinguishable from one that is
// durable already.
func (f *Flusher) Wait(ctx context.Context, key Key) error {
	done, e := f.await(key)
	if done == nil {
		return nil
	}
	f.kick()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.unwait(done)
	reason := errors.New("its flush has not ended yet")
	if now := f.mu.queues[key.Buffer]; now != nil && now.entries[key.File] == e {
		reason = now.unsavedOf()(e).Err
	} else if err := e.reason(); err != nil {
		reason = err
	}
	return &bb.Error{Kind: bb.KindOf(ctx.Err()), Op: "flush", Path: key.Buffer + "/" + e.path, Err: fmt.Errorf("not durable after %s: %w", bb.Count(e.attempts, "failed attempt"), reason)}
}

func (f *Flusher) await(key Key) (chan error, *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[key.Buffer]
	if q == nil {
		return nil, nil
	}
	e := q.entries[key.File]
	if e == nil {
		return nil, nil
	}
	done := make(chan error, 1)
	e.waiters = append(e.waiters, waiter{key.Generation, done})
	if e.state == stateFlying {
		e.urgent = true
	} else {
		q.change(e, func() { e.urgent = true })
	}
	return done, e
}

func (e *entry) unwait(done chan error) {
	for i := range e.waiters {
		if e.waiters[i].done == done {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			return
		}
	}
}

// checkEvery is the least time between two checks of all keys by FlushFirst.
const checkEvery = 20 * time.Millisecond

// FlushFirst flushes some files of a buffer before its others, and waits. It returns when nothing of them is queued any more
// but files that a pattern keeps back, or with failures that do not pass by themselves. It also returns when ctx ends. It
// returns those that are then left. As with Wait, a key that was not queued counts as durable. Told, which may be nil, is
// called with the number of files and bytes left, from this goroutine.
func (f *Flusher) FlushFirst(ctx context.Context, buffer string, keys []Key, told func(files, bytes int64)) []Unsaved {
	keys = slices.Clone(keys)
	f.urge(buffer, keys)
	f.kick()
	for {
		left, stuck, changed := f.unflushed(buffer, keys)
		if told != nil {
			var bytes int64
			for i := range left {
				bytes += left[i].Bytes
			}
			told(int64(len(left)), bytes)
		}
		if len(left) == stuck || ctx.Err() != nil {
			return left
		}
		keys = keys[:0]
		for i := range left {
			keys = append(keys, left[i].Key)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(checkEvery):
		case <-ctx.Done():
		}
	}
}

// Has reports whether a file is queued, held back, or on its way to the store.
func (f *Flusher) Has(buffer string, file bb.FileID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[buffer]
	return q != nil && q.entries[file] != nil
}

// OpsStuck returns the reason why a buffer's operations on the store under a path make no progress,
// or nil if that passes by itself.
func (f *Flusher) OpsStuck(buffer, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.mu.queues[buffer]; q != nil {
		return q.ops.Stuck().At(path)
	}
	return nil
}

// urge has files flushed next, and tried anew.
func (f *Flusher) urge(buffer string, keys []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[buffer]
	if q == nil {
		return
	}
	q.retryOps()
	for _, k := range keys {
		e := q.entries[k.File]
		switch {
		case e == nil:
			continue
		case e.state == stateFlying:
			e.urgent = true
		default:
			q.change(e, func() { e.urgent = true })
		}
		q.retry(e)
	}
}

// unflushed returns those of the keys that are queued, how many of them will not move by
// themselves, and a channel that is closed on a change.
func (f *Flusher) unflushed(buffer string, keys []Key) (left []Unsaved, stuck int, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[buffer]
	if q == nil {
		return nil, 0, nil
	}
	ops := q.ops.Stuck()
	describe := q.unsavedOf()
	for _, k := range keys {
		e := q.entries[k.File]
		if e == nil || e.item.Generation > k.Generation {
			continue
		}
		u := describe(e)
		var behind error // the operation that it waits for
		if e.state == stateParked {
			behind = ops.At(e.path)
		}
		u.Err = cmp.Or(behind, u.Err)
		left = append(left, u)
		stuck += index(e.gaveUp || e.state == stateHeld || behind != nil || q.ctx.Err() != nil)
	}
	return left, stuck, q.changed
}

// Progress is the state of a drain so far. Totals grow while files are still written.
type Progress struct {
	FilesDone, FilesTotal int64
	BytesDone, BytesTotal int64
	Failing               int   // files whose last attempt failed
	LastError             error // of one of them
	Rate                  float64
	OldestDirty           time.Time
}

// Report is the result of a drain. It names at most MaxReported of each kind. The counts are of all.
type Report struct {
	Flushed      int64
	FlushedBytes int64

	Unsaved      []Unsaved // files that could not be saved
	UnsavedCount int
	UnsavedBytes int64
	Ops          int   // renames and removals that could not be carried out
	OpError      error // why

	Excluded      []string // files that a pattern keeps back, but not those that a flush rule does
	ExcludedCount int
	Open          []string // files open for writing
	OpenCount     int
}

// MaxReported bounds the names in a Report.
const MaxReported = 10_000

// Unsaved is a file that a drain could not save.
type Unsaved struct {
	Key      Key
	Path     string // "" if it was never looked at
	Bytes    int64
	Attempts int
	Err      error     // why
	Since    time.Time // dirty since
}

// Complete reports whether everything in the buffer is saved.
func (r *Report) Complete() bool {
	return r.UnsavedCount == 0 && r.Ops == 0 && r.ExcludedCount == 0 && r.OpenCount == 0
}

// Err returns nil if everything is saved, else an error that counts the rest.
func (r *Report) Err(buffer string) error {
	if r.Complete() {
		return nil
	}
	kind, reason := bb.Busy, ""
	switch {
	case len(r.Unsaved) > 0 && r.Unsaved[0].Err != nil:
		kind, reason = bb.KindOf(r.Unsaved[0].Err), ": "+r.Unsaved[0].Path+": "+r.Unsaved[0].Err.Error()
	case r.OpError != nil:
		kind, reason = bb.KindOf(r.OpError), ": "+r.OpError.Error()
	}
	e := bb.E(kind, "drain", bb.Address{Buffer: buffer}.String(), fmt.Sprintf(
		"not everything is saved: %s failed or unfinished (%s), %s, %s kept back, %d open for writing%s",
		bb.Count(r.UnsavedCount, "file"), bb.Count(r.UnsavedBytes, "byte"), bb.Count(r.Ops, "change of names", "changes of names"),
		bb.Count(r.ExcludedCount, "file"), r.OpenCount, reason))
	if r.UnsavedCount == 0 && r.Ops == 0 {
		return e.WithRemedy("close open files, and rename or remove those that are kept back")
	}
	return e
}

// progressEvery is the time between a drain's calls of progress.
const progressEvery = 200 * time.Millisecond

// Drain flushes all files of a buffer and carries out its operations, and waits. It returns when all of it is done, when
// only failures are left that do not pass by themselves, or when ctx ends. The rest is still tried afterwards. The error is nil
// only if everything in the buffer is saved: not if files are kept back by a pattern or open for writing, which the report
// lists apart. progress may be nil. It is called from this goroutine.
func (f *Flusher) Drain(ctx context.Context, buffer string, progress func(Progress)) (Report, error) {
	d, err := f.beginDrain(buffer)
	if err != nil {
		return Report{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	f.kick()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		ended, changed := d.look()
		if ended {
			break
		}
		select {
		case <-changed:
		case <-ticker.C:
			progress(d.progress())
		case <-ctx.Done():
		}
	}
	progress(d.progress())
	report, err := d.end(ctx)
	return report, errors.Join(err, report.Err(buffer))
}

// drain is one call of Drain.
type drain struct {
	f     *Flusher
	q     *queue
	last  uint64 // id of the newest entry when it last looked, or began
	files int64  // flushed before it began
	bytes int64
}

func (f *Flusher) beginDrain(buffer string) (*drain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return nil, bb.E(bb.Unavailable, "drain", buffer, "the daemon is stopping")
	}
	q := f.queue(buffer)
	q.draining++
	for _, e := range q.entries {
		q.retry(e)
	}
	q.retryOps()
	return &drain{f: f, q: q, last: f.mu.lastID, files: q.stats.flushed, bytes: q.stats.flushedBytes}, nil
}

// retry tries an entry that failed at once. The failure of an attempt in progress is of before, since
// its cause may be gone by now.
func (q *queue) retry(e *entry) {
	e.outdated = e.state == stateFlying
	if e.gaveUp {
		e.gaveUp = false
		q.stats.gaveUp--
	}
	if e.state == stateWaiting {
		q.move(e, stateReady)
		e.notBefore = time.Time{}
	}
}

// reason returns the reason why the entry is not durable, or nil if there is none on record.
func (e *entry) reason() error {
	if e.attempt == nil {
		return e.err
	}
	now := e.attempt.f.opts.Now()
	at, stalled := e.attempt.stalled(now)
	if !stalled {
		return e.err
	}
	return bb.E(bb.Unavailable, "flush", e.path, fmt.Sprintf("the store has not answered for %v", now.Sub(at).Round(time.Second))).
		WithRemedy(why.LookAfterStore)
}

// look reports whether nothing is left to wait for, and returns a channel that is closed on a change.
func (d *drain) look() (ended bool, changed <-chan struct{}) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	q := d.q
	d.last = d.f.mu.lastID
	left, ops := len(q.entries)-q.held.Len()-q.stats.gaveUp, q.ops.Stuck()
	opsLeft := q.ops.Len() > ops.Len()
	if ops.Len() > 0 { // files that wait for the operations will not move either
		for e := range q.parked {
			left -= index(!e.gaveUp && ops.At(e.path) != nil)
		}
	}
	return left <= 0 && !opsLeft || q.ctx.Err() != nil, q.changed
}

func (d *drain) progress() Progress {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	s := d.q.describe()
	p := Progress{
		FilesDone: s.Flushed - d.files, BytesDone: s.FlushedBytes - d.bytes,
		Failing: s.Failing, LastError: s.LastError, Rate: s.Rate, OldestDirty: s.OldestDirty,
	}
	p.FilesTotal, p.BytesTotal = p.FilesDone+int64(s.Queued), p.BytesDone+s.QueuedBytes
	for fl := range d.q.running {
		p.BytesDone += min(fl.read.Load(), fl.size)
	}
	return p
}

func (d *drain) end(ctx context.Context) (Report, error) {
	var open []string
	var err error
	if lister, ok := d.f.opts.Catalog.(OpenLister); ok {
		// Also when ctx has ended, since the report should be complete.
		open, err = lister.OpenFiles(context.WithoutCancel(ctx), d.q.buffer)
	}
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	q := d.q
	q.draining--
	r := Report{
		Flushed: q.stats.flushed - d.files, FlushedBytes: q.stats.flushedBytes - d.bytes,
		Open: open[:min(len(open), MaxReported)], OpenCount: len(open), ExcludedCount: q.held.Len() - q.stats.ruled, Ops: q.ops.Len(), OpError: q.ops.Err(),
	}
	q.held.Scan(func(e *entry) bool {
		if !e.ruled {
			r.Excluded = append(r.Excluded, e.path)
		}
		return len(r.Excluded) < MaxReported
	})
	describe := q.unsavedOf()
	q.byAge.Scan(func(e *entry) bool {
		if e.id > d.last {
			return true // it came after the end
		}
		r.UnsavedCount, r.UnsavedBytes = r.UnsavedCount+1, r.UnsavedBytes+e.item.Size
		if len(r.Unsaved) < MaxReported {
			r.Unsaved = append(r.Unsaved, describe(e))
		}
		return true
	})
	if q.ctx.Err() != nil && d.f.mu.closed {
		err = errors.Join(err, bb.E(bb.Unavailable, "drain", q.buffer, "the daemon is stopping"))
	}
	return r, err
}
