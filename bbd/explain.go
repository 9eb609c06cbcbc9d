package bbd

import (
	"fmt"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// The namespace may forget what it has acknowledged: its servers sync their files from
// time to time, and an operator may put an older copy of them back. So what memory holds
// is not simply dropped where the namespace has no entry of it. Each file carries an
// identity (store.Identity), which is written once the namespace has its entry, before that is
// acknowledged, and struck out when the file is removed here. What is to become of bytes is decided
// from three things alone: the entry, the identity, and what the namespace still knows of
// removals.

// fate is what becomes of a file's bytes in memory.
type fate uint8

const (
	fateAdopt    fate = iota // the entry explains them: recovery and the flusher go on with it
	fateRemake               // they are acknowledged and their entry is not there: it is made (again)
	fateSetAside             // the same, and something else has the name: they get an entry below bb.LostDir
	fateDrop                 // they were removed, or never acknowledged
	fateKeep                 // nothing can be made of them and nothing says that they may go: they stay, and are named
)

func (f fate) String() string {
	return [...]string{"adopt", "make the entry again", "set aside", "drop", "keep"}[f]
}

// held is what memory holds of a file.
type held struct {
	file     bb.FileID
	buffer   string
	identity *store.Identity // nil: it has none
	origin   store.Origin    // why it has none
	acked    bb.Generation   // the generation that the identity names, if it is here; 0: none that is known to be acknowledged

	// Of that generation, or of the newest one.
	newest   bb.Generation
	resident int64 // bytes that are in memory or on disk
	evicted  int64 // bytes that only the store has
	dirty    int64 // bytes that are not known to be on the store
}

// known is what the namespace knows.
type known struct {
	entry   *bb.Entry // of the file, wherever it lies; nil: there is none
	here    bool      // this node is the entry's home, or may become it: the file has nothing to lose elsewhere
	removed bool      // it keeps the mark of a removal of this very file
	taken   bool      // something else has the name that the identity says
}

// decideFate says what becomes of bytes. It is a function of what it is given alone.
//
//	entry                         acknowledged   evidence           fate
//	as new as that, or newer      any            —                  adopt
//	older                         yes            —                  make it again (another node's: keep)
//	none                          any            mark of a removal  drop
//	none                          no             —                  drop, unless its identity went with lost memory
//	none                          yes            nothing resident   drop: what is evicted is on the store
//	none                          yes            partly evicted     keep
//	none                          yes            the name is free   make it again
//	none                          yes            the name is taken  set aside
func decideFate(h held, k known) fate {
	switch {
	case k.entry != nil && k.entry.Generation >= h.acked:
		return fateAdopt
	case k.entry == nil && k.removed:
		return fateDrop
	case h.acked == 0 && h.origin == store.OriginForgotten && h.resident > 0:
		return fateSetAside
	case h.acked == 0:
		return fateDrop
	case k.entry == nil && h.evicted > 0 && h.resident == 0:
		return fateDrop
	case h.evicted > 0 || k.entry != nil && !k.here:
		return fateKeep
	case k.taken:
		return fateSetAside
	}
	return fateRemake
}

// unexplained are dirty bytes that no entry explains, and what could not be done for them.
type unexplained struct {
	File       bb.FileID
	Generation bb.Generation
	Path       string // where the file lay; "" where unknown
	Bytes      int64
	Reason     string
}

func (u *unexplained) String() string {
	return fmt.Sprintf("%s: %d bytes that no entry explains: %s", u.name(), u.Bytes, u.Reason)
}

// name returns the file's path, or its id where that is all that is known.
func (u *unexplained) name() string {
	if u.Path == "" {
		return "file " + u.File.String()
	}
	return u.Path
}

// reassertion is what became of what the namespace had forgotten.
type reassertion struct {
	Remade   []string // paths whose entries were made again
	SetAside []string // paths below bb.LostDir
	Left     []unexplained
}
