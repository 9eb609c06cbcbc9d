package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"forebay/client/admin"
	"forebay/cmd/bbd/config"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// A daemon with the memory of its configuration's defaults, on a /dev/shm as containers have it. It
// takes the present memory, logs that in one line, serves, and starts again.
func TestSmallShm(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64, 256} {
		t.Run(fmt.Sprintf("%d MiB", size), func(t *testing.T) {
			t.Parallel()
			withOwnMounts(t, func(t *testing.T) { inSmallShm(t, size) })
		})
	}
}

func inSmallShm(t *testing.T, size int) {
	mount(t, "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", size), "shm", "/dev/shm")
	store := t.TempDir()
	d := bbdtest.New(t)
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 25%}\n"
	d.Start()
	c := dial(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	const files = 6
	content := func(i int) []byte { return clustertest.Content(uint64(i), size<<20/4) } // more than there is
	for i := range files {
		if err := b.WriteFile(t.Context(), fmt.Sprint(i), content(i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wantQuiet(t, d, 1)
	c.Close()
	for life := range 2 {
		if d.Stop(); life == 1 {
			d.Start()
			d.Kill()
		}
		d.Start()
		c := dial(t, d)
		for i := range files {
			if got, err := c.Buffer("b").ReadFile(t.Context(), fmt.Sprint(i)); err != nil || string(got) != string(content(i)) {
				t.Errorf("file %d after start %d: %d bytes, %v", i, life, len(got), err)
			}
		}
		c.Close()
	}
	wantQuiet(t, d, 4)
}

// wantQuiet fails unless the log has the size of memory once a start, and no errors.
func wantQuiet(t *testing.T, d *bbdtest.Daemon, starts int) {
	t.Helper()
	log := d.Log()
	if said := strings.Count(log, "memory tier is smaller"); said != starts {
		t.Errorf("%d starts, and %d lines of the memory that there is", starts, said)
	}
	if strings.Contains(log, "level=ERROR") || strings.Contains(log, "bad address") {
		t.Errorf("errors in the log:\n%s", log[:min(len(log), 4000)])
	}
}

// purge --discard of a full /dev/shm, and of unreadable regions.
func TestPurgeOnAFullShm(t *testing.T) {
	t.Parallel()
	withOwnMounts(t, func(t *testing.T) {
		mount(t, "-t", "tmpfs", "-o", "size=64m", "shm", "/dev/shm")
		d := bbdtest.New(t, "--memory", "64MiB", "--memory-mount", "off")
		d.Start()
		d.Stop()
		fill(t, "/dev/shm/another-application")
		regions, err := filepath.Glob("/dev/shm/forebay-*/region-*")
		if err != nil || len(regions) == 0 {
			t.Fatalf("%v, %v", regions, err)
		}
		if out, err := exec.Command("truncate", "--size=1", regions[0]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command(bbdtest.Binary(t), "purge", "--discard", "--dir", d.Dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if left, err := filepath.Glob("/dev/shm/forebay-*"); err != nil || len(left) > 0 {
			t.Errorf("purge has left %v, %v", left, err)
		}
		d.Start() // for the end of the test, which purges again
	})
}

// More memory than the machine has is refused, with both figures and a remedy.
func TestMemoryOfTheMachine(t *testing.T) {
	const machine = 24 << 30
	for _, size := range []config.Size{{Share: 25}, {Share: 90}, {Bytes: 64 << 20}, {Bytes: machine}} {
		if err := checkMemory(size, machine); err != nil {
			t.Errorf("%v: %v", size, err)
		}
	}
	err := checkMemory(config.Size{Bytes: 100 << 30}, machine)
	if bb.KindOf(err) != bb.Invalid || !strings.Contains(err.Error(), "100GiB is more than the 24.0 GiB") || !strings.Contains(err.Error(), "25%") {
		t.Errorf("100 GiB of 24: %v", err)
	}
	if err := checkMemory(config.Size{Bytes: 100 << 30}, 0); err != nil {
		t.Errorf("a machine that does not say what it has: %v", err)
	}
	d := bbdtest.New(t)
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 1000TiB}\n"
	if err := d.TryStart(); err == nil || !strings.Contains(d.Log(), "1000TiB is more than") {
		t.Errorf("it started: %v\n%s", err, d.Log())
	}
}
