package storeop

import "forebay/internal/bb"

// Exchanged is a file or a directory whose name was exchanged with that of another one. A rename is an exchange of
// nothing, which is like a directory, with what it moves.
type Exchanged struct {
	Dir     bool
	File    bb.FileID
	Flushed bb.Flushed // its object on the store
	Flushes string     // the codec of its flushes
}

// Fate is that of an object without a record under one of two exchanged names.
type Fate uint8

// The fates.
const (
	Moves    Fate = iota // with the file, to its new name
	Stays                // until the flush of the file that has the name now
	Replaced             // by the other file's object
	Goes                 // it is removed
)

// FateOf decides about the object that a Put with the buffer's codec may have left under a name, of which
// one file or directory was the former holder, and another one is the present holder.
func FateOf(former, present *Exchanged, codec string) Fate {
	flushed := func(e *Exchanged) bool { return !e.Dir && e.Flushed.Generation != 0 && e.Flushed.Codec == codec }
	switch {
	case flushed(former) && former.Flushes == codec:
		return Moves
	case flushed(present):
		return Replaced
	case !present.Dir && present.Flushed.Generation == 0 && present.Flushes == codec:
		return Stays
	}
	return Goes
}
