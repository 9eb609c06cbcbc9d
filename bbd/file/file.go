// Package file has the files of a buffer that are open for writing at this daemon. It begins and joins
// generations, orders the commits of all writers of a file, and closes it. It must never depend on
// requests or sessions, the place of a second copy, or the flush of a closed file.
package file

import (
	"errors"
	"sync/atomic"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/xattr"
)

// File is a file that is being written: one generation of it, shared by all of
// its writers.
//
//	        open                 first commit            last close
//	(new) ───────▶ unpublished ───────────────▶ published ──────────▶ closed
//	                  │  last close, something written ──────────────▶   │
//	                  └─ last close, nothing written ─▶ void             ▼
//	                                                            queued for flushing
//
// If it is unpublished, the namespace does not have the generation. Readers get the one before, or
// nothing. If it is published, the entry names it, marked open. An exclusive create publishes at
// once. The mutex is the file's order of commits. It is held while the entry is put into the
// namespace, and nothing else waits for it but operations on the same file. The next step follows
// from the state alone.
type File struct {
	in         *Files
	file       bb.FileID
	generation bb.Generation
	beginning

	published atomic.Bool // written under mu
	second    Replica     // nil: there is to be none. Set once

	mu      lockorder.Mutex[lockrank.OpenFile]
	state   state
	at      bb.Place
	near    bb.NodeID // the other node that opened it last; "": none has
	writer  string    // the client that began the generation
	path    string    // for messages and events
	entry   bb.Entry  // as the namespace has it, or as it will be created
	clients map[Client]int
	staged  *staged       // of a generation that comes from a store
	ended   chan struct{} // closed when the file is

	finishing bool // finishLater closes it
}

// staged is the part of a generation from a store that is no content.
type staged struct {
	flushed *bb.Flushed // the content under the file's name on its own store; nil: it is not from there
	xattrs  xattr.List
}

// beginning is the start of a generation. It does not change once the namespace or the store has the generation.
type beginning struct {
	base       bb.Generation // the generation that it starts from; 0: nothing
	exclusive  bool          // no other open may have made it
	old        bb.Generation // the one that it replaces; 0: none
	was        bb.NodeID     // the owner of that
	wasReplica bb.NodeID     // the node with the second copy of that
}

// Client is a session of a program of this node that has files open. It is compared with others of its kind.
type Client any

// ErrSuperseded is the error of a generation that cannot become the file's, since another node has
// begun one meanwhile. Its writers go on with that.
var ErrSuperseded = errors.New("another node has begun a generation of this file meanwhile")

// ID returns the file's number.
func (f *File) ID() bb.FileID { return f.file }

// Generation returns the number of the generation that is being written.
func (f *File) Generation() bb.Generation { return f.generation }

// Published reports whether the namespace has the generation.
func (f *File) Published() bool { return f.published.Load() }

// Replica returns the second copy, or nil if there is to be none.
func (f *File) Replica() Replica { return f.second }

// stub reports whether the file only keeps its place (see Files.Lock).
func (f *File) stub() bool { return f.file == 0 }

// advance changes the phase. f is locked.
func (f *File) advance(e event) {
	was := f.state.phase
	f.state.phase = was.after(e)
	if f.state.phase.closed() && !was.closed() {
		close(f.ended)
	}
}

// removeFromOpen takes the file out of the open ones.
func (f *File) removeFromOpen() {
	f.advance(eventRetired)
	f.in.forget(f)
}

// abandon removes a file from the open ones that another node has removed, replaced, or
// adopted after this one was declared dead.
func (f *File) abandon() {
	f.advance(eventUnlinked)
	f.removeFromOpen()
	f.in.o.Store.DropGeneration(f.file, f.generation)
}

// join adds a writer that comes back. It fails when the file was closed meanwhile.
func (f *File) join() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.phase.closed() {
		return false
	}
	f.state.writers++
	f.state.joined = true
	f.state.missing--
	return true
}

func (f *File) usable(op string) error {
	switch f.state.phase {
	case phaseSuperseded:
		return ErrSuperseded
	case phaseUnlinked, phaseRemoved:
		return bb.E(bb.NotFound, op, f.path, "the file was removed while it was open for writing")
	case phaseClosed:
		return bb.E(bb.Invalid, op, f.path, "the file is closed")
	}
	return nil
}

// leave takes a writer away that has not closed the file.
func (f *File) leave() {
	f.state.missing++
	if f.state.writers--; f.state.writers <= 0 && f.state.phase == phaseUnlinked {
		f.removeFromOpen()
	}
}

func (f *File) size() int64 {
	n, err := f.in.o.Store.Size(f.file, f.generation)
	if err != nil {
		return 0 // nothing of this generation was committed
	}
	return n
}

// visibleSize is the size of the content that a writer builds on.
func (f *File) visibleSize() int64 {
	switch {
	case f.state.committed:
		return f.size()
	case f.state.fresh || !f.state.exists:
		return 0
	default:
		return f.entry.Size
	}
}

// Attach counts an open of the file by a client of this node, or of another one if from is not "". It returns the
// entry with the size of the content that a writer builds on.
func (f *File) Attach(c Client, from bb.NodeID) bb.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from != "" {
		f.near = from
	} else {
		f.clients[c]++
	}
	e := f.entry
	e.Size = f.visibleSize()
	return e
}

// Detach notes that a client of this node does not have the file open any more, once of the times that it has.
func (f *File) Detach(c Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients[c]--
}

// OfAlone reports whether a client has the file open, and no other client has.
func (f *File) OfAlone(c Client) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clients[c] > 0 && f.state.writers == f.clients[c]
}

// Alone reports whether the generation is closed, and only one open has written it.
func (f *File) Alone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.alone()
}

// Writers returns how often the file is open.
func (f *File) Writers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.writers
}

// Ending returns the file's path, the content to close when it is not open any more, and how often a client of this node
// has it open.
func (f *File) Ending(c Client) (path string, ended <-chan struct{}, own int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.path, f.ended, f.clients[c]
}

// Closed returns the entry of a file that has ended, and its place. Not ok: the file was removed, or nothing was
// written.
func (f *File) Closed() (e bb.Entry, at bb.Place, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry, f.at, !f.state.phase.removed() && f.entry.Generation == f.generation
}
