package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// notCarried are the tests of go-fuse's suite that the mount does not pass, with the reasons.
var notCarried = map[string]string{
	"FcntlFlockLocksFile": "locks of fcntl are a process's, which does not exclude itself: the mount's own test has two owners",
	"FdLeak":              "it looks at its own process, which is not the mount's",
	"Link":                "hard links are refused",
	"LinkUnlinkRename":    "hard links are refused",
	"OpenSymlinkRace":     "an open whose name becomes another file twice meanwhile is ESTALE",
	"Tmpfile":             "O_TMPFILE is refused",
}

// posixEnv, in the environment, is the directory that TestPosix works in, instead of a mount of its own.
const posixEnv = "FOREBAY_TEST_POSIX"

// TestPosix runs the suite of go-fuse.
func TestPosix(t *testing.T) {
	at := os.Getenv(posixEnv)
	if at == "" {
		t.Parallel()
		at = newMount(t).dir
	}
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		if notCarried[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(at, name)
			check(t, os.Mkdir(dir, 0o755))
			posixtest.All[name](t, dir)
		})
	}
	for name := range notCarried {
		if posixtest.All[name] == nil {
			t.Errorf("the suite has no test %s any more", name)
		}
	}
}
