package mounts

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got := parse(`22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:40 / /bb/scratch rw,nosuid,nodev,relatime shared:1 - fuse.forebay bb://scratch rw,user_id=0,group_id=0
41 22 0:41 / /mnt/other rw - fuse.sshfs host:/ rw
42 22 0:42 / /bb/with\040space rw - fuse.forebay bb://b rw
43 22 0:43 broken
`)
	want := []Mount{{"/bb/scratch", "bb://scratch"}, {"/bb/with space", "bb://b"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
