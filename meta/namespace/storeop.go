package namespace

import (
	"forebay/internal/bb"
)

// Op is the kind of work for the backing store.
type Op uint8

// The operations.
const (
	OpRename Op = 1 + iota
	OpRemove
)

// StoreOp is a rename or a removal that happened in the namespace and that the backing store has
// yet to follow. It was stored in the same atomic change, and the paths are those at that moment.
// So, carried out in the order of Seq, operations lead the store to the names of the namespace,
// after any crash in between.
//
// It belongs to one node, which carries it out, at first to the node that made the change. Another
// one makes it its own by compare-and-set (TakeOverStoreOps), which changes its revision. So a node
// that finds it pending at the revision in its records still owns it.
type StoreOp struct {
	Seq      uint64 // its place in the order: stays
	Revision uint64 // of its record
	Op       Op
	OldPath  string
	NewPath  string // of a rename
	File     bb.FileID
	IsDir    bool
	Flushed  bb.Flushed // the store's content of the file
	Replaced bb.Flushed // the store's content under the new path, which the rename replaces there
	Left     bb.Flushed // the store's content under the old path of another file, which this one had replaced
	By       bb.NodeID  // the node that carries it out; "" if unknown
	// Contents that flushes may have put under the old path and, of a file's rename that the store
	// follows, under the new one, without a record: bb.Entry.Unrecorded.
	Attempts, ReplacedAttempts []bb.Content
	Rest                       string // its fields of newer releases, encoded and kept
}
