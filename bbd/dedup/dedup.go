// Package dedup records the last commit of each writer of a file, so that one that is repeated is
// carried out once. It must never depend on the changes of a commit.
package dedup

import (
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// A writer whose connection breaks while it waits for the answer to a commit repeats the commit.
// Carried out twice it would undo the commit of another writer to the same range in between. So
// commits have numbers, and a file's owner records the last one of each writer. It carries none out
// that is not newer. An owner's records go with its process. Then a repeated commit counts as a new
// one.

// ID names a commit. The zero ID names none.
type ID struct{ Writer, Number uint64 }

// Table records the last commit of each writer. The zero value is ready. Its methods may be called
// concurrently.
type Table struct {
	mu   lockorder.Mutex[lockrank.Leaf]
	last map[key]lastCommit
	most int // default maxEntries
}

type key struct {
	file   bb.FileID
	writer uint64
}

type lastCommit struct {
	generation bb.Generation
	number     uint64
	at         time.Time
}

const (
	// maxEntries bounds the records of a buffer's writers, some 100 bytes each.
	maxEntries = 1 << 16
	// entryLife is how long a commit is recorded at least, unless there are too many. It is much
	// longer than the time in which a client or a forwarding node repeats one.
	entryLife = 5 * time.Minute
)

// Seen reports whether a commit, or a later one of its writer, is part of a
// generation already.
func (r *Table) Seen(file bb.FileID, n bb.Generation, id ID) bool {
	return id.Writer != 0 && id.Number <= r.Last(file, n, id.Writer)
}

// Last returns the number of a writer's last commit to a generation, or 0 if none is recorded.
func (r *Table) Last(file bb.FileID, n bb.Generation, writer uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[key{file, writer}]; last.generation == n {
		return last.number
	}
	return 0
}

// Add records a commit that was carried out.
func (r *Table) Add(file bb.FileID, n bb.Generation, id ID) {
	if id.Writer == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[key]lastCommit)
	}
	newest := key{file, id.Writer}
	r.last[newest] = lastCommit{n, id.Number, time.Now()}
	most := r.most
	if most == 0 {
		most = maxEntries
	}
	// Half of the bound is evicted at a time, so that this is rare.
	for life := entryLife; len(r.last) > most; life /= 8 {
		for k, c := range r.last {
			if k != newest && time.Since(c.at) >= life && len(r.last) > most/2 {
				delete(r.last, k)
			}
		}
	}
}
