package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// ownMounts is set in the environment of a test that runs with mounts of its own.
const ownMounts = "FOREBAY_TEST_OWN_MOUNTS"

// withOwnMounts runs a test again, in a process with a mount namespace of its own.
func withOwnMounts(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	if os.Getenv(ownMounts) != "" {
		test(t)
		return
	}
	var left time.Duration // none: as long as it takes
	if end, ok := t.Deadline(); ok {
		left = time.Until(end)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private",
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+left.String())
	cmd.Env = append(os.Environ(), ownMounts+"=1")
	out, err := cmd.CombinedOutput()
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("with mounts of its own: %v\n%s", err, out)
	}
}

// mount mounts something until the test ends.
func mount(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		t.Fatalf("mount %v: %v %s", args, err, out)
	}
	t.Cleanup(func() { unix.Unmount(args[len(args)-1], unix.MNT_DETACH) })
}

// mountThatHangs mounts a file system whose server never answers, and returns a function that ends
// it.
func mountThatHangs(t *testing.T, dir string) (end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("hangs", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			unix.Unmount(dir, unix.MNT_DETACH)
			unix.Close(fd) // a waiting request gets an error
		}
	}
	t.Cleanup(end)
	return end
}

func writeFile(t *testing.T, c *client.Client, buffer, path string) {
	t.Helper()
	if err := c.Buffer(buffer).WriteFile(t.Context(), path, []byte(path), 0o644); err != nil {
		t.Fatal(err)
	}
}

// drain drains a buffer, and fails the test if that takes much longer than it is given.
func drain(t *testing.T, c *client.Client, buffer string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Minute)
	defer cancel()
	_, err := admin.Drain(ctx, c, buffer, patience, nil)
	if ctx.Err() != nil {
		t.Errorf("a drain of %s that was given %v did not end", buffer, patience)
	}
	return err
}

// A daemon starts while the file system of one buffer does not answer. The other buffers
// are flushed, and the daemon can be stopped.
func TestMountThatHangs(t *testing.T) { withOwnMounts(t, testMountThatHangs) }

func testMountThatHangs(t *testing.T) {
	hangs, works := t.TempDir(), t.TempDir()
	d := bbdtest.New(t)
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
	d.Start()
	c := dial(t, d)
	for name, dir := range map[string]string{"hangs": hangs, "works": works} {
		if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: name, Backing: "file://" + dir}); err != nil {
			t.Fatal(err)
		}
	}
	d.Kill()
	end := mountThatHangs(t, hangs)
	d.Start()
	c = dial(t, d)
	writeFile(t, c, "hangs", "file")
	writeFile(t, c, "works", "file")
	if err := drain(t, c, "works", 30*time.Second); err != nil {
		t.Errorf("the buffer whose store works: %v", err)
	}
	if err := drain(t, c, "hangs", 10*time.Second); err == nil || !strings.Contains(err.Error(), "not answered") {
		t.Errorf("a drain to the store that hangs: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "another", Backing: "file://" + hangs})
	if !errors.Is(err, client.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("a buffer with a store that hangs is made: %v", err)
	}
	stopped := time.AfterFunc(90*time.Second, func() { d.Kill() })
	d.Stop()
	if !stopped.Stop() {
		t.Error("the daemon did not stop")
	}
	d.Start()
	end()
	c = dial(t, d)
	if err := drain(t, c, "hangs", time.Minute); err != nil {
		t.Errorf("when the file system answers again: %v", err)
	}
	if p, err := os.ReadFile(filepath.Join(hangs, "file")); err != nil || string(p) != "file" {
		t.Errorf("the store has %q, %v", p, err)
	}
}

// A buffer's file system is not mounted any more, while the daemon runs or when it starts. Nothing
// is flushed to the directory below the mount point. When the file system is back, all is flushed.
func TestStoreNotMounted(t *testing.T) {
	withOwnMounts(t, func(t *testing.T) {
		for _, restart := range []bool{false, true} {
			for _, other := range []bool{false, true} {
				t.Run(fmt.Sprintf("restart=%v/other=%v", restart, other), func(t *testing.T) { testStoreNotMounted(t, restart, other) })
			}
		}
	})
}

// testStoreNotMounted has a file system of the same or of another kind below the mount point.
func testStoreNotMounted(t *testing.T, restart, other bool) {
	store, point := t.TempDir(), t.TempDir()
	if other {
		mount(t, "-t", "tmpfs", "tmpfs", store)
	}
	mount(t, "--bind", store, point)
	d := bbdtest.New(t)
	d.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
	d.Start()
	c := dial(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + point}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, c, "b", "first")
	if err := drain(t, c, "b", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if restart {
		d.Kill()
	}
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if restart {
		d.Start()
		c = dial(t, d)
	}
	writeFile(t, c, "b", "second")
	if err := c.Buffer("b").Remove(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if err := drain(t, c, "b", 3*time.Second); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "mount the file system again") {
		t.Errorf("a drain to a file system that is not mounted: %v", err)
	}
	if entries, err := os.ReadDir(point); err != nil || len(entries) != 0 {
		t.Errorf("below the mount point lies %v, %v", entries, err)
	}
	mount(t, "--bind", store, point)
	if err := drain(t, c, "b", time.Minute); err != nil {
		t.Errorf("when it is mounted again: %v", err)
	}
	if p, err := os.ReadFile(filepath.Join(store, "second")); err != nil || string(p) != "second" {
		t.Errorf("the store has %q, %v", p, err)
	}
	if _, err := os.Stat(filepath.Join(store, "first")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed file: %v", err)
	}
}
