package owner

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/purge"
	"forebay/meta/nslog/record"
	"forebay/meta/retry"
	"forebay/meta/stream"
)

// Checkpoint writes all pages that have changed, and a manifest. When it returns, a start needs no
// log for changes that were acknowledged before the call.
func (w *Owner) Checkpoint(ctx context.Context) error {
	asked := make(chan error, 1)
	if err := w.Do(ctx, "checkpoint", w.o.Buffer, func(*Round) error {
		if !slices.Contains(w.at.asked, asked) && !slices.Contains(w.at.ending, asked) {
			w.at.asked = append(w.at.asked, asked)
		}
		return nil
	}); err != nil {
		return err
	}
	select {
	case err := <-asked:
		return bb.Wrap("checkpoint", w.o.Buffer, err)
	case <-ctx.Done():
		return w.gaveUp(ctx, "checkpoint", w.o.Buffer)
	}
}

// checkpoint does the next step of a checkpoint, if one is being made or due. It writes one page,
// or the manifest. Changes wait for that long. Its error ends the ownership.
func (w *Owner) checkpoint() error {
	o := &w.at
	if o.behind {
		w.o.Logger.Error("the namespace server has forgotten pages that it had acknowledged: they are stored again", "buffer", w.o.Buffer)
		return w.restore()
	}
	if !o.making {
		if o.logged < w.o.CheckpointBytes && len(o.asked) == 0 {
			return nil
		}
		o.making, o.todo = true, w.unwritten(o.todo[:0])
		o.ending, o.asked = o.asked, nil
	}
	var err error
	if last := len(o.todo) - 1; last >= 0 {
		err = w.writePage(o.todo[last])
		o.todo = o.todo[:last]
	} else if err = w.writeManifest(); err == nil {
		o.finished(nil)
	}
	if err == nil {
		return nil
	}
	fatal, err := w.refused(err)
	switch {
	case errors.Is(err, errRestored):
		return nil
	case fatal:
		return err
	}
	w.o.Logger.Error("a checkpoint of the namespace failed, another one is made later", "buffer", w.o.Buffer, "err", err)
	o.logged = 0
	o.finished(err)
	return nil
}

// finished ends a checkpoint.
func (o *position) finished(err error) {
	o.making, o.todo = false, nil
	answer(o.ending, err)
	o.ending = nil
}

// answer ends the wait of callers. A caller that was answered before gets nothing.
func answer(all []chan error, err error) {
	for _, asked := range all {
		select {
		case asked <- err:
		default:
		}
	}
}

