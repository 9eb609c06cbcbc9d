package bbd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// TestOverlappingStores: unless the store is shared, for any client no buffer is created on the
// store of another one, nor below or above it, nor by another path. Buffers that other daemons made
// count, and so do those that were there before a restart.
func TestOverlappingStores(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]func(t *testing.T) (one, other *node){
		"alone":   func(t *testing.T) (one, other *node) { n := startNode(t, nil); return n, n },
		"cluster": func(t *testing.T) (one, other *node) { n := startCluster(t, 2); return n[0], n[1] },
	} {
		t.Run(name, func(t *testing.T) {
			one, other := nodes(t)
			_, dir := one.buffer(one.dial(), admin.BufferSpec{Name: "first"})
			link := filepath.Join(one.base, "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
				t.Fatal(err)
			}
			one.stop()
			one.start()
			c := other.dial()
			for i, path := range []string{dir, dir + "/below", filepath.Dir(dir), link} {
				spec := admin.BufferSpec{Name: fmt.Sprint("second-", i), Backing: "file://" + path}
				for _, existing := range []admin.Existing{admin.ExistingKeep, admin.ExistingOverwrite} {
					spec.Existing = existing
					_, err := admin.CreateBuffer(t.Context(), c, spec)
					if !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), "overlaps that of buffer first") || !strings.Contains(err.Error(), "--shared") {
						t.Errorf("%s: %v", path, err)
					}
				}
				if _, err := admin.BufferInfo(t.Context(), c, spec.Name); !errors.Is(err, client.ErrNotFound) {
					t.Errorf("%s was created: %v", spec.Name, err)
				}
				spec.Shared = true
				if made, err := admin.CreateBuffer(t.Context(), c, spec); err != nil || made.Shared {
					t.Errorf("%s, shared: %+v (%v)", path, made, err)
				}
				if err := admin.DestroyBuffer(t.Context(), c, spec.Name); err != nil {
					t.Error(err)
				}
			}
			if err := admin.DestroyBuffer(t.Context(), c, "first"); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "second", Backing: "file://" + dir}); err != nil {
				t.Errorf("after the end of the other buffer: %v", err)
			}
		})
	}
}

// TestOverlappingAtOnce: of several that create buffers on one store at once, by two daemons, one
// succeeds, and the buffers of the others are not there.
func TestOverlappingAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	clients := []*client.Client{nodes[0].dial(), nodes[1].dial(), nodes[0].dial(), nodes[1].dial()}
	for round := range 10 {
		backing := "file://" + t.TempDir()
		errs := make([]error, len(clients))
		name := func(i int) string { return fmt.Sprintf("b-%d-%d", round, i) }
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				_, errs[i] = admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: name(i), Backing: backing})
			})
		}
		all.Wait()
		made := 0
		for i, err := range errs {
			_, there := admin.BufferInfo(t.Context(), clients[0], name(i))
			switch {
			case err == nil && there == nil:
				made++
			case !errors.Is(err, client.ErrExists) || !errors.Is(there, client.ErrNotFound):
				t.Errorf("round %d, buffer %d: %v, and then %v", round, i, err, there)
			}
		}
		if made != 1 {
			t.Fatalf("round %d: %d buffers were created: %v", round, made, errs)
		}
	}
}

// TestOverlappingJobs: a job starts while the buffer of an earlier one of the same user still drains
// to the same store. A job that overwrites does not, unless it shares the store. To another user's
// job the buffer is not named.
func TestOverlappingJobs(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	store := t.TempDir()
	first, o := aJob("job-1", store)
	comeTo(t, nodes, first, o)
	for _, n := range nodes {
		n.faults.Set(fault.Rule{Op: "put", Kind: fault.Full})
	}
	content := random(100_000)
	write(t, nodes[1].dial().Buffer("job-1"), "step-1", content)
	leave(t, nodes, "job-1")
	wantState(t, c, "job-1", admin.LifetimeOrphan)

	next, o := aJob("job-2", store)
	comeTo(t, nodes, next, o)
	write(t, nodes[0].dial().Buffer("job-2"), "step-2", content)

	over, o := aJob("job-3", store)
	o.Create[0].Existing = admin.ExistingOverwrite
	_, err := admin.OpenLifetime(t.Context(), c, over, o)
	if !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), "overlaps that of buffer job-1") || !strings.Contains(err.Error(), "shared=yes") {
		t.Errorf("a job that overwrites: %v", err)
	}
	o.Create[0].Shared = true
	comeTo(t, nodes, over, o)

	if err := os.Chmod(store, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(store), 0o755); err != nil {
		t.Fatal(err)
	}
	theirs, o := aJob("job-4", store)
	theirs.UID, theirs.GID = intruderUID, intruderUID
	_, err = admin.OpenLifetime(t.Context(), c, theirs, o)
	if !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), "overlaps that of a buffer that you may not enter") {
		t.Errorf("another user's job: %v", err)
	}

	for _, n := range nodes {
		n.faults.Set()
	}
	leave(t, nodes, "job-2")
	leave(t, nodes, "job-3")
	for _, key := range []string{"job-1", "job-2", "job-3"} {
		wantState(t, c, key, admin.LifetimeGone)
	}
	wantInStore(t, store, "step-1", content)
	wantInStore(t, store, "step-2", content)
}
