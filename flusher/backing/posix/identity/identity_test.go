package identity

import (
	"strings"
	"testing"

	"forebay/flusher/backing/posix/lustre"
)

func TestIdentityDiffers(t *testing.T) {
	was := Identity{Kind: 0xef53, ID: 7, Inode: 40, Mount: "/scratch"}
	for what, x := range map[string]struct {
		now  Identity
		want string
	}{
		"the same":                     {was, ""},
		"another kind":                 {Identity{Kind: lustre.Magic, ID: 7, Inode: 40, Mount: "/scratch"}, "another kind"},
		"another id":                   {Identity{Kind: 0xef53, ID: 8, Inode: 40, Mount: "/scratch"}, "another file system"},
		"mounted elsewhere":            {Identity{Kind: 0xef53, ID: 7, Inode: 40, Mount: "/other"}, ""},
		"made anew":                    {Identity{Kind: 0xef53, ID: 7, Inode: 41, Mount: "/scratch"}, ""},
		"below the mount point":        {Identity{Kind: 0xef53, ID: 7, Inode: 41, Mount: "/"}, "another directory"},
		"made anew, mounts not listed": {Identity{Kind: 0xef53, ID: 7, Inode: 41}, "another directory"},
	} {
		if got := was.Differs(x.now); got != x.want && (x.want == "" || !strings.Contains(got, x.want)) {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
	unlisted := Identity{Kind: 0xef53, ID: 7, Inode: 40}
	if got := unlisted.Differs(Identity{Kind: 0xef53, ID: 7, Inode: 41}); got == "" {
		t.Error("two directories of which no mount point is known are the same")
	}
}

func TestIdentityIsKept(t *testing.T) {
	for _, i := range []Identity{{}, {Kind: 1<<64 - 1, ID: 1 << 63, Inode: 9, Mount: "/a:b c"}} {
		if got, ok := Parse(i.String()); !ok || got != i {
			t.Errorf("%v came back as %v, %v", i, got, ok)
		}
	}
	for _, s := range []string{"", "posix1", "posix1:1:2", "posix2:1:2:3:/", "posix1:x:2:3:/", "posix1:1:-2:3:/"} {
		if i, ok := Parse(s); ok {
			t.Errorf("%q was read as %v", s, i)
		}
	}
}

func TestMountPoint(t *testing.T) {
	const mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /lustre rw - lustre mds@tcp:/fs rw\n"
	for fdinfo, want := range map[string]string{
		"pos:\t0\nflags:\t02100000\nmnt_id:\t30\nino:\t4\n": "/lustre", "mnt_id:\t22\n": "/", "mnt_id:\t3\n": "", "": "",
	} {
		if got := mountPoint(fdinfo, mounts); got != want {
			t.Errorf("%q: %q, want %q", fdinfo, got, want)
		}
	}
}
