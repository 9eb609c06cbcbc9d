// Package owner determines a file's owner and the node of its second copy, as pure functions
// of the file's entry. It must never depend on the availability of a node.
package owner

import "forebay/internal/bb"

// A file has an owner: the daemon that it was first written on, the first of its entry's
// Holders. That daemon alone decides about the file's bytes. It orders the commits of all writers,
// closes its generations, flushes them, and renames and removes the file.
//
//	client ──▶ its daemon ──▶ owner
//	              │  writes: a forwarded file (package forward) puts the bytes into the owner's memory
//	              │  reads: a copy (package readcache) fetches extents from there as they are read
//	              └  rename, remove: requests to the owner
//
// Every daemon may make entries and directories. Compare-and-set in the namespace keeps two of them
// from making the same one, and an owner that was declared dead from changing the file.

// MaxMoves is how often a file's owner is looked up again for one request.
const MaxMoves = 5

// Node is a daemon's own view of the owners of files.
type Node struct {
	Self  bb.NodeID
	Alone bool // there are no other daemons; every file is its own
}

// Of returns the node that decides about a file.
func (n Node) Of(e *bb.Entry) bb.NodeID {
	if len(e.Holders) == 0 {
		return n.Self
	}
	return e.Holders[0]
}

// OwnedElsewhere reports whether another daemon owns a file. A lost one has no owner.
func (n Node) OwnedElsewhere(e *bb.Entry) bool {
	return !n.Alone && !e.IsDir() && !e.Lost && n.Of(e) != n.Self
}

// Replica returns the node that has the second copy of a dirty file, "" for none.
func Replica(e *bb.Entry) bb.NodeID {
	if len(e.Holders) < 2 || e.Lost {
		return ""
	}
	return e.Holders[1]
}

// Adoptable reports whether a file that another daemon owns may be changed without it. It has
// nothing to lose, and nothing on its way to the store.
func Adoptable(e *bb.Entry) bool { return e.State() == bb.StateClean || e.Lost }

// Changed returns the error of a daemon that received a request and does not own the file
// (bb.Busy). The requester then looks the owner up again.
func Changed(op, path string) error {
	return bb.E(bb.Busy, op, path, "the file has moved to another node meanwhile").WithRemedy("try again")
}
