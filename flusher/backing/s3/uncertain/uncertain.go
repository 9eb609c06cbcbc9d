// Package uncertain watches the names of a store under which a request may still be carried out although its answer
// was lost. It decides the meaning of a check of such a name. The check is its user's: it must never send a
// request, nor depend on a protocol.
package uncertain

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"forebay/flusher/backing"
)

// maxNames bounds the names that are watched. Beyond it, the oldest is dropped.
const maxNames = 1000

// Name is the state of an uncertain name.
type Name struct {
	until time.Time
	Puts  []Content // the possible contents then
	// The state confirmed since: that the name is gone, or its content. Without either, nothing was
	// confirmed.
	Gone bool
	ETag string
}

// Content distinguishes an object that a PUT makes from others.
type Content struct {
	Size int64
	Sum  uint64
}

func (c Content) is(o *backing.Object) bool {
	return o.Size == c.Size && (!o.HasChecksum || o.Checksum == c.Sum)
}

// Finding is the meaning of a check of an uncertain name.
type Finding uint8

// The findings.
const (
	AsItShould Finding = iota
	CameBack           // a removed object
	Changed            // a confirmed object has been overwritten, or removed
)

// Find interprets an object, nil if there is none.
func (d *Name) Find(o *backing.Object) Finding {
	late := false
	for _, c := range d.Puts {
		late = late || o != nil && c.is(o)
	}
	switch {
	case d.Gone && late:
		return CameBack
	case d.ETag != "" && o == nil, d.ETag != "" && o.ETag != d.ETag && late:
		return Changed
	}
	return AsItShould
}

// Confirmed reports whether anything was confirmed of the name since the request. Without that,
// there is nothing to compare with.
func (d *Name) Confirmed() bool { return d.Gone || d.ETag != "" }

// Options configures a watch.
type Options struct {
	Life     time.Duration // how long a request may be on its way
	Shortest time.Duration // the first pause between two checks
	Longest  time.Duration // the longest, to which pauses are doubled
	// Look compares a name with its expected content. It is called by one goroutine, without a
	// lock, and has to end soon after its context.
	Look   func(ctx context.Context, name string, one *Name) error
	Logger *slog.Logger
}

// Watch is a set of uncertain names, and a goroutine that checks them while there are any. It
// may be used concurrently.
type Watch struct {
	o    Options
	life context.Context // the watch's, ended by Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	names   map[string]*Name
	running bool // the goroutine
}

// New returns a watch of no names.
func New(o Options) *Watch {
	w := &Watch{o: o, names: map[string]*Name{}}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// Close ends the watch and waits for a check in progress.
func (w *Watch) Close() {
	w.mu.Lock() // under which Note begins the goroutine
	w.end()
	w.mu.Unlock()
	w.wg.Wait()
}

// Note adds that a request to a name may be carried out later. put is its object, nil if the
// request removes. After Close it does nothing.
func (w *Watch) Note(name string, put *Content) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.Err() != nil {
		return
	}
	one := w.names[name]
	if one == nil {
		w.forgetOldest()
		one = &Name{}
		w.names[name] = one
	}
	one.until = time.Now().Add(w.o.Life)
	if put != nil && len(one.Puts) < maxNames {
		one.Puts = append(one.Puts, *put)
	}
	if !w.running {
		w.running = true
		w.wg.Go(w.run)
	}
}

// Again continues with a name that a late request has changed, until it is put again. It is called
// by Look.
func (w *Watch) Again(name string, one *Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[name] == nil {
		w.forgetOldest()
		w.names[name] = &Name{until: time.Now().Add(w.o.Life), Puts: one.Puts, Gone: one.Gone, ETag: one.ETag}
	}
}

func (w *Watch) forgetOldest() {
	if len(w.names) < maxNames {
		return
	}
	oldest := ""
	for name, one := range w.names {
		if oldest == "" || one.until.Before(w.names[oldest].until) {
			oldest = name
		}
	}
	delete(w.names, oldest)
}

// IsLate reports whether an object is one that a request of unknown outcome has put over a confirmed one.
func (w *Watch) IsLate(name string, o *backing.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.names[name]
	return one != nil && one.Find(o) == Changed
}

// Confirm adds the store's answer to a request to a name: the entity tag of its object, "" if
// it is gone.
func (w *Watch) Confirm(name, etag string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.names[name]; one != nil {
		one.Gone, one.ETag = etag == "", etag
	}
}

// ConfirmGone is Confirm of every name that in holds for, as gone.
func (w *Watch) ConfirmGone(in func(name string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, one := range w.names {
		if in(name) {
			one.Gone, one.ETag = true, ""
		}
	}
}

// Stale reports whether something was confirmed of a name since one was handed to Look.
func (w *Watch) Stale(name string, one *Name) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.names[name]
	return now != nil && (now.Gone != one.Gone || now.ETag != one.ETag)
}

// run checks the names, more and more seldom, until there are none.
func (w *Watch) run() {
	for pause := w.o.Shortest; ; pause = min(2*pause, w.o.Longest) {
		select {
		case <-time.After(pause):
		case <-w.life.Done():
			return
		}
		todo := w.due()
		if todo == nil {
			return
		}
		for name, one := range todo {
			if err := w.o.Look(w.life, name, &one); err != nil && w.life.Err() == nil {
				w.o.Logger.Warn("looking after a request that may be carried out late", "object", name, "error", err)
			}
		}
	}
}

// due returns the names to check, and drops those whose requests can no longer be in flight, since
// this check is their last. Without any it returns nil, and the goroutine has to end.
func (w *Watch) due() map[string]Name {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.names) == 0 {
		w.running = false
		return nil
	}
	todo := make(map[string]Name, len(w.names))
	for name, one := range w.names {
		todo[name] = *one
		if time.Now().After(one.until) {
			delete(w.names, name)
		}
	}
	return todo
}
