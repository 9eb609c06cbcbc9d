package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/internal/powertest"
)

// TestDaemonEndsWhileAStoreHangs: a file system does not answer an fsync, as without its server.
// Status counts the process that hangs. The daemon ends all the same, by SIGTERM and by SIGKILL,
// and the next one serves, although that process stays in the kernel. When the file system answers,
// dirty files arrive, and remains of the flush are removed.
func TestDaemonEndsWhileAStoreHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a store that hangs, and for the end of its daemon, twice")
	}
	t.Parallel()
	term, kill := func(u *users) { u.d.Stop() }, func(u *users) { u.d.Kill() }
	for name, c := range map[string]struct {
		owner int
		end   func(*users)
	}{
		"SIGTERM": {aliceUID, term}, "SIGKILL": {aliceUID, kill},
		"root's store, SIGTERM": {0, term}, "root's store, SIGKILL": {0, kill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testEndWhileAStoreHangs(t, c.owner, c.end)
		})
	}
}

func testEndWhileAStoreHangs(t *testing.T, owner int, end func(*users)) {
	u := startForUsers(t, smallDaemon)
	mnt := u.dir("mnt", 0, 0o755)
	fs := powertest.MountCaching(t, mnt)
	away, works := filepath.Join(mnt, "store"), u.dir("works", owner, 0o700)
	if err := errors.Join(os.Mkdir(away, 0o700), os.Chown(away, owner, owner), os.Chmod(u.d.Memory, 0o711)); err != nil {
		t.Fatal(err)
	}
	u.must(owner, "buffer", "create", "away", "--backing", backingURL(away))
	u.must(owner, "buffer", "create", "works", "--backing", backingURL(works))
	hold := make(chan struct{})
	release := func() {
		if hold != nil {
			close(hold)
			hold = nil
		}
	}
	defer release() // before the file system is unmounted
	reached := fs.Inject(powertest.Fault{Call: "fsync 0", Hold: hold})
	content := strings.Repeat("away ", 1000)
	u.must(owner, "put", u.file(filepath.Join(u.top, "f"), content, owner, 0o600), "bb://away/f")
	<-reached
	hung := storeWorkers(u.d.Pid())
	w := u.workers(0)
	for ; len(w.Hanging) == 0; w = u.workers(0) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := w.Hanging; len(got) != 1 || got[0].UID != uint32(owner) || got[0].Root != away {
		t.Errorf("status counts %+v", got)
	}

	began := time.Now()
	end(u) // fails the test if it does not end
	t.Logf("the daemon's end, and the wait for workers of it that hang, took %v", time.Since(began))
	u.d.Start()
	if err := os.Chmod(u.d.Memory, 0o711); err != nil {
		t.Fatal(err)
	}
	u.must(owner, "put", u.file(filepath.Join(u.top, "g"), "works", owner, 0o600), "bb://works/g")
	u.must(owner, "drain", "works", "--timeout", "1m")
	u.unchanged(filepath.Join(works, "g"), "works")
	u.mustFail(owner, "", "drain", "away", "--timeout", "2s")
	if len(hung) == 0 {
		t.Error("no store worker was there to hang")
	}

	release()
	u.must(owner, "drain", "away", "--timeout", "1m")
	fs.Calls()
	u.unchanged(filepath.Join(away, "f"), content)
	for { // a drain does not wait for the sweep of the store
		left, err := os.ReadDir(away)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}
