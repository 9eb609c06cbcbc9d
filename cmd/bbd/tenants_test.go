package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// waiting is the part of a daemon's status that is about the line for memory.
type waiting struct {
	Waiting struct {
		Writers, Users int
		For            map[string]int
	}
}

// line returns it as a user is given it.
func (u *users) line(uid int) (w waiting) {
	u.t.Helper()
	out, err := u.as(uid, time.Minute, "status", "--json")
	if err != nil {
		u.t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &w); err != nil {
		u.t.Fatalf("%v\n%s", err, out)
	}
	return w
}

// sparse makes a file of so many bytes for a user to put.
func (u *users) sparse(name string, uid int, bytes int64) string {
	u.t.Helper()
	path := u.file(filepath.Join(u.top, name), "", uid, 0o600)
	if err := os.Truncate(path, bytes); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// TestMemoryOfUsers: the memory of a daemon is full of one user's files, which no store takes. Another
// user gets in, and works through more than a region with a store. Root has a region besides.
func TestMemoryOfUsers(t *testing.T) {
	t.Parallel()
	u := startForUsers(t, "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 512MiB, region_size: 64MiB}\n")
	if err := os.Chmod(u.d.Memory, 0o711); err != nil { // users map regions
		t.Fatal(err)
	}
	u.must(aliceUID, "buffer", "create", "hoard")
	store := u.dir("store", bobUID, 0o700)
	u.must(bobUID, "buffer", "create", "works", "--backing", backingURL(store))
	u.must(0, "buffer", "create", "roots")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	hoard := u.sparse("hoard", aliceUID, 600<<20)
	go func() {
		defer close(ended)
		if out, err := u.command(ctx, aliceUID, "put", hoard, "bb://hoard/all").CombinedOutput(); ctx.Err() == nil {
			ended <- fmt.Errorf("%w\n%s", err, out)
		}
	}()
	defer func() {
		cancel()
		for range ended {
		}
	}()
	full := func() bool {
		select {
		case err := <-ended:
			t.Fatalf("memory is not full: %v", err)
		default:
		}
		return u.line(aliceUID).Waiting.For["own data"] > 0
	}
	// A writer waits for a moment as well while the daemon populates its memory. So each status is waited for.
	waitFor(t, "alice waits for memory, of which her own data is the reason", full)
	waitFor(t, "bob sees a writer that waits, and no reason of others", func() bool {
		w := u.line(bobUID).Waiting
		if len(w.For) != 0 {
			t.Fatalf("bob is told %+v", w)
		}
		return w.Writers > 0
	})
	waitFor(t, "root sees one user that waits, and the reason", func() bool {
		w := u.line(0).Waiting
		return w.Users == 1 && w.For["own data"] == w.Writers
	})
	work := u.sparse("work", bobUID, 20<<20)
	for i := range 6 {
		u.must(bobUID, "put", work, fmt.Sprintf("bb://works/f%d", i))
	}
	u.must(bobUID, "drain", "works", "--timeout", "1m")
	u.must(0, "put", u.sparse("root", 0, 40<<20), "bb://roots/f")
	u.must(0, "rm", "bb://roots/f")
}
