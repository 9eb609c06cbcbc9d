package durabletest

import (
	"maps"
	"math"
	"sync"
	"time"
)

// Op is the kind of an event.
type Op string

// The operations.
const (
	Sync     Op = "sync"        // commit the bytes written so far; one change
	Close    Op = "close"       // commit the rest; one change
	Rename   Op = "rename"      // two changes; of the old name, then of the new one
	Remove   Op = "remove"      // one change, to Absent
	Txn      Op = "txn"         // a transaction's commit; its changes come at once
	Drain    Op = "drain"       // everything below a path is to be on the store
	StageOut Op = "stage-out"   // everything below a path is to be copied to a folder
	Clean    Op = "clean state" // a client found it (see Found.Clean)
	Fault    Op = "fault"
)

// Outcome is the end of an operation.
type Outcome int

// The outcomes. An operation that has not ended is Unknown.
const (
	Unknown Outcome = iota // it may have been carried out, or may be yet
	Done
	Failed // it was not carried out and never will be
)

// Level is the worst fault that acknowledged bytes outlive. Every level outlives the daemon's
// death.
type Level int

// The levels.
const (
	InMemory Level = iota + 1 // not the loss of the node's memory
	OffNode                   // the loss of the node's memory, by a disk tier or by replicas
	OnStore                   // everything but the loss of the store
)

// Forever is the end of an operation of unknown outcome.
const Forever int64 = math.MaxInt64

// Change is an operation's change of a name.
type Change struct {
	Path    string
	Version Version
}

// Event is one operation, or a fault.
type Event struct {
	Op         Op
	Begin, End int64 // of an Unknown one: time by which it was carried out, if ever
	Outcome    Outcome
	Changes    []Change
	Keeps      Level    // the change outlives this; zero is InMemory
	Holders    []string // nodes that hold it; none: any

	// Of Drain and StageOut. One whose only failures are named is Done.
	Below   string   // "": everything
	Unsaved []string // files named as not saved
	To      string   // of StageOut: the folder, in which files have the paths that they have in the buffer

	// Of a Fault.
	Takes Level  // bytes of this level and those below it may be lost; zero: nothing may
	Node  string // the owner of the bytes; "": any
	// Forgets: the namespace may have lost acknowledged changes. Then a file may be below
	// LostAndFound, or named lost, with any target of its name.
	Forgets bool
}

// LostAndFound is the directory of files whose names the namespace has forgotten.
const LostAndFound = ".lost+found/"

// Problem is why a file could not be read.
type Problem string

// Lost is the error that names a loss. Any other error means that an acknowledged file cannot be
// read.
const Lost Problem = "lost"

// Found is an observer's finding under a name.
type Found struct {
	Version Version
	Problem Problem // "": it could be read, or is not there
	Text    string  // description of the bytes, or the error
	Clean   bool    // and then that the file was clean, and all renames carried out; the store has these bytes under the name
}

// Find describes bytes that were found.
func Find(p []byte) Found { return Found{Version: Of(p), Text: Describe(p)} }

// Observation is one observer's view.
type Observation struct {
	Begin, End int64
	Store      bool             // it is of the backing store; else of the buffer, for a client
	Copy       string           // it is of the folder of this name, to which stage-outs copy. Then Store is false
	Files      map[string]Found // observed files. Of a store or a copy, a name that is missing is absent
	Lost       []string         // of the buffer: files listed as lost
	// Live: things changed meanwhile, so it is not a snapshot of one moment.
	Live bool
}

// History records events from many goroutines, and checks observations as they come.
type History struct {
	mu    sync.Mutex
	k     *checker // guarded by mu
	began time.Time
	last  int64 // guarded by mu; no two times are alike
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{k: newChecker(), began: time.Now()} }

// Now returns the time of the history's clock.
func (h *History) Now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now()
}

func (h *History) now() int64 {
	h.last = max(h.last+1, int64(time.Since(h.began)))
	return h.last
}

// Begin records that an operation begins, whose Begin, End and Outcome it sets. The function that
// it returns records how it ended, and the files that it named as not saved. Without a call, the
// outcome stays unknown.
func (h *History) Begin(e Event) (ended func(o Outcome, unsaved ...string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Begin, e.End, e.Outcome = h.now(), Forever, Unknown
	p := h.k.add(e)
	return func(o Outcome, unsaved ...string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if p.Outcome = o; o != Unknown {
			p.End = h.now()
		}
		p.Unsaved = unsaved
	}
}

// Drained records a drain that began at a time, and is over.
func (h *History) Drained(begin int64, below string, unsaved []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.k.add(Event{Op: Drain, Begin: begin, End: h.now(), Outcome: Done, Below: below, Unsaved: unsaved})
}

// Fault records a fault that happens now.
func (h *History) Fault(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Op, e.Begin, e.Outcome = Fault, h.now(), Done
	e.End = e.Begin
	h.k.add(e)
}

// Over records that no operation of an unknown outcome can be carried out any more, since their
// processes are dead.
func (h *History) Over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.k.over(h.now())
}

// Observe checks an observation, whose Begin was taken from Now, and whose End it sets. It counts
// as known from then on.
func (h *History) Observe(o Observation) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.End = h.now()
	return h.k.judge(&o)
}

// Judge is Observe of a possible state. It does not count as known afterwards.
func (h *History) Judge(o Observation) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.End = h.now()
	k := newChecker()
	*k = *h.k
	k.effects, k.cleans, k.stored = maps.Clone(h.k.effects), maps.Clone(h.k.cleans), maps.Clone(h.k.stored)
	return k.judge(&o)
}
