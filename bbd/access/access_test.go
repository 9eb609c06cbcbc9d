package access_test

import (
	"io/fs"
	"testing"

	"forebay/bbd/access"
)

// TestPermits: the first class that a caller is of decides alone, as in POSIX.
func TestPermits(t *testing.T) {
	owner := access.Caller{UID: 7, GIDs: []uint32{70, 71}}
	member := access.Caller{UID: 8, GIDs: []uint32{80, 70}}
	other := access.Caller{UID: 9, GIDs: []uint32{90}}
	for _, c := range []struct {
		what    string
		caller  access.Caller
		mode    fs.FileMode
		right   access.Right
		permits bool
	}{
		{"the owner reads", owner, 0o400, access.Read, true},
		{"the owner has no bit, the group has", owner, 0o070, access.Read, false},
		{"a member by a second group", member, 0o040, access.Read, true},
		{"a member has no bit, others have", member, 0o707, access.Execute, false},
		{"another", other, 0o001, access.Execute, true},
		{"one of two rights", other, 0o002, access.Write | access.Execute, false},
		{"both rights", other, 0o003, access.Write | access.Execute, true},
		{"a mode with more than permissions", other, fs.ModeDir | fs.ModeSticky | 0o770, access.Read, false},
		{"the system", access.Daemon(), 0, access.Read | access.Write | access.Execute, true},
		{"root that another machine claims", access.Caller{UID: 0, GIDs: []uint32{0}, NoRoot: true}, 0o700, access.Read, false},
	} {
		if got := c.caller.Permits(7, 70, c.mode, c.right); got != c.permits {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if !owner.Owns(7) || member.Owns(7) || !access.Daemon().Owns(7) {
		t.Error("owners")
	}
}
