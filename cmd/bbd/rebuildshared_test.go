package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
	"forebay/meta/metatest"
)

// sharedRebuild is two daemons with files of a buffer, whose log they share.
type sharedRebuild struct {
	*logCluster
	store string
	files map[string][]byte // that were acknowledged
	gone  []string          // names that were removed
}

func newSharedRebuild(t *testing.T) *sharedRebuild {
	store := t.TempDir() // is removed after the daemons have ended
	r := &sharedRebuild{logCluster: newLogCluster(t, 2, 1), store: store, files: map[string][]byte{}}
	if _, err := admin.CreateBuffer(t.Context(), r.dial(0), admin.BufferSpec{Name: "r", Backing: "file://" + store, DirtyAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *sharedRebuild) dial(i int) *client.Client {
	r.t.Helper()
	return lasting(r.t, r.daemons[i])
}

// fill has each daemon make, flush, rename, remove and replace files.
func (r *sharedRebuild) fill(round string) {
	r.t.Helper()
	ctx := r.t.Context()
	write := func(i int, path string, size int) {
		r.t.Helper()
		content := clustertest.Content(uint64(len(r.files)+1), size)
		if err := r.dial(i).Buffer("r").WriteFile(ctx, path, content, 0o640); err != nil {
			r.t.Fatal(err)
		}
		r.files[path] = content
	}
	for i := range r.daemons {
		b, of := r.dial(i).Buffer("r"), func(name string) string { return fmt.Sprintf("%s/n%d-%s", round, i+1, name) }
		if err := b.MkdirAll(ctx, round+"/deep", 0o755); err != nil {
			r.t.Fatal(err)
		}
		for _, name := range []string{"flushed", "changed", "removed-flushed", "renamed-flushed"} {
			write(i, of(name), 50_000)
		}
		if err := drain(r.t.(*testing.T), r.dial(i), "r", time.Minute); err != nil {
			r.t.Fatal(err)
		}
		for _, name := range []string{"changed", "dirty", "removed-dirty", "renamed-dirty"} {
			write(i, of(name), 70_000)
		}
		for _, name := range []string{"removed-flushed", "removed-dirty"} {
			if err := b.Remove(ctx, of(name)); err != nil {
				r.t.Fatal(err)
			}
			delete(r.files, of(name))
			r.gone = append(r.gone, of(name))
		}
		for _, name := range []string{"renamed-flushed", "renamed-dirty"} {
			to := round + "/deep/n" + fmt.Sprint(i+1) + "-" + name
			if err := b.Rename(ctx, of(name), to); err != nil {
				r.t.Fatal(err)
			}
			r.files[to] = r.files[of(name)]
			delete(r.files, of(name))
			r.gone = append(r.gone, of(name))
		}
	}
	// The log's remaining part of renames and removals that the store has yet to follow may be lost with it.
	waitFor(r.t, "the store has followed", func() bool {
		for i := range r.daemons {
			_, left := os.Stat(filepath.Join(r.store, round, fmt.Sprintf("n%d-removed-flushed", i+1)))
			_, moved := os.Stat(filepath.Join(r.store, round, "deep", fmt.Sprintf("n%d-renamed-flushed", i+1)))
			if !errors.Is(left, fs.ErrNotExist) || moved != nil {
				return false
			}
		}
		return true
	})
}

// wantAside waits until a daemon has set the buffer aside.
func (r *sharedRebuild) wantAside(i int) {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), client.Options{Address: "unix://" + r.daemons[i].Socket, RetryFor: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Buffer("r").Stat(r.t.Context(), "any")
	if kind := bb.KindOf(err); kind != bb.Lost && kind != bb.Checksum || !strings.Contains(err.Error(), "bbctl buffer rebuild r") {
		r.t.Fatalf("a call to n%d: %v, want the remedy\n%s", i+1, err, r.daemons[i].Log())
	}
}

// asked has clients of both daemons look for all files until done. None may be told that one of them is not there.
func (r *sharedRebuild) asked() (done func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	for i, d := range r.daemons {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := client.Dial(ctx, client.Options{Address: "unix://" + d.Socket, RetryFor: -1})
				if err != nil {
					time.Sleep(5 * time.Millisecond) // it is down
					continue
				}
				for path := range r.files {
					if _, err := c.Buffer("r").Stat(ctx, path); client.KindOf(err) == client.ErrNotFound {
						r.t.Errorf("n%d tells that %s is not there: %v", i+1, path, err)
					}
				}
				c.Close()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// wantAll compares the files at each daemon with the acknowledged ones.
func (r *sharedRebuild) wantAll() {
	r.t.Helper()
	for i := range r.daemons {
		b := r.dial(i).Buffer("r")
		for path, want := range r.files {
			if got, err := b.ReadFile(r.t.Context(), path); err != nil || !bytes.Equal(got, want) {
				r.t.Errorf("at n%d: %s: %d bytes of %d (%v)", i+1, path, len(got), len(want), err)
			}
		}
		for _, path := range r.gone {
			if e, err := b.Stat(r.t.Context(), path); client.KindOf(err) != client.ErrNotFound {
				r.t.Errorf("at n%d: %s is there again: %+v (%v)", i+1, path, e, err)
			}
		}
	}
}

// rebuild rebuilds the namespace at a daemon, when the other one can be called.
func (r *sharedRebuild) rebuild(i int) (was admin.Rebuilt, err error) {
	r.t.Helper()
	waitFor(r.t, "the other daemon has started", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		was, err = admin.RebuildBuffer(ctx, r.dial(i), "r")
		return bb.KindOf(err) != bb.Unavailable
	})
	return was, err
}

// rebuilt rebuilds the namespace at a daemon, and checks all names.
func (r *sharedRebuild) rebuilt(i int) {
	r.t.Helper()
	was, err := r.rebuild(i)
	if err != nil || was.Served || was.Kept+was.Lost+was.OnStore+was.Aside != 0 {
		r.t.Fatalf("%+v (%v)\n%s", was, err, r.daemons[i].Log())
	}
	r.t.Logf("rebuilt: %+v", was)
	r.wantAll()
	if again, err := admin.RebuildBuffer(r.t.Context(), r.dial(1-i), "r"); err != nil || !again.Served {
		r.t.Errorf("a second time: %+v (%v)", again, err)
	}
}

// wantDrained drains the buffer, and compares the store with it.
func (r *sharedRebuild) wantDrained() {
	r.t.Helper()
	t, c := r.t.(*testing.T), r.dial(0)
	err := drain(t, c, "r", 2*time.Minute)
	if client.KindOf(err) == client.ErrExists {
		// No record of the log that was deleted proves that the store's file is the buffer's own, from before its change.
		for i := range r.daemons {
			path := fmt.Sprintf("one/n%d-changed", i+1)
			if _, err := admin.Overwrite(t.Context(), r.dial(i), "r", path, 2*time.Minute, nil); err != nil {
				t.Errorf("drain %s over what is on the store: %v", path, err)
			}
		}
		err = drain(t, c, "r", 2*time.Minute)
	}
	if err != nil {
		t.Errorf("drain: %v", err)
	}
	on := tree(t, r.store)
	for path, want := range r.files {
		if !bytes.Equal(on[path], want) {
			t.Errorf("the store has %d bytes of %d of %s", len(on[path]), len(want), path)
		}
		delete(on, path)
	}
	for path := range on {
		t.Errorf("the store has %s, too", path)
	}
}

// TestRebuildShared: the log of a buffer that two daemons share is lost when its owner is killed, and damaged later
// while neither runs. Each has files of the buffer, which one command restores. A daemon that has served the buffer since
// before is to be started again first. A daemon is killed in the midst. Nobody is told that a file is not there.
func TestRebuildShared(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	r := newSharedRebuild(t)
	r.fill("one")
	r.daemons[0].Kill()
	nats := filepath.Join(r.daemons[0].Dir, "nats")
	if err := os.RemoveAll(metatest.StreamDir(t, nats, "NS_forebay-r-")); err != nil {
		t.Fatal(err)
	}
	done := r.asked()
	r.daemons[0].Start()
	r.wantAside(0)
	if _, err := admin.RebuildBuffer(t.Context(), r.dial(0), "r"); bb.KindOf(err) != bb.Busy || !strings.Contains(err.Error(), "node n2 has served") {
		t.Fatalf("while the other daemon has served the buffer since before: %v", err)
	}
	r.daemons[1].Kill()
	r.daemons[1].Start()
	r.wantAside(1)
	r.rebuilt(0)
	done()
	r.wantDrained()

	r.fill("two")
	for _, d := range r.daemons {
		d.Stop()
	}
	metatest.FlipText(t, nats, "NS_forebay-r-", "n2-dirty")
	bbdtest.StartAll(t, r.daemons...)
	for i := range r.daemons {
		r.wantAside(i)
	}
	done = r.asked()
	begun := strings.Count(r.daemons[0].Log(), "is begun anew")
	ended, by := make(chan error, 1), r.dial(0)
	rebuild := func() {
		_, err := admin.RebuildBuffer(t.Context(), by, "r")
		ended <- err
	}
	go rebuild()
	waitFor(t, "the log is begun anew", func() bool {
		select {
		case err := <-ended:
			if bb.KindOf(err) != bb.Unavailable {
				t.Logf("before the log is seen to be begun anew: %v", err)
				ended <- err
				return true
			}
			go rebuild() // the other daemon is starting
		default:
		}
		return strings.Count(r.daemons[0].Log(), "is begun anew") > begun
	})
	r.daemons[0].Kill()
	r.daemons[0].Start()
	if was, err := r.rebuild(1); err != nil {
		t.Fatalf("%+v (%v)\n%s", was, err, r.daemons[1].Log())
	}
	select {
	case err := <-ended:
		t.Logf("killed in the midst, and then: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("a call to a daemon that was killed in the midst has not ended")
	}
	done()
	r.wantAll()
	r.wantDrained()
}
