package bbd

import (
	"context"
	"maps"
	"slices"
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Dirty bytes whose file has no entry, or an older one, are on no store and in no listing:
// the namespace has forgotten what it acknowledged. They are found where they must not be:
// dirty, of a file that was closed here, and in no queue. The namespace is told again
// (reassert); what cannot be mended that way fails drains, and is named in status.
const (
	watchEvery   = 5 * time.Second // between looks for them
	watchAgain   = time.Minute     // between tries to mend the same
	confirmAfter = time.Second     // a file that is being removed has no entry for a moment
)

// forgottenKey is one content that is held and not queued.
type forgottenKey struct {
	file       bb.FileID
	generation bb.Generation
}

// unqueued returns what this node has acknowledged and holds dirty, and what is neither
// being written nor waits for its flush. In a healthy buffer with a store there is none, but
// for files that are between two states.
func (b *buffer) unqueued() map[forgottenKey]int64 {
	found := make(map[forgottenKey]int64)
	for f := range b.d.store.Files() {
		newest := f.Generations[len(f.Generations)-1]
		if f.Buffer != b.name || newest.Dirty == 0 || !b.acknowledged(&f) || b.d.flusher.Has(b.name, f.File) {
			continue
		}
		found[forgottenKey{f.File, newest.Generation}] = newest.Dirty
	}
	return found
}

// acknowledged reports whether a file was closed at this node, as far as memory knows.
func (b *buffer) acknowledged(f *store.FileInfo) bool {
	if b.open.of(f.File) != nil {
		return false
	}
	_, closed := b.dirty.Of(f.File)
	return closed || f.Identity != nil
}

// mendForgotten has the namespace told again of what it has forgotten. Mended: files are
// queued again. What cannot be mended is noted, and returned.
func (b *buffer) mendForgotten(ctx context.Context) (left []fate.Unexplained, mended bool, err error) {
	suspects := b.unqueued()
	for try := 0; len(suspects) > 0; try++ {
		r, err := b.reassert(ctx)
		if err != nil {
			return nil, mended, err
		}
		mended = mended || len(r.Remade)+len(r.SetAside) > 0
		left = stillUnexplained(r.Left, suspects)
		if len(left) == 0 || try == 1 {
			break
		}
		select {
		case <-time.After(confirmAfter):
		case <-ctx.Done():
			return nil, mended, ctx.Err()
		}
		now := b.unqueued()
		maps.DeleteFunc(suspects, func(k forgottenKey, _ int64) bool { _, ok := now[k]; return !ok })
	}
	if len(suspects) == 0 {
		left = nil
	}
	b.noteUnexplained(left)
	return left, mended, nil
}

// unasked returns what is dirty and in no queue when the namespace could not be asked about it.
func (b *buffer) unasked(why error) (left []fate.Unexplained) {
	for k, bytes := range b.unqueued() {
		u := fate.Unexplained{File: k.file, Generation: k.generation, Bytes: bytes, Reason: "the namespace was not asked about them in time: " + why.Error()}
		if id, ok := b.d.store.IdentityOf(k.file); ok {
			u.Path = id.Path
		}
		left = append(left, u)
	}
	return left
}

// stillUnexplained leaves those that are suspects.
func stillUnexplained(left []fate.Unexplained, suspects map[forgottenKey]int64) []fate.Unexplained {
	return slices.DeleteFunc(slices.Clone(left), func(u fate.Unexplained) bool {
		_, ok := suspects[forgottenKey{u.File, u.Generation}]
		return !ok
	})
}

// noteUnexplained remembers what no entry explains, for status, and tells everybody of what
// is new among it.
func (b *buffer) noteUnexplained(left []fate.Unexplained) {
	b.forgotten.Lock()
	before := b.forgotten.list
	b.forgotten.list = left
	b.forgotten.Unlock()
	for i := range left {
		u := &left[i]
		if slices.ContainsFunc(before, func(o fate.Unexplained) bool { return o.File == u.File && o.Generation == u.Generation }) {
			continue
		}
		b.d.log.Error("dirty bytes that no entry explains", "buffer", b.name, "path", u.Path, "file", u.File, "generation", u.Generation, "bytes", u.Bytes, "reason", u.Reason)
		b.d.emit(bb.Event{Kind: bb.EventUnexplained, Buffer: b.name, Path: u.Path, Generation: u.Generation, Bytes: u.Bytes, Reason: u.String()})
	}
}

// unexplained returns what no entry explained when it was last looked.
func (b *buffer) unexplained() []fate.Unexplained {
	b.forgotten.Lock()
	defer b.forgotten.Unlock()
	return slices.Clone(b.forgotten.list)
}

// watchForgotten looks from time to time for what the namespace has forgotten, and whenever
// its server has been reached again: it may be another one, or have lost its files.
func (d *Daemon) watchForgotten() {
	reconnects := d.meta.Status().Reconnects
	w := make(map[*buffer]watched)
	for d.pause(watchEvery) {
		now := d.meta.Status()
		again := now.Reconnects != reconnects
		if !now.Connected {
			continue
		}
		reconnects = now.Reconnects
		all := d.allBuffers()
		for _, b := range all {
			w[b] = b.lookForForgotten(w[b], again)
		}
		maps.DeleteFunc(w, func(b *buffer, _ watched) bool { return !slices.Contains(all, b) })
	}
}

// watched is what the last look at a buffer has found.
type watched struct {
	suspects map[forgottenKey]int64
	tried    time.Time
	again    bool // the namespace's server may have gone back, and that look failed
}

// lookForForgotten is one look. Again says that the namespace's server may have gone back.
func (b *buffer) lookForForgotten(last watched, again bool) watched {
	now := watched{tried: last.tried}
	if b.Spec().Backing != "" {
		now.suspects = b.unqueued()
	}
	stay := false // what has been in no queue at two looks is not between two states
	for k := range now.suspects {
		_, known := last.suspects[k]
		stay = stay || known
	}
	again = again || last.again
	var err error
	switch {
	case again:
		if _, err = b.reassert(b.d.ctx); err == nil {
			_, _, err = b.mendForgotten(b.d.ctx)
		}
	case stay && time.Since(last.tried) > watchAgain:
		now.tried = time.Now()
		_, _, err = b.mendForgotten(b.d.ctx)
	case len(now.suspects) == 0:
		b.noteUnexplained(nil)
	}
	if err != nil && b.d.ctx.Err() == nil {
		// What is clean is no suspect, so nothing but another look would find it.
		now.again = again
		b.d.log.Warn("looking for what the namespace has forgotten", "buffer", b.name, "err", err)
	}
	return now
}
