package main

import (
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
	"forebay/internal/clusterkey"
)

// The daemon outlives a tmpfs that another application has filled. A request without memory is an
// error to its client, and the next start succeeds as well.
func TestFullTmpfsEndsNoDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	d, shm := onSmallTmpfs(t)
	if d == nil {
		return
	}
	c := dialDaemon(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := create(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	if err := c.Buffer("b").WriteFile(t.Context(), "bytes", []byte("there"), 0o644); err != nil {
		t.Fatal(err) // so that some memory is populated before the other application comes
	}
	fill(t, filepath.Join(shm, "another-application"))
	for life := range 2 {
		made := 0
		for i := range 200 {
			switch err := create(t, c, fmt.Sprintf("life%d-%d", life, i)); {
			case err == nil:
				made++
			case !errors.Is(err, client.ErrNoSpace):
				t.Fatalf("life %d: create %d: %v\n%s", life, i, err, d.Log())
			}
		}
		names := 0
		for e, err := range c.Buffer("b").ReadDir(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Name, fmt.Sprintf("life%d-", life)) {
				names++
			}
		}
		if names != made {
			t.Errorf("life %d: %d files were made, %d are there", life, made, names)
		}
		c.Close()
		d.Kill()
		d.Start()
		c = dialDaemon(t, d)
	}
	if p, err := c.Buffer("b").ReadFile(t.Context(), "bytes"); err != nil || string(p) != "there" {
		t.Errorf("after two restarts: %q, %v", p, err)
	}
}

// A rename or a removal is an atomic change of the namespace, which its server keeps in memory on
// its way. Where an application has filled that tmpfs, it goes through the disk.
func TestChangesOnAFullTmpfs(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	t.Run("buckets", func(t *testing.T) {
		t.Parallel()
		changesOnAFullTmpfs(t, true, withBuckets...)
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		changesOnAFullTmpfs(t, false, withLog...) // a change of a log is one message
	})
}

func changesOnAFullTmpfs(t *testing.T, batches bool, args ...string) {
	d, shm := onSmallTmpfs(t, args...)
	if d == nil {
		return
	}
	c := dialDaemon(t, d)
	store := t.TempDir()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"renamed", "removed"} {
		if err := c.Buffer("b").WriteFile(t.Context(), name, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Drain(t.Context(), c, "b", 0, nil); err != nil {
		t.Fatal(err)
	}
	if batches {
		awaitBatches(t, d, d.Memory)
	}
	fill(t, filepath.Join(shm, "another-application"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Buffer("b").Rename(ctx, "renamed", "now"); err != nil {
		t.Errorf("a rename: %v", err)
	}
	if err := c.Buffer("b").Remove(ctx, "removed"); err != nil {
		t.Errorf("a removal: %v", err)
	}
	if _, err := admin.Drain(ctx, c, "b", 0, nil); err != nil {
		t.Errorf("a drain: %v", err)
	}
	if found, err := os.ReadDir(store); err != nil || len(found) != 1 || found[0].Name() != "now" {
		t.Errorf("the store has %v (%v), want now alone", found, err)
	}
	c.Close()
}

// The namespace server moves its batches itself. Changes of a node that is not the server's
// continue too, though none are made at the server's node.
func TestOthersChangesOnAFullTmpfs(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	shm, ok := smallTmpfs(t)
	if !ok {
		return
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, clusterkey.New(), 0o600); err != nil {
		t.Fatal(err)
	}
	nats, gossip := bbdtest.FreePort(t, "127.0.0.1"), bbdtest.FreePort(t, "127.0.0.1")
	_, gossipPort, _ := strings.Cut(gossip, ":")
	var daemons []*bbdtest.Daemon
	for i := range 2 {
		host := fmt.Sprintf("127.0.0.%d", i+1)
		d := bbdtest.New(t, withBuckets...)
		d.Config = fmt.Sprintf(`
name: n%d
listen: {tcp: %q, admin: "127.0.0.1:0"}
cluster: {listen: "%[3]s:%[4]s", advertise: %[3]q, join: %[5]q}
nats: {servers: %[6]q}
key_file: %[7]s
memory: {size: 128MiB, region_size: 64MiB}
`, i+1, bbdtest.FreePort(t, host), host, gossipPort, gossip, nats, key)
		daemons = append(daemons, d)
	}
	server, other := daemons[0], daemons[1]
	server.Memory = filepath.Join(shm, "mem")
	server.Start()
	other.Start()
	c := dialDaemon(t, other)
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := c.Buffer("b").WriteFile(t.Context(), fmt.Sprint("f", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	awaitBatches(t, server, server.Memory)
	fill(t, filepath.Join(shm, "another-application"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	for i := range 10 {
		if err := c.Buffer("b").Rename(ctx, fmt.Sprint("f", i), fmt.Sprint("now", i)); err != nil {
			t.Fatalf("rename %d: %v", i, err)
		}
	}
	t.Logf("ten renames in %v", time.Since(began))
	awaitBatches(t, server, server.Dir)
}

// awaitBatches waits until the batches of buffer b pass through a folder below dir of the server's node.
func awaitBatches(t *testing.T, server *bbdtest.Daemon, dir string) {
	t.Helper()
	var at string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		links, err := filepath.Glob(filepath.Join(server.Dir, "nats", "jetstream", "$G", "streams", "KV_forebay-b-*", "batches"))
		if err != nil {
			t.Fatal(err)
		}
		if len(links) == 1 {
			if at, _ = os.Readlink(links[0]); strings.HasPrefix(at, dir+"/") {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("batches pass through %q, want below %s (%q)", at, dir, links)
		}
	}
}

// onSmallTmpfs starts a daemon whose memory is in a tmpfs of 200 MiB. It returns nil where this user may not mount one.
func onSmallTmpfs(t *testing.T, args ...string) (d *bbdtest.Daemon, shm string) {
	t.Helper()
	shm, ok := smallTmpfs(t)
	if !ok {
		return nil, ""
	}
	d = bbdtest.New(t, args...)
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
	d.Memory = filepath.Join(shm, "mem")
	d.Start()
	return d, shm
}

// smallTmpfs mounts one of 200 MiB, where this user may.
func smallTmpfs(t *testing.T) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	err := unix.Mount("shm", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=200m")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Logf("this user may not mount: %v", err)
		return dir, false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // once bbdtest's own clean-up has ended the daemon
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

func dialDaemon(t *testing.T, d *bbdtest.Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c *client.Client, name string) error {
	f, err := c.Buffer("b").OpenFile(t.Context(), name, client.OpenOptions{Write: true, Create: true, Exclusive: true, Mode: 0o644})
	if err != nil {
		return err
	}
	return f.Close()
}

// fill writes to a file until its file system is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	for {
		if _, err := f.Write(page); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
