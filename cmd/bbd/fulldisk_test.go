package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// TestFullDiskOfNamespace: another program fills the file system of the namespace server's folder. Changes of names
// fail with a remedy, and reads continue. When room is freed, changes continue, and nothing that was acknowledged is missing.
func TestFullDiskOfNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	for _, engine := range []string{"buckets", "log"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fullDiskOfNamespace(t, engine)
		})
	}
}

func fullDiskOfNamespace(t *testing.T, engine string) {
	d := bbdtest.New(t)
	d.Env = []string{"FOREBAY_NAMESPACE_ENGINE=" + engine}
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
	nats := filepath.Join(d.Dir, "nats")
	if err := os.MkdirAll(nats, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("nats", nats, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m"); errors.Is(err, unix.EPERM) {
		t.Logf("this user may not mount: %v", err)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // once bbdtest's own clean-up has ended the daemon
		if err := unix.Unmount(nats, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.Start()
	c := dialDaemon(t, d)
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	acked := map[string][]byte{}
	for i := range 20 {
		acked[fmt.Sprint("before", i)] = clustertest.Content(uint64(i), 1000)
	}
	for name, content := range acked {
		if err := b.WriteFile(ctx, name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for life := range 2 {
		other := filepath.Join(nats, "another-program")
		fill(t, other)
		untilFull(t, b, fmt.Sprint("full", life, "-"), acked)
		// Names are read on, and changes fail at once from now on.
		for name, content := range acked {
			if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%s, while the disk is full: %d bytes (%v)", name, len(got), err)
			}
		}
		for op, err := range map[string]error{
			"mkdir": b.Mkdir(ctx, "directory", 0o755), "rename": b.Rename(ctx, "before0", "after0"), "remove": b.Remove(ctx, "before1"),
		} {
			wantFull(t, op, err, nats)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		// Failed operations may be done or not, each as a whole. None of them is repeated below.
		again := fmt.Sprint("again", life)
		waitFor(t, "changes go on", func() bool { return b.WriteFile(ctx, again, []byte(again), 0o644) == nil })
		acked[again] = []byte(again)
		acked["before0"], acked["after0"] = renamed(t, b, "before0", "after0", acked["before0"])
		if acked["after0"] != nil {
			if err := b.Rename(ctx, "after0", "before0"); err != nil {
				t.Fatal(err)
			}
			acked["before0"] = acked["after0"]
		}
		delete(acked, "after0")
		if err := b.WriteFile(ctx, "before1", acked["before1"], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := b.RemoveAll(ctx, "directory"); err != nil && client.KindOf(err) != client.ErrNotFound {
			t.Fatal(err)
		}
	}
	c.Close()
	d.Kill()
	d.Start()
	b = dial(t, d).Buffer("b")
	for name, content := range acked {
		if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s after a restart: %d bytes (%v)", name, len(got), err)
		}
	}
}

// untilFull writes files until one fails, and adds those that were acknowledged.
func untilFull(t *testing.T, b *client.Buffer, prefix string, acked map[string][]byte) {
	t.Helper()
	for i := range 100_000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		name, content := fmt.Sprint(prefix, i), clustertest.Content(uint64(i), 100)
		err := b.WriteFile(ctx, name, content, 0o644)
		cancel()
		if err != nil {
			wantFull(t, "write", err, "")
			return
		}
		acked[name] = content
	}
	t.Fatal("no change fails though the disk is full")
}

// wantFull checks the error of a change while the disk is full.
func wantFull(t *testing.T, op string, err error, dir string) {
	t.Helper()
	if client.KindOf(err) != client.ErrNoSpace || !strings.Contains(err.Error(), "free room on it") || !strings.Contains(err.Error(), dir) {
		t.Errorf("%s, while the disk is full: %v", op, err)
	}
}

// renamed returns the content under two names of a file that was renamed, or not.
func renamed(t *testing.T, b *client.Buffer, from, to string, content []byte) (was, is []byte) {
	t.Helper()
	for _, x := range []struct {
		path string
		got  *[]byte
	}{{from, &was}, {to, &is}} {
		p, err := b.ReadFile(t.Context(), x.path)
		if err == nil {
			*x.got = p
		} else if client.KindOf(err) != client.ErrNotFound {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(was, content) == !bytes.Equal(is, content) {
		t.Fatalf("a rename on a full disk left %d bytes under %s, and %d under %s", len(was), from, len(is), to)
	}
	return was, is
}
