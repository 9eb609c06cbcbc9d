// Package tail holds the newest records of a log in a daemon's memory, which a server may lose with
// its power. Before the owner of a log answers, another daemon holds each record, so that the next
// owner can store lost records again. It does no I/O, and must never depend on the content of a record.
package tail

import (
	"crypto/rand"
	"sync"
	"time"
)

// Record is a record of a log as it was stored.
type Record struct {
	Seq   uint64
	After uint64 // of a claim: the revision that all changes before it are below; of other records 0
	Data  []byte // the message
}

// Limits bound the held records. Of more, the oldest records go.
type Limits struct {
	Age   time.Duration // 0: nothing is held
	Bytes int           // default 32 MiB
}

const recordBytes = 64 // that a record takes besides its message

// Tail is the records that a daemon holds, in the order in which they came. It is safe for concurrent use.
type Tail struct {
	id     [16]byte
	limits Limits

	mu    sync.Mutex
	held  []held
	next  uint64 // number of the next record
	bytes int
}

type held struct {
	Record
	number uint64
	came   time.Time
}

// New returns an empty tail.
func New(l Limits) *Tail {
	if l.Bytes <= 0 {
		l.Bytes = 32 << 20
	}
	t := &Tail{limits: l, next: 1}
	_, _ = rand.Read(t.id[:])
	return t
}

// ID distinguishes a tail from all others: those of the same daemon before a restart, too.
func (t *Tail) ID() [16]byte { return t.id }

// Holds reports whether anything is held.
func (t *Tail) Holds() bool { return t.limits.Age > 0 }

// Add holds records that came at a time. It keeps their messages.
func (t *Tail) Add(now time.Time, records ...Record) {
	if !t.Holds() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		t.held = append(t.held, held{r, t.next, now})
		t.next++
		t.bytes += len(r.Data) + recordBytes
	}
	t.trim(now)
}

// Trim drops the records that are too old by now.
func (t *Tail) Trim(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trim(now)
}

func (t *Tail) trim(now time.Time) {
	drop := 0
	for drop < len(t.held) && (now.Sub(t.held[drop].came) > t.limits.Age || t.bytes > t.limits.Bytes) {
		t.bytes -= len(t.held[drop].Data) + recordBytes
		drop++
	}
	if drop > 0 {
		clear(t.held[:drop])
		t.held = t.held[drop:]
	}
	if len(t.held) == 0 {
		t.held = nil
	}
}

// Came returns when the newest record of a sequence came that fits. Zero: none did, or it is not held any more.
func (t *Tail) Came(seq uint64, fits func(*Record) bool) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.held) - 1; i >= 0; i-- {
		if h := &t.held[i]; h.Seq == seq && fits(&h.Record) {
			return h.came
		}
	}
	return time.Time{}
}

// Page returns the records that fit and came after the one of a number, up to a sum of bytes but at least one, and
// the number of the last one; more: there are others.
func (t *Tail) Page(after uint64, bytes int, fits func(*Record) bool) (page []Record, last uint64, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last = after
	for i := range t.held {
		h := &t.held[i]
		if h.number <= after || !fits(&h.Record) {
			continue
		}
		if bytes -= len(h.Data) + recordBytes; bytes < 0 && len(page) > 0 {
			return page, last, true
		}
		page, last = append(page, h.Record), h.number
	}
	return page, last, false
}