// unwritten appends the numbers of the pages that have changed.
func (w *Owner) unwritten(numbers []int) []int {
	for number := range w.table.Pages() {
		if w.table.Since(number) != 0 || slices.Contains(w.at.broken, number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func (w *Owner) fence() stream.Fence {
	return stream.Fence{Subject: logSubject, Last: w.at.last}
}

// writePage writes a page as it is now.
func (w *Owner) writePage(number int) error {
	data := record.Seal(w.table.AppendPage(record.BeginPage(nil, number), number))
	subject := pageSubject + strconv.Itoa(number)
	seq, err := w.log.Append(w.ctx, subject, data, w.fence())
	if err != nil {
		return err
	}
	o := &w.at
	for len(o.pages) <= number {
		o.pages = append(o.pages, 0)
	}
	o.pages[number] = seq
	o.appended(seq)
	w.table.Written(number)
	o.broken = slices.DeleteFunc(o.broken, func(n int) bool { return n == number })
	o.old.replace(subject, seq)
	return nil
}

// writeManifest writes which messages of pages count, and the first change from which on the log
// does, which is the first that no page has.
func (w *Owner) writeManifest() error {
	o := &w.at
	start := o.last + 1
	for number := range w.table.Pages() {
		if since := w.table.Since(number); since != 0 {
			start = min(start, since)
		}
	}
	m := record.Contents{Start: start, Next: w.table.Next(), Spans: w.table.Spans(), Pages: o.pages}
	seq, err := w.log.Append(w.ctx, manifestSubject, m.Message(), w.fence())
	if err != nil {
		return err
	}
	o.logged = 0
	o.appended(seq)
	o.old.replace(manifestSubject, seq)
	o.old.replace(logSubject, min(start, o.last)) // the last record is the fence
	for subject, below := range o.old.complete(time.Now(), w.o.Settle) {
		w.purge.Below(subject, below)
	}
	return nil
}

// restore stores, unless another owner has claimed the log, all that the table has in a log that
// was found to end too early. It is tried until the owner is closed, or the log was destroyed in order. No other process
// has the lost records. A log that is gone again meanwhile is made again once more.
func (w *Owner) restore() error {
	for try := 0; ; try++ {
		err := w.restoreOnce()
		switch {
		case errors.Is(err, kv.ErrNoBucket):
			return kv.ErrNoBucket
		case err == nil || errors.Is(err, ErrReplaced) || w.ctx.Err() != nil:
			return err
		}
		w.o.Logger.Error("storing the namespace again failed, it is tried again", "buffer", w.o.Buffer, "err", err)
		retry.Pause(w.ctx, min(try, 5))
	}
}

func (w *Owner) restoreOnce() error {
	o := &w.at
	last, err := w.found()
	if err != nil {
		return err
	}
	if known, err := o.knows(last); err != nil || !known || w.outdated() {
		return errors.Join(err, &bb.Error{Kind: bb.Unavailable, Op: "change", Path: w.o.Buffer, Err: ErrReplaced})
	}
	w.purge.Stop() // its sequences are of the log as it was
	w.purge = purge.Start(w.ctx, w.log, w.o.Logger)
	o.old = replaced{}
	o.asked, o.ending = append(o.asked, o.ending...), nil
	o.finished(nil)
	o.acked = max(o.acked, o.last)
	o.last, o.top, o.behind = last.Seq, last.Seq, false
	if last.Seq == 0 {
		return w.restoreEmpty()
	}
	for number := range w.table.Pages() {
		if err := w.writePage(number); err != nil {
			return err
		}
	}
	// A start before the manifest is stored reads none of these pages, and the log as it was found.
	if err := w.claimAfter(w.ctx, last.Seq, o.acked, 0); err != nil {
		return err
	}
	w.keepClaim(w.ctx)
	if err := w.writeManifest(); err != nil {
		return err
	}
	o.acked = 0
	return nil
}

// restoreEmpty is restoreOnce of a log without any record.
func (w *Owner) restoreEmpty() error {
	o := &w.at
	if err := w.claimAfter(w.ctx, 0, o.acked, 0); err != nil {
		return err
	}
	w.keepClaim(w.ctx)
	for number := range w.table.Pages() {
		if err := w.writePage(number); err != nil {
			return err
		}
	}
	if err := w.writeManifest(); err != nil {
		return err
	}
	o.acked = 0
	return nil
}

// found returns the newest record of the log, which is made again if it is gone, unless it was destroyed in order
// (kv.ErrNoBucket).
func (w *Owner) found() (stream.Message, error) {
	last, err := w.log.Last(w.ctx, logSubject)
	if !errors.Is(err, stream.ErrGone) {
		return last, err
	}
	if w.o.Remake != nil {
		err = w.o.Remake(w.ctx)
	}
	if errors.Is(err, stream.ErrGone) {
		return last, kv.ErrNoBucket
	}
	if err != nil {
		return last, err
	}
	w.o.Logger.Error("the namespace server did not have the log any more: it is made again, and all is stored again from memory", "buffer", w.o.Buffer)
	return w.log.Last(w.ctx, logSubject)
}

// outdated reports whether another owner may have acknowledged changes that this one does not have, of which the log has
// no trace any more. While this owner's lease lasts there is none. Later, a daemon that lives may know of one.
func (w *Owner) outdated() bool {
	if w.holds() || w.o.Held == nil {
		return false
	}
	next := w.table.Next()
	held := w.o.Held(w.ctx, next)
	return held.Seen >= next || slices.ContainsFunc(openHeld(held.Records), func(r heldRecord) bool {
		return r.changes() && r.head.First >= next
	})
}

// knows reports whether a record is one that led to this owner's table, or none at all. Owners
// that come later have higher revisions, by their clocks.
func (o *position) knows(m stream.Message) (bool, error) {
	if m.Seq == 0 {
		return true, nil
	}
	kind, body, err := record.Open(m.Data)
	if err != nil {
		return false, err
	}
	h, _, err := record.OpenHead(kind, body)
	return h.Owner == o.id || h.First < o.floor, err
}
