package bbd

import (
	"io/fs"
	"slices"

	"forebay/internal/bb"
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

func denied(op, path, right string) *bb.Error {
	return bb.E(bb.Permission, op, path, "this user has no right to "+right)
}
