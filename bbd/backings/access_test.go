package backings

import (
	"testing"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

// TestKindWithoutRules: a kind of stores for which no rules are written is for root and the daemon's user.
func TestKindWithoutRules(t *testing.T) {
	t.Parallel()
	where := bb.Backing{Scheme: "memory", Bucket: "b"}
	pool := &Pool{}
	for _, c := range []struct {
		about string
		c     access.Caller
		want  bb.Kind
	}{
		{"a user", access.Caller{UID: 5001, GIDs: []uint32{5001}}, bb.Permission},
		{"root that another machine claims", access.Caller{GIDs: []uint32{0}, NoRoot: true}, bb.Permission},
		{"the daemon's user", access.Daemon(), 0},
	} {
		if err := pool.mayUse(c.c, where); (err == nil) != (c.want == 0) || err != nil && bb.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.about, err, c.want)
		}
	}
	if err := pool.mayUse(access.Caller{UID: 5001}, bb.Backing{Scheme: "file", Path: "/x"}); err != nil {
		t.Errorf("a directory, where the kernel decides: %v", err)
	}
}
