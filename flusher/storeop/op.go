package storeop

import (
	"fmt"

	"forebay/flusher/codec"
	"forebay/flusher/owned"
	"forebay/internal/bb"
)

// Kind is the kind of work in the store.
type Kind uint8

// The kinds.
const (
	Rename Kind = 1 + iota
	Remove
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Rename:
		return "rename"
	case Remove:
		return "remove"
	}
	return "operation"
}

// Op is the store's share of a rename or removal in the namespace. It may be carried out more than
// once. If the source is missing, it was carried out already.
type Op struct {
	ID    uint64 // the caller's, which flusher.Options.Mine and Applied get
	More  bool   // others of this ID follow, and only the last one comes to Applied
	Kind  Kind
	Old   string // clean path in the buffer
	New   string // of a rename
	Tree  bool   // a directory: a rename moves the buffer's objects below it, and a removal takes it if it is empty
	Codec string // of a file's object: bb.Flushed.Codec
	// The contents that this buffer has flushed under Old and, of a rename, under New, and those
	// that its flushes may have put there without a record. A file's operation touches nothing
	// else, unless they are unknown and the buffer replaces objects of others.
	Was, Replaces              []bb.Flushed
	Attempts, ReplacedAttempts []bb.Content

	Overwrite bool // any object under New may be replaced
	Internal  bool // the flusher's own, which is not recorded
	Orphan    bool // a removal of an object without an entry: see flusher.Options.Orphan
}

// Concerns reports whether a flush under the path must wait for the operation.
func (op *Op) Concerns(path string) bool {
	return bb.Overlaps(op.Old, path) || op.Kind == Rename && bb.Overlaps(op.New, path)
}

// paths are the names that an operation concerns.
func (op *Op) paths() []string {
	if op.Kind == Rename {
		return []string{op.Old, op.New}
	}
	return []string{op.Old}
}

func (op *Op) name() string {
	if op.Kind == Rename {
		return fmt.Sprintf("%s to %s", op.Old, op.New)
	}
	return op.Old
}

// Follow makes the contents that may be under names follow an operation that was carried out.
func (op *Op) Follow(l owned.Ledger) {
	suffix := codec.Suffix(op.Codec)
	switch {
	case !op.Tree && op.Kind == Rename:
		l.Moved(op.Old+suffix, op.New+suffix)
	case !op.Tree:
		l.Moved(op.Old+suffix, "")
	case op.Kind == Rename:
		l.MovedBelow(op.Old, op.New)
	}
}

// Owned is an object that may be the buffer's. If it is one of those flushed under its name, or of
// those that flushes may have put there without a record.
type Owned struct {
	Object   string
	Was      []bb.Flushed
	Attempts []bb.Content // before they are compressed
	Codec    string       // of the object
}
