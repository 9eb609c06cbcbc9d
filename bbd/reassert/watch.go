package reassert

import (
	"context"
	"maps"
	"slices"
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Dirty bytes whose file has no entry, or an older one, are on no store and in no listing. The
// namespace has lost an acknowledged entry. They are found where they must not be: dirty, of a file
// that was closed here, and in no queue. Reassert restores their entries. Those that it cannot
// restore fail drains, and are named in status.
const (
	watchEvery   = 5 * time.Second // between looks for them
	watchAgain   = time.Minute     // between tries to restore the same entries
	confirmAfter = time.Second     // a file that is being removed has no entry for a moment
)

// suspect is one content that is held and not queued.
type suspect struct {
	file       bb.FileID
	generation bb.Generation
}

// unqueued returns the bytes of the suspects: dirty contents that this node has acknowledged and
// that are neither being written nor queued for a flush. A healthy buffer with a store has none,
// except files that are between two states.
func (b *Buffer) unqueued() map[suspect]int64 {
	found := make(map[suspect]int64)
	for f := range b.o.Store.Files() {
		newest := f.Generations[len(f.Generations)-1]
		if f.Buffer != b.name || newest.Dirty == 0 || !b.acknowledged(&f) || b.files.Queued(f.File) {
			continue
		}
		found[suspect{f.File, newest.Generation}] = newest.Dirty
	}
	return found
}

// acknowledged reports whether a file was closed at this node, as far as memory has it.
func (b *Buffer) acknowledged(f *store.FileInfo) bool {
	if b.files.Open(f.File) != nil {
		return false
	}
	_, closed := b.dirty.Of(f.File)
	return closed || f.Identity != nil
}

// Mend restores the entries of dirty files that the namespace has lost. Mended files are queued
// again. Files whose entry cannot be restored are noted, and returned.
func (b *Buffer) Mend(ctx context.Context) (left []fate.Unexplained, mended bool, err error) {
	suspects := b.unqueued()
	for try := 0; len(suspects) > 0; try++ {
		r, err := b.Reassert(ctx)
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
		maps.DeleteFunc(suspects, func(k suspect, _ int64) bool { _, ok := now[k]; return !ok })
	}
	if len(suspects) == 0 {
		left = nil
	}
	b.note(left)
	return left, mended, nil
}

// Unasked returns the bytes that are dirty and in no queue, after an error of Mend.
func (b *Buffer) Unasked(why error) (left []fate.Unexplained) {
	for k, bytes := range b.unqueued() {
		u := fate.Unexplained{File: k.file, Generation: k.generation, Bytes: bytes, Reason: "the namespace did not answer in time: " + why.Error()}
		if id, ok := b.o.Store.IdentityOf(k.file); ok {
			u.Path = id.Path
		}
		left = append(left, u)
	}
	return left
}

// stillUnexplained leaves those that are suspects.
func stillUnexplained(left []fate.Unexplained, suspects map[suspect]int64) []fate.Unexplained {
	return slices.DeleteFunc(slices.Clone(left), func(u fate.Unexplained) bool {
		_, ok := suspects[suspect{u.File, u.Generation}]
		return !ok
	})
}

// note records the bytes that no entry explains, for status, and publishes those that are new among them.
func (b *Buffer) note(left []fate.Unexplained) {
	b.mu.Lock()
	before := b.mu.unexplained
	b.mu.unexplained = left
	b.mu.Unlock()
	for i := range left {
		u := &left[i]
		if slices.ContainsFunc(before, func(o fate.Unexplained) bool { return o.File == u.File && o.Generation == u.Generation }) {
			continue
		}
		b.o.Log.Error("dirty bytes that no entry explains", "buffer", b.name, "path", u.Path, "file", u.File, "generation", u.Generation, "bytes", u.Bytes, "reason", u.Reason)
		b.o.Emit(bb.Event{Kind: bb.EventUnexplained, Buffer: b.name, Path: u.Path, Generation: u.Generation, Bytes: u.Bytes, Reason: u.String()})
	}
}

// Unexplained returns the bytes that no entry explained at the last check.
func (b *Buffer) Unexplained() []fate.Unexplained {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mu.unexplained)
}

// Connection is the connection to the namespace's server.
type Connection struct {
	Connected  bool
	Reconnects uint64 // how often it was made again
}

// Watch searches for entries that the namespace has lost: at intervals, and after each reconnection to
// its server, which may be another one, or have lost its files. It returns when ctx ends. Now
// returns the connection at this moment, and all the buffers.
func Watch(ctx context.Context, now func() Connection, all func() []*Buffer) {
	reconnects := now().Reconnects
	w := make(map[*Buffer]watched)
	for pause(ctx, watchEvery) {
		now := now()
		if !now.Connected {
			continue
		}
		again := now.Reconnects != reconnects
		reconnects = now.Reconnects
		all := all()
		for _, b := range all {
			w[b] = b.look(ctx, w[b], again)
		}
		maps.DeleteFunc(w, func(b *Buffer, _ watched) bool { return !slices.Contains(all, b) })
	}
}

// pause waits for a while, and reports whether ctx has not ended.
func pause(ctx context.Context, t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-ctx.Done():
		return false
	}
}

// watched is the result of the last check of a buffer.
type watched struct {
	suspects map[suspect]int64
	tried    time.Time
	again    bool // the namespace's server may have gone back, and that look failed
}

// step is the action of a check of a buffer.
type step uint8

const (
	stepNone  step = iota // files may be between two states
	stepClear             // nothing is unexplained any more
	stepMend              // suspects have stayed
	stepAll               // clean files are compared, too; they are no suspects
)

// next decides the action for suspects. Again: the namespace's server may have gone back.
//
//	server      suspects                      step
//	went back   any                           all
//	stayed      some of the last look, again  mend, unless that was tried a short time ago
//	stayed      others                        none
//	stayed      none                          clear
func (last *watched) next(suspects map[suspect]int64, again bool, now time.Time) step {
	stay := false // a file in no queue at two checks is not between two states
	for k := range suspects {
		_, known := last.suspects[k]
		stay = stay || known
	}
	switch {
	case again:
		return stepAll
	case stay && now.Sub(last.tried) > watchAgain:
		return stepMend
	case len(suspects) == 0:
		return stepClear
	}
	return stepNone
}

// look makes one check. Again: the namespace's server may have gone back.
func (b *Buffer) look(ctx context.Context, last watched, again bool) watched {
	now := watched{tried: last.tried}
	if b.files.Spec().Backing != "" {
		now.suspects = b.unqueued()
	}
	again = again || last.again
	var err error
	switch last.next(now.suspects, again, time.Now()) {
	case stepAll:
		if _, err = b.Reassert(ctx); err == nil {
			_, _, err = b.Mend(ctx)
		}
	case stepMend:
		now.tried = time.Now()
		_, _, err = b.Mend(ctx)
	case stepClear:
		b.note(nil)
	}
	if err != nil && ctx.Err() == nil {
		// Clean files are no suspects, so only another check would find them.
		now.again = again
		b.o.Log.Warn("the search for files without an entry failed", "buffer", b.name, "err", err)
	}
	return now
}
