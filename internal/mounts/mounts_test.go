package mounts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

const table = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:40 / /bb/scratch rw,nosuid,nodev,relatime shared:1 - fuse.forebay bb://scratch rw,user_id=0,group_id=0
41 22 0:41 / /mnt/other rw - fuse.sshfs host:/ rw
42 22 0:42 / /bb/with\040space rw - fuse.forebay bb://b?socket=unix:///run/two\040words.sock rw,user_id=0,group_id=0
43 22 0:43 broken
44 40 0:44 / /bb/scratch/tmp rw - tmpfs tmpfs rw
45 22 0:40 /run1/out /home/me/out rw - fuse.forebay bb://scratch rw,user_id=0,group_id=0
46 22 0:46 / /old/bb rw - fuse.forebay bb://old rw,user_id=0,group_id=0
47 22 0:47 / /old rw - tmpfs tmpfs rw
48 22 0:48 / /twice rw - fuse.forebay bb://first rw,user_id=0,group_id=0
49 48 0:49 / /twice rw - fuse.forebay bb://second rw,user_id=0,group_id=0
50 22 0:50 / /home/eve/bb rw - fuse.forebay bb://scratch?socket=unix:///home/eve/s rw,user_id=4711,group_id=4711
`

func TestParse(t *testing.T) {
	t.Parallel()
	got := ours(parse(table))
	want := []Mount{
		{"/bb/scratch", "bb://scratch", "", "/"},
		{"/bb/with space", "bb://b", "unix:///run/two words.sock", "/"},
		{"/home/me/out", "bb://scratch", "", "/run1/out"},
		{"/old/bb", "bb://old", "", "/"},
		{"/twice", "bb://first", "", "/"},
		{"/twice", "bb://second", "", "/"},
		{"/home/eve/bb", "bb://scratch", "unix:///home/eve/s", "/"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for socket, want := range map[string]string{"": "bb://b", "/run/s": "bb://b?socket=unix:///run/s", "tcp://a:1,tcp://b:1": "bb://b?socket=tcp://a:1,tcp://b:1"} {
		if got := Source("b", socket); got != want {
			t.Errorf("%q: %q", socket, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"/bb/scratch":       "bb://scratch ",
		"/bb/scratch/":      "bb://scratch ",
		"/bb/scratch/a/b":   "bb://scratch a/b",
		"/bb/scratchy":      "",
		"/bb":               "",
		"/":                 "",
		"/mnt/other/x":      "",
		"/bb/with space/x":  "bb://b x",
		"/bb/scratch/tmp/x": "", // another file system lies there
		"/home/me/out":      "bb://scratch run1/out",
		"/home/me/out/f":    "bb://scratch run1/out/f",
		"/old/bb/x":         "", // hidden by the mount on /old
		"/twice/x":          "bb://second x",
		"/home/eve/bb/x":    "", // another user's
	} {
		m, below, ok := find(parse(table), at)
		got := ""
		if ok {
			got = m.Source + " " + below
		}
		if got != want {
			t.Errorf("%s: %q, not %q", at, got, want)
		}
	}
	// Of a process with a root of its own, the list has no mount on /.
	inside := strings.Join(strings.SplitAfter(table, "\n")[1:2], "")
	if m, below, ok := find(parse(inside), "/bb/scratch/x"); !ok || m.Source != "bb://scratch" || below != "x" {
		t.Errorf("below another root: %v, %q, %v", m, below, ok)
	}
}

func TestPathIn(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ buffer, path, socket, want string }{
		{"scratch", "", "", "/bb/scratch"},
		{"scratch", "a/b", "", "/bb/scratch/a/b"},
		{"scratch", "run1/out/f", "", "/home/me/out/f"}, // the newest
		{"scratch", "run1/outer", "", "/bb/scratch/run1/outer"},
		{"scratch", "tmp/x", "", ""}, // hidden
		{"old", "x", "", ""},
		{"first", "x", "", ""},
		{"second", "x", "", "/twice/x"},
		{"b", "x", "unix:///run/two words.sock", "/bb/with space/x"},
		{"b", "x", "", "/bb/with space/x"},
		{"b", "x", "unix:///run/other.sock", ""},
		{"scratch", "x", "unix:///home/eve/s", ""},
		{"none", "", "", ""},
	} {
		got, ok := pathIn(parse(table), bb.Address{Buffer: of.buffer, Path: of.path}, func(m *Mount) bool { return of.socket == "" || m.Socket == of.socket })
		if got != of.want || ok != (of.want != "") {
			t.Errorf("%v: %q, %v", of, got, ok)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	links := map[string]string{
		"/home":       "/data/home",
		"/bb/link":    "scratch/run1",
		"/bb/up":      "../bb/link",
		"/loop":       "loop/",
		"/bb/trailed": "link/",
	}
	readlink := func(name string) (string, error) {
		if name == "/away/x" {
			return "", unix.ENOTCONN
		}
		if target, ok := links[name]; ok {
			return target, nil
		}
		return "", unix.EINVAL
	}
	for full, want := range map[string]string{
		"/":                   "/",
		"/bb//scratch/./a":    "/bb/scratch/a",
		"/home/me/x":          "/data/home/me/x",
		"/bb/link":            "/bb/link", // as rm(1) does
		"/bb/link/":           "/bb/scratch/run1/",
		"/bb/link/.":          "/bb/scratch/run1/",
		"/bb/link/../x":       "/bb/scratch/x", // not /bb/x
		"/bb/up/x":            "/bb/scratch/run1/x",
		"/bb/trailed/x":       "/bb/scratch/run1/x",
		"/../../bb/scratch":   "/bb/scratch",
		"/bb/scratch/new/dir": "/bb/scratch/new/dir",
	} {
		if got, err := resolve(full, readlink); got != want || err != nil {
			t.Errorf("%s: %q, not %q (%v)", full, got, want, err)
		}
	}
	for full, want := range map[string]error{"/loop/x": unix.ELOOP, "/away/x/y": unix.ENOTCONN} {
		if got, err := resolve(full, readlink); !errors.Is(err, want) {
			t.Errorf("%s: %q, %v", full, got, err)
		}
	}
}
