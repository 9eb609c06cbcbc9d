package bbd

import (
	"context"
	"fmt"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// The namespace may forget what it has acknowledged: its servers sync their files from
// time to time, and an operator may put an older copy of them back. So what memory holds
// is not simply dropped where the namespace has no entry of it. Each file carries an
// identity (store.Identity), which is written before its entry is put into the namespace
// and struck out when the file is removed here. What is to become of bytes is decided
// from three things alone: the entry, the identity, and what the namespace still knows of
// removals.

// fate is what becomes of a file's bytes in memory.
type fate uint8

const (
	fateAdopt    fate = iota // the entry explains them: recovery and the flusher go on with it
	fateRemake               // they are acknowledged and their entry is not there: it is made (again)
	fateSetAside             // likewise, and something else has the name: they get an entry below bb.LostDir
	fateDrop                 // they were removed, or never acknowledged
	fateKeep                 // nothing can be made of them and nothing says that they may go: they stay, and are named
)

func (f fate) String() string {
	return [...]string{"adopt", "make the entry again", "set aside", "drop", "keep"}[f]
}

// held is what memory holds of a file.
type held struct {
	newest   bb.Generation   // the newest generation that it has
	identity *store.Identity // nil: it has none
	origin   store.Origin    // why it has none
	resident int64           // bytes of the newest generation that are in memory or on disk
	evicted  int64           // bytes of it that only the store has
}

// known is what the namespace knows.
type known struct {
	entry   *bb.Entry // of the file, wherever it lies; nil: there is none
	here    bool      // this node is the entry's home, or may become it: its file has nothing to lose elsewhere
	removed bool      // it keeps the mark of a removal of this very file
	taken   bool      // something else has the name that the identity says
}

// decideFate says what becomes of bytes. It is a function of what it is given alone.
//
//	entry                        identity    evidence          fate
//	as new as memory, or newer   any         —                 adopt
//	older                        of newest   —                 make it again (another home: set aside)
//	older                        other       —                 adopt: the newer bytes were never acknowledged
//	none                         any         mark of removal   drop
//	none                         none        —                 drop, but for what a lost record may have told
//	none                         some        nothing resident  drop: what is evicted is on the store
//	none                         some        partly evicted    keep
//	none                         some        name is free      make it again
//	none                         some        name is taken     set aside
func decideFate(h held, k known) fate {
	acknowledged := h.identity != nil && h.identity.Generation == h.newest
	switch {
	case k.entry != nil && (k.entry.Generation >= h.newest || !acknowledged):
		return fateAdopt
	case k.entry == nil && k.removed:
		return fateDrop
	case k.entry == nil && h.identity == nil:
		return unidentifiedFate(h)
	case h.evicted > 0 && h.resident == 0:
		if k.entry != nil {
			return fateKeep
		}
		return fateDrop
	case h.evicted > 0:
		return fateKeep
	case k.entry != nil && !k.here || k.entry == nil && k.taken:
		return fateSetAside
	}
	return fateRemake
}

// unidentifiedFate is what becomes of bytes that have neither entry nor identity.
func unidentifiedFate(h held) fate {
	if h.origin == store.OriginForgotten && h.evicted == 0 && h.resident > 0 {
		return fateSetAside
	}
	return fateDrop
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
	what := u.Path
	if what == "" {
		what = "file " + u.File.String()
	}
	return fmt.Sprintf("%s: %d bytes that no entry explains: %s", what, u.Bytes, u.Reason)
}

// reassertion is what became of what the namespace had forgotten.
type reassertion struct {
	Remade   []string // paths whose entries were made again
	SetAside []string // paths below bb.LostDir
	Left     []unexplained
}

// reassert compares what memory holds of a buffer's files with the namespace, read from
// its server rather than from a cache, and puts back what the namespace has forgotten:
// those files are dirty and queued when it returns. What nothing could be done for is in
// Left. It reads all entries of the buffer once. Safe to call while files are written.
func (b *buffer) reassert(ctx context.Context) (r reassertion, err error) {
	dirty := make(map[bb.FileID]store.FileInfo)
	for f := range b.d.store.Files() {
		if f.Buffer == b.name {
			dirty[f.File] = f
		}
	}
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		delete(dirty, e.File)
		return nil
	})
	if err != nil {
		return r, err
	}
	for _, f := range dirty {
		n := f.Generations[len(f.Generations)-1]
		if n.Dirty > 0 {
			r.Left = append(r.Left, unexplained{File: f.File, Generation: n.Generation, Bytes: n.Dirty, Reason: "the namespace has no entry of it"})
		}
	}
	return r, nil
}
