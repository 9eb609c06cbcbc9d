//go:build soak

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestDaemonKilled kills the daemon some times while programs work on the mount. No program fails,
// and no byte is wrong.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	needPrograms(t, "tar", "diff", "git", "sqlite3", "dd", "cmp")
	m := newMount(t)
	source := tree(t, 8, 10)
	git := func(dir string, args ...string) {
		program(t, dir, append([]string{"git", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)...)
	}
	git(source, "init", "-q")
	git(source, "add", "-A")
	git(source, "commit", "-qm", "one")
	big := filepath.Join(t.TempDir(), "big")
	check(t, os.WriteFile(big, bytes.Repeat([]byte("0123456789abcde\n"), 2<<20), 0o644))
	var work sync.WaitGroup
	for _, job := range []func(dir string){
		func(dir string) {
			program(t, source, "sh", "-c", `tar -cf - . | tar -xpf - -C "$1" && diff -r . "$1"`, "sh", dir)
			program(t, dir, "sh", "-c", "mkdir x && mv d0 x/ && mv x y && rm -r y && ls -R . >/dev/null")
		},
		func(dir string) {
			program(t, dir, "dd", "if="+big, "of=a", "bs=64k", "conv=fsync", "status=none")
			program(t, dir, "dd", "if=a", "of=b", "bs=1M", "status=none")
			program(t, dir, "cmp", big, "b")
		},
		func(dir string) {
			git(dir, "clone", "-q", "--no-hardlinks", source, "clone")
			git(filepath.Join(dir, "clone"), "fsck", "--strict")
		},
		func(dir string) {
			for i := range 8 {
				program(t, dir, "sqlite3", "-bail", "db", fmt.Sprintf("CREATE TABLE IF NOT EXISTS t (k, v); BEGIN; INSERT INTO t SELECT %d, hex(randomblob(2000)) FROM (VALUES (1),(2),(3)); COMMIT;", i))
			}
			if got := program(t, dir, "sqlite3", "db", "PRAGMA integrity_check; SELECT count(*), count(DISTINCT k) FROM t;"); got != "ok\n24|8\n" {
				t.Errorf("sqlite: %s", got)
			}
		},
	} {
		dir, err := os.MkdirTemp(m.dir, "job")
		check(t, err)
		work.Go(func() { job(dir) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		work.Wait()
	}()
	for range kills {
		m.Kill()
		m.Start()
		write(t, filepath.Join(m.dir, "probe"), "the mount is connected again") // so that each life brings the work on
		select {
		case <-done:
		case <-time.After(killEvery):
		}
	}
	<-done
}

// kills is how often the daemon is killed. A daemon that is killed for as long as programs work may
// never run long enough, on a busy machine, for them to come to an end.
const kills = 4

// killEvery is how long a daemon runs once the mount is connected to it.
const killEvery = 700 * time.Millisecond
