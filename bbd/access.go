package bbd

import (
	"context"
	"io/fs"
	"os"
	"slices"

	"forebay/internal/bb"
	"forebay/internal/nss"
)

// cred is who a session acts for.
type cred struct {
	uid    uint32
	gids   []uint32 // the primary group first
	system bool     // root, or the user that the daemon runs as: may do everything

	// governs: may say what becomes of jobs, and have nodes emptied, besides the system. Who
	// has proven that it may act as anybody, and is root where it comes from, as the batch
	// system's controller.
	governs bool

	// noRoot: uid 0 is what a client elsewhere claims, with a certificate. On a file system it has
	// no rights of root.
	noRoot bool

	relayed bool // another daemon asks for them: what is not for this node is refused
}

// want is a set of rights, as the permission bits of one class.
type want fs.FileMode

const (
	wantExecute want = 1
	wantWrite   want = 2
	wantRead    want = 4
)

// permits reports whether the owner, group and mode of something grant all of the
// wanted rights, as POSIX does: the first class that fits decides alone.
func (c cred) permits(uid, gid uint32, mode fs.FileMode, w want) bool {
	bits := want(mode.Perm())
	switch {
	case c.system:
		return true
	case c.uid == uid:
		bits >>= 6
	case slices.Contains(c.gids, gid):
		bits >>= 3
	}
	return bits&w == w
}

// owns reports whether c may change the attributes of something of uid's.
func (c cred) owns(uid uint32) bool { return c.system || c.uid == uid }

// denied is the error of a caller without a right.
func denied(op, path, right string) *bb.Error {
	return bb.E(bb.Permission, op, path, "this user has no right to "+right)
}

// isOwner reports whether a user of this node may do everything: root, and the daemon's user.
func isOwner(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// daemonCred is the daemon's own.
func daemonCred() cred { return cred{gids: []uint32{0}, system: true} }

// groups are those of users who ask; one cache serves all daemons of a process.
var groups nss.GroupCache

// credOf looks up the groups of a user, as the system knows them. One whom it does not know, or
// of whom it does not say in time, has the group it came with.
func credOf(uid, gid uint32) cred {
	c := cred{uid: uid, gids: []uint32{gid}, system: isOwner(uid)}
	if c.system {
		return c // no right of theirs depends on a group
	}
	others, err := groups.Get(context.Background(), uid, gid)
	if err != nil {
		return c
	}
	c.gids = append(c.gids, others...)
	return c
}
