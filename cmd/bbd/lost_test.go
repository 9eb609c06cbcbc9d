package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// If a machine dies, synced bytes of a file that is still open are lost. The file is reported,
// although its entry had no size yet. Of an empty one nothing is lost.
func TestOpenFileLostWithItsNode(t *testing.T) {
	d := bbdtest.New(t)
	d.Config = `
listen: {admin: "127.0.0.1:0"}
memory: {size: 128MiB, region_size: 64MiB}
`
	d.Start()
	c := dial(t, d)
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "lost"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("lost")
	if err := b.WriteFile(ctx, "empty", nil, 0); err != nil {
		t.Fatal(err)
	}
	f, err := b.Create(ctx, "open")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(clustertest.Content(2, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	instance := c.Server().Instance
	d.Crash()
	c.Close()
	d.Start()
	c = dial(t, d)
	b = c.Buffer("lost")
	if c.Server().Instance == instance {
		t.Error("the daemon came back as the same instance")
	}
	if p, err := b.ReadFile(ctx, "open"); !errors.Is(err, client.ErrLost) {
		t.Errorf("the open file: %d bytes, %v", len(p), err)
	}
	if p, err := b.ReadFile(ctx, "empty"); err != nil || len(p) != 0 {
		t.Errorf("the empty file: %d bytes, %v", len(p), err)
	}
	lost, err := c.Buffer("lost").Lost(ctx)
	if err != nil || len(lost) != 1 || !slices.ContainsFunc(lost, func(e client.Entry) bool { return e.Path == "open" }) {
		t.Errorf("lost are %+v (%v)", lost, err)
	}
}

// A machine dies while a file is open whose extents lie on the disk tier, which stays, and in
// memory, which goes. The extents on disk are not the file, since it has holes, and old bytes. So
// the file is lost, even if the next daemon is killed before it serves a request.
func TestOpenFileOutlivedByDiskTier(t *testing.T) {
	backing := t.TempDir()
	d := bbdtest.New(t)
	d.Config = `
listen: {admin: "127.0.0.1:0"}
memory: {size: 256MiB, region_size: 64MiB}
disk: {dir: "{{.Dir}}/disk", size: 256MiB}
`
	d.Start()
	c := dialDaemon(t, d) // it connects again as often as the daemon is killed
	t.Cleanup(func() { c.Close() })
	ctx := t.Context()
	b := c.Buffer("b")
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{
		Name: "b", Backing: "file://" + backing, Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}},
	}); err != nil {
		t.Fatal(err)
	}
	f, err := b.Create(ctx, "ckpt")
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	sync := func(seed uint64, off, n int) {
		t.Helper()
		if _, err := f.WriteAt(clustertest.Content(seed, n), int64(off)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		if i != 4 && i != 5 {
			sync(uint64(i), i*mib, mib)
		}
	}
	await(t, "finished segments to be on disk", func() bool { return statusOf(t, c).Disk.Live >= 16*mib })
	sync(100, 4*mib, 2*mib) // the hole
	sync(101, 10*mib, mib)  // overwritten
	d.Crash()
	d.Start()
	for range 2 { // the second life finds memory as the first one has left it
		c := dial(t, d)
		b := c.Buffer("b")
		if e, err := b.Stat(ctx, "ckpt"); err != nil || e.State != client.StateLost || e.Reason == "" {
			t.Errorf("it is %v, %q (%v)", e.State, e.Reason, err)
		}
		if p, err := b.ReadFile(ctx, "ckpt"); !errors.Is(err, client.ErrLost) {
			t.Errorf("reading it: %d bytes, %v", len(p), err)
		}
		if report, err := admin.Drain(ctx, c, "b", time.Minute, nil); !errors.Is(err, client.ErrLost) || report.FailedTotal != 1 {
			t.Errorf("draining it: %+v (%v)", report, err)
		}
		if _, err := os.Stat(filepath.Join(backing, "ckpt")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the store has it (%v)", err)
		}
		d.Kill()
		d.Start()
	}
	if err := f.Close(); !errors.Is(err, client.ErrLost) {
		t.Errorf("its writer, which has come back, closes it: %v", err)
	}
}

// await waits for a state.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s", what)
		}
	}
}
