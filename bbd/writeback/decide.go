package writeback

import (
	"forebay/bbd/owner"
	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// The consequences of an entry, for a flush and for the store's content, are decided here, by
// functions of their arguments alone.

// fileGone is why a file is not flushed that has no entry any more.
const fileGone = "the file does not exist any more"

// verdict is the fate of a generation that is queued.
type verdict uint8

const (
	flushIt    verdict = iota
	isStored           // an earlier flush was recorded, and its answer was lost
	superseded         // it need not be flushed any more
	isForeign          // this node was declared dead, and another one has all of it
)

// due decides about a queued generation, by its file's entry.
func due(owners owner.Node, e *bb.Entry, n bb.Generation) verdict {
	state := e.State()
	switch {
	case e.Generation == n && state == bb.StateClean:
		return isStored
	case e.Generation != n || state != bb.StateDirty:
		return superseded
	case owners.OwnedElsewhere(e):
		return isForeign
	}
	return flushIt
}

// record puts the store's content of a file, as it was flushed, into an entry. If the entry is not
// this node's to change, or is newer, it leaves it, and why is the reason.
//
//	entry                                          the store's content
//	of another file                                is not its content
//	of this file, and there are no other nodes     is recorded
//	lost, of the content that was flushed          is recorded: it is not lost
//	of this file, another node's                   is not recorded
//	of this file, with a later flush               is not recorded
//	of this file                                   is recorded
func record(owners owner.Node, e, flushed *bb.Entry, f bb.Flushed) (why string) {
	switch {
	case e.File != flushed.File:
		return fileGone
	case owners.Alone:
	case e.Lost && e.Generation == f.Generation && e.Size == flushed.Size && e.Checksum == flushed.Checksum:
		// It was declared lost with this node, whose flush has ended all the same.
		e.Lost, e.Reason = false, ""
	case owners.Of(e) != owners.Self:
		return "its owner is node " + string(owners.Of(e)) + " now"
	case f.Generation < e.Flushed.Generation:
		return "a newer generation of it has been flushed"
	}
	e.SetFlushed(f)
	return ""
}

// nodeLocal reports whether an entry is never flushed. It is a FIFO or a socket, or a link that an older release has
// made.
func nodeLocal(e *bb.Entry) bool { return e.Type.Special() && e.Generation == 0 }

// isNamed reports whether the object of an entry in a buffer may have the suffix of a codec. A file's object has it, the
// symbolic link that replaces the file is stored under the path itself, and either may be in the other's place.
func isNamed(e *bb.Entry, flushes, codecName string) bool {
	if e.Type == bb.TypeSymlink {
		flushes = codec.None
	}
	stored := e.Stored()
	return e.Type == bb.TypeDirectory || e.Lost || codecName == flushes || stored.Generation != 0 && stored.Codec == codecName
}

// orphan reports whether an object under the name of an entry has no owner. The file is this node's, and
// its name was never durable. The object cannot be of any use, and the flush waits for its removal.
func orphan(owners owner.Node, e *bb.Entry) bool {
	return !owners.OwnedElsewhere(e) && !e.IsDir() && !nodeLocal(e) && !e.Lost && e.Stored().Generation == 0
}
