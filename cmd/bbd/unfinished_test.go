package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/flusher/backing"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// inBits is a daemon that copies so slowly that it is killed in the middle of a file.
const inBits = quickly + "flush: {limit: 1MiB}\n"

// temps lists the temporary files in a directory.
func temps(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if backing.IsTemp(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timeout: " + what)
		}
	}
}

// bystander puts a user's file into a directory that is named like a daemon's unfinished
// work, and is as old as no upload.
func bystander(t *testing.T, dir string) string {
	t.Helper()
	name := backing.NewOwner(0xabcdef).TempName()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte("a user's"), 0o644); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-10 * backing.PeerAge)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	return name
}

// killedStagingOut returns a daemon that was killed in the middle of a stage-out to a new
// directory, and the expected content of the file.
func killedStagingOut(t *testing.T) (d *bbdtest.Daemon, dir string, want []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d = bbdtest.New(t)
	d.Config = inBits
	d.Start()
	c := dial(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	want = clustertest.Content(1, 48<<20)
	if err := c.Buffer("b").WriteFile(t.Context(), "f", want, 0o644); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "b", Path: "f", URL: "file://" + dir + "/f"}, nil)
		ended <- err
	}()
	waitFor(t, "a file is being written", func() bool { return len(temps(t, dir)) > 0 })
	d.Kill()
	c.Close()
	if err := <-ended; err == nil {
		t.Fatal("the stage-out ended before the daemon was killed")
	}
	if n := len(temps(t, dir)); n != 1 {
		t.Fatalf("%d temporary files after the kill, want 1", n)
	}
	d.Config = quickly
	return d, dir, want
}

func stageOutAgain(t *testing.T, d *bbdtest.Daemon, dir string, want []byte) {
	t.Helper()
	c := dial(t, d)
	defer c.Close()
	if _, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "b", Path: "f", URL: "file://" + dir + "/f"}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != string(want) {
		t.Errorf("%d of %d bytes: %v", len(got), len(want), err)
	}
}

// expectOnly waits until nothing but a user's file is named like unfinished work.
func expectOnly(t *testing.T, dir, user string) {
	t.Helper()
	waitFor(t, "what the killed daemon left is removed", func() bool { return len(temps(t, dir)) == 1 })
	if now := temps(t, dir); now[0] != user {
		t.Errorf("there is %s, and not the user's %s", now, user)
	}
}

// When a daemon that was killed during a stage-out starts again, it removes its unfinished files,
// without a repeated request.
func TestKilledStageOutIsSweptAtTheNextStart(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	d, dir, want := killedStagingOut(t)
	user := bystander(t, dir)
	d.Start()
	expectOnly(t, dir, user)
	stageOutAgain(t, d, dir, want)
	expectOnly(t, dir, user)
	waitFor(t, "nothing is noted any more", func() bool {
		left, err := filepath.Glob(filepath.Join(d.Dir, "unfinished", "*"))
		return err == nil && len(left) == 0
	})
}

// A machine that comes back without its memory is another instance, which still recognizes its own stage-outs.
func TestKilledStageOutIsSweptByAnotherInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	d, dir, _ := killedStagingOut(t)
	user := bystander(t, dir)
	d.Crash()
	d.Start()
	expectOnly(t, dir, user)
}

// The same for a flush: the buffer's store holds no temporary file once the flush is done.
func TestKilledFlushIsSwept(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory lost %t", lost), func(t *testing.T) {
			dir := t.TempDir()
			d := bbdtest.New(t)
			d.Config = inBits
			d.Start()
			c := dial(t, d)
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + dir}); err != nil {
				t.Fatal(err)
			}
			want := clustertest.Content(1, 48<<20)
			if err := c.Buffer("b").WriteFile(t.Context(), "f", want, 0o644); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "a file is being flushed", func() bool { return len(temps(t, dir)) > 0 })
			user := bystander(t, dir)
			if c.Close(); lost {
				d.Crash()
			} else {
				d.Kill()
			}
			d.Config = quickly
			d.Start()
			if !lost {
				waitFor(t, "it is flushed", func() bool {
					got, err := os.ReadFile(filepath.Join(dir, "f"))
					return err == nil && string(got) == string(want)
				})
			}
			expectOnly(t, dir, user)
			if strings.Contains(d.Log(), "panic") {
				t.Error("the daemon has panicked")
			}
		})
	}
}
