// Package fate decides the fate of a daemon's bytes of a file, and the loss of a file's content. Its
// functions are pure. The package must never depend on the origin of entries and bytes, nor carry
// out its decisions.
package fate

import (
	"fmt"
	"iter"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// The namespace may lose changes that it has acknowledged, since its servers sync their files from
// time to time, and an operator may put an older copy of them back. So bytes in memory are not
// simply dropped where the namespace has no entry of them. Each file carries an identity
// (store.Identity), which is written once the namespace has its entry, before that is acknowledged,
// and struck out when the file is removed here. The fate of bytes is decided from three things
// alone: the entry, the identity, and the namespace's marks of removals.

// Fate is the fate of a file's bytes in memory.
type Fate uint8

const (
	Adopt    Fate = iota // the entry explains them, and recovery and the flusher go on with it
	Remake               // they are acknowledged and their entry is not there, so it is made (again)
	SetAside             // the same, and something else has the name; they get an entry below bb.LostDir
	Drop                 // they were removed, or never acknowledged
	Keep                 // nothing can be made of them and no record allows their removal; they stay, and are named
)

// String returns the name of the action.
func (f Fate) String() string {
	return [...]string{"adopt", "make the entry again", "set aside", "drop", "keep"}[f]
}

// Held is memory's part of a file.
type Held struct {
	File     bb.FileID
	Buffer   string
	Identity *store.Identity // nil: it has none
	Origin   store.Origin    // why it has none
	Acked    bb.Generation   // the generation that the identity names, if it is here; 0: none certainly acknowledged

	// Of that generation, or of the newest one.
	Newest   bb.Generation
	Resident int64 // bytes that are in memory or on disk
	Evicted  int64 // bytes that only the store has
	Dirty    int64 // bytes that are possibly not on the store
}

// Known is the namespace's record of a file.
type Known struct {
	Entry   *bb.Entry // of the file, wherever it lies; nil: there is none
	Here    bool      // this node is the entry's owner, or may become it; the file has nothing to lose elsewhere
	Removed bool      // it keeps the mark of a removal of this very file
	Taken   bool      // another file has the name that is in the identity
}

// Decide returns the fate of bytes. It is a function of its arguments alone.
//
//	entry                         acknowledged   evidence           fate
//	as new as that, or newer      any            —                  adopt
//	older                         yes            —                  make it again (another node's: keep)
//	none                          any            mark of a removal  drop
//	none                          no             —                  drop, unless its identity went with lost memory
//	none                          yes            nothing resident   drop: evicted bytes are on the store
//	none                          yes            partly evicted     keep
//	none                          yes            the name is free   make it again
//	none                          yes            the name is taken  set aside
func Decide(h Held, k Known) Fate {
	switch {
	case k.Entry != nil && k.Entry.Generation >= h.Acked:
		return Adopt
	case k.Entry == nil && k.Removed:
		return Drop
	case h.Acked == 0 && h.Origin == store.OriginForgotten && h.Resident > 0:
		return SetAside
	case h.Acked == 0:
		return Drop
	case k.Entry == nil && h.Evicted > 0 && h.Resident == 0:
		return Drop
	case h.Evicted > 0 || k.Entry != nil && !k.Here:
		return Keep
	case k.Taken:
		return SetAside
	}
	return Remake
}

// Unexplained are dirty bytes that no entry explains, and the failure to save them.
type Unexplained struct {
	File       bb.FileID
	Generation bb.Generation
	Path       string // where the file lay; "" where unknown
	Bytes      int64
	Reason     string
}

// UnreadableRecord is the reason of bytes whose buffer may be one that a newer release has made.
const UnreadableRecord = "the namespace has records that this release cannot read, and that of its buffer may be one of them"

// String names the bytes and why they are left.
func (u *Unexplained) String() string {
	return fmt.Sprintf("%s: %d bytes that no entry explains: %s", u.Name(), u.Bytes, u.Reason)
}

// Name returns the file's path, or its id if only that is known.
func (u *Unexplained) Name() string {
	if u.Path == "" {
		return "file " + u.File.String()
	}
	return u.Path
}

// Reassertion is the fate of the files that the namespace had forgotten.
type Reassertion struct {
	Remade   []string // paths whose entries were made again
	SetAside []string // paths below bb.LostDir
	Left     []Unexplained
	OnStore  []Unexplained // dropped here; all of them was evicted, and the store alone has them
	Lost     []Unexplained // their entries are there, and name the missing content
}

// Add adds the fates of other files.
func (r *Reassertion) Add(o *Reassertion) {
	r.Remade, r.SetAside = append(r.Remade, o.Remade...), append(r.SetAside, o.SetAside...)
	r.Left, r.OnStore = append(r.Left, o.Left...), append(r.OnStore, o.OnStore...)
	r.Lost = append(r.Lost, o.Lost...)
}

// Unrestored yields the files that are not as they were, by their fates, the gravest first.
func (r *Reassertion) Unrestored() iter.Seq2[string, []Unexplained] {
	return func(yield func(string, []Unexplained) bool) {
		_ = yield("lost", r.Lost) && yield("kept", r.Left) && yield("on-store", r.OnStore)
	}
}

// Salvage reports whether an entry of a file is to be stored again that was read of a damaged log, in which newer
// changes may be missing. It is if memory has the file, so it was not removed, or if the entry marks it as lost,
// which a user has to acknowledge. Held is memory's part. nil means nothing. The entry gets the place that is
// recorded in memory, if that is newer.
//
// A clean file counts as dirty if whole, which reports whether memory has all of an entry's content, is true. A rename
// of the file or of a directory above it may be missing in the log, or not carried out on the store, so the store may
// have the file under another name. The object under this one is the file's own if the content is the same.
//
// A dirty file of which memory has nothing left was flushed, since nothing else is evicted. So the
// record of the flush is among the missing changes. It counts as clean, with the buffer's codec,
// and has to be compared with the store.
func Salvage(e *bb.Entry, h *Held, codec string, whole func(*bb.Entry) bool) bool {
	if h == nil {
		return e.Lost
	}
	if id := h.Identity; id != nil && id.Revision > e.Revision {
		e.Parent, e.Name = id.Dir, id.Name
		e.Mode, e.UID, e.GID = id.Mode, id.UID, id.GID
	}
	if e.State() == bb.StateClean && h.Newest == e.Generation && h.Evicted == 0 && whole(e) {
		e.SetBefore(e.Replaced(), bb.AddContents(e.Attempts(), bb.Content{Size: e.Size, Checksum: e.Checksum}))
		e.Flushed = bb.Flushed{}
	}
	if e.State() == bb.StateDirty && e.Type == bb.TypeFile && h.Newest == e.Generation && h.Evicted > 0 && h.Resident == 0 {
		e.SetFlushed(bb.Flushed{Generation: e.Generation, Codec: codec})
	}
	return true
}

// OnStoreAlone reports whether a file without an entry is dropped since all of it was evicted. No record shows that it
// was removed.
func OnStoreAlone(h *Held, k Known) bool {
	return k.Entry == nil && !k.Removed && h.Acked != 0 && h.Evicted > 0 && h.Resident == 0
}
