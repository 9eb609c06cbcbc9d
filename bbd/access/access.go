// Package access decides the rights of a caller to something with an owner, a group and a mode, as
// POSIX does. It must never depend on the proof of a caller's identity, nor on the kind of the
// thing.
package access

import (
	"context"
	"io/fs"
	"os"
	"slices"

	"forebay/internal/bb"
	"forebay/internal/nss"
)

// Caller is the user that a session acts for.
type Caller struct {
	UID    uint32
	GIDs   []uint32 // the primary group first
	System bool     // root or the daemon's user; may do everything

	// Governs marks a caller that may decide about jobs, and have nodes emptied, besides the
	// system. It has proven that it may act as any user, and is root at its origin, as the batch
	// system's controller.
	Governs bool

	// NoRoot marks uid 0 as the claim of a client elsewhere, with a certificate. On a file system
	// it has no rights of root.
	NoRoot bool

	Relayed bool // another daemon relays them; requests that are not for this node are refused
}

// Right is a set of rights, as the permission bits of one class.
type Right fs.FileMode

const (
	Execute Right = 1
	Write   Right = 2
	Read    Right = 4
)

// Permits reports whether the owner, group and mode of something grant all of the
// requested rights, as POSIX does. The first class that fits decides alone.
func (c Caller) Permits(uid, gid uint32, mode fs.FileMode, w Right) bool {
	bits := Right(mode.Perm())
	switch {
	case c.System:
		return true
	case c.UID == uid:
		bits >>= 6
	case slices.Contains(c.GIDs, gid):
		bits >>= 3
	}
	return bits&w == w
}

// Owns reports whether c may change the attributes of something of uid's.
func (c Caller) Owns(uid uint32) bool { return c.System || c.UID == uid }

// Denied is the error of a caller without a right.
func Denied(op, path, right string) *bb.Error {
	return bb.E(bb.Permission, op, path, "this user has no right to "+right)
}

// IsOwner reports whether a user of this node may do everything, which root and the daemon's user
// may.
func IsOwner(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// Daemon is the daemon's own.
func Daemon() Caller { return Caller{GIDs: []uint32{0}, System: true} }

// groups are those of calling users. One cache serves all daemons of a process.
var groups nss.GroupCache

// Of looks up the groups of a user in the system. A user without a record there, or
// whose lookup does not end in time, has the group of the session.
func Of(uid, gid uint32) Caller {
	c := Caller{UID: uid, GIDs: []uint32{gid}, System: IsOwner(uid)}
	if c.System {
		return c // no right of theirs depends on a group
	}
	others, err := groups.Get(context.Background(), uid, gid)
	if err != nil {
		return c
	}
	c.GIDs = append(c.GIDs, others...)
	return c
}
