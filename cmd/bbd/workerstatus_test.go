package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/bbd/status"
)

// workers returns the store workers in a user's status.
func (u *users) workers(uid int) status.Workers {
	u.t.Helper()
	out, err := u.as(uid, time.Minute, "status", "--json")
	var s status.Status
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil || s.StoreWorkers == nil {
		u.t.Fatalf("%v\n%s", err, out)
	}
	return *s.StoreWorkers
}

// TestStatusOfStoreWorkers: a user gets the states of the own store workers, root those of all, and
// a worker that does not answer is on the screen.
func TestStatusOfStoreWorkers(t *testing.T) {
	t.Parallel()
	u := startForUsers(t, smallDaemon)
	if err := os.Chmod(u.d.Memory, 0o711); err != nil { // users map regions
		t.Fatal(err)
	}
	store := u.dir("store", aliceUID, 0o700)
	u.must(aliceUID, "buffer", "create", "a", "--backing", backingURL(store))
	if w := u.workers(aliceUID); w.Idle+w.Serving != 1 || len(w.Hanging) != 0 {
		t.Errorf("alice is told %+v", w)
	}
	if w := u.workers(bobUID); w.Idle+w.Serving != 0 {
		t.Errorf("bob is told of another's worker: %+v", w)
	}
	all := storeWorkers(u.d.Pid())
	if len(all) != 1 {
		t.Fatalf("%d workers", len(all))
	}
	if err := all[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer all[0].Signal(syscall.SIGCONT)
	u.must(aliceUID, "put", u.sparse("f", aliceUID, 1<<20), "bb://a/f")
	if out, err := u.as(aliceUID, time.Minute, "drain", "a", "--timeout", "2s"); err == nil {
		t.Fatalf("drained by a worker that is stopped:\n%s", out)
	}
	for w := u.workers(0); len(w.Hanging) == 0; w = u.workers(0) {
		time.Sleep(20 * time.Millisecond)
	}
	if w := u.workers(0).Hanging[0]; w.UID != aliceUID || w.Root != store || w.Since.IsZero() {
		t.Errorf("root is told %+v", w)
	}
	if w := u.workers(bobUID); len(w.Hanging) != 0 {
		t.Errorf("bob is told %+v", w)
	}
	if out, err := u.as(0, time.Minute, "status"); err != nil || !strings.Contains(out, "1 store worker hangs, the longest for ") || !strings.Contains(out, store) {
		t.Errorf("the screen says:\n%s", out)
	}
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	u.must(aliceUID, "put", u.sparse("g", aliceUID, 1<<20), "bb://a/g")
	u.must(aliceUID, "drain", "a", "--timeout", "1m")
	if w := u.workers(0); w.Restarts == 0 || len(w.Hanging) != 0 {
		t.Errorf("after the worker was killed: %+v", w)
	}
}
