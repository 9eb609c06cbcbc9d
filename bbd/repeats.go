package bbd

import (
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
)

// A writer whose connection breaks while it waits for the answer to a commit repeats the
// commit. Carried out twice it would undo what another writer has committed to the same
// range in between. So commits have numbers, and a file's home remembers the last one of
// each writer: it carries none out that is not newer. What a home remembers goes with its
// process; then a repeated commit counts as a new one.

// commitID names a commit; the zero one has no name.
type commitID struct{ writer, number uint64 }

func commitOf(m *wire.Commit) commitID { return commitID{m.Writer, m.Number} }

// repeats remembers the last commit of each writer. Safe for concurrent use.
type repeats struct {
	mu   lockorder.Mutex[lockrank.Leaf]
	last map[repeatKey]lastCommit
	most int // default maxRepeats
}

type repeatKey struct {
	file   bb.FileID
	writer uint64
}

type lastCommit struct {
	generation bb.Generation
	number     uint64
	at         time.Time
}

const (
	// maxRepeats bounds what is remembered of a buffer's writers: some 100 bytes each.
	maxRepeats = 1 << 16
	// repeatLife is how long a commit is remembered at least, unless there are too many:
	// much longer than anybody repeats one (relayPatience).
	repeatLife = 5 * time.Minute
)

// carriedOut reports whether a commit, or a later one of its writer, is part of a
// generation already.
func (r *repeats) carriedOut(file bb.FileID, n bb.Generation, id commitID) bool {
	return id.writer != 0 && id.number <= r.lastOf(file, n, id.writer)
}

// lastOf returns the number of a writer's last commit to a generation; 0: none that is
// remembered.
func (r *repeats) lastOf(file bb.FileID, n bb.Generation, writer uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[repeatKey{file, writer}]; last.generation == n {
		return last.number
	}
	return 0
}

// note remembers a commit that was carried out.
func (r *repeats) note(file bb.FileID, n bb.Generation, id commitID) {
	if id.writer == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[repeatKey]lastCommit)
	}
	newest := repeatKey{file, id.writer}
	r.last[newest] = lastCommit{n, id.number, time.Now()}
	most := r.most
	if most == 0 {
		most = maxRepeats
	}
	// Half of what there may be is let go at a time, so that this is rare.
	for life := repeatLife; len(r.last) > most; life /= 8 {
		for k, c := range r.last {
			if k != newest && time.Since(c.at) >= life && len(r.last) > most/2 {
				delete(r.last, k)
			}
		}
	}
}
