package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/cmd/bbctl/apptest"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing"
	"forebay/internal/bbdtest"
	"forebay/internal/cli"
)

// doctor --clean removes the files of a killed daemon from a directory that no daemon continues to
// use, lists them before with --dry-run, and leaves files of unknown daemons.
func TestDoctorClean(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	dir := t.TempDir()
	d := bbdtest.New(t)
	const config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
	d.Config = config + "flush: {limit: 1MiB}\n"
	d.Start()
	t.Setenv("FOREBAY_SOCKET", d.Socket)
	left := killedIn(t, d, filepath.Join(dir, "sub"))
	user := backing.NewOwner(0xabcdef).TempName()
	if err := os.WriteFile(filepath.Join(dir, user), []byte("a user's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(d.Dir, "unfinished")); err != nil { // else the next start removes it
		t.Fatal(err)
	}
	d.Config = config
	d.Start()

	url := "file://" + dir
	bbctl(t, cli.ExitUsage, "doctor", "--dry-run")
	out := bbctl(t, cli.ExitDone, "doctor", "--clean", "--dry-run", "--store", url)
	apptest.WantLine(t, out, "would be removed")
	apptest.WantLine(t, out, url+"/sub/"+left)
	apptest.WantLine(t, out, url+"/"+user)
	apptest.WantLine(t, out, "no daemon here has a record of it")
	if _, err := os.Stat(filepath.Join(dir, "sub", left)); err != nil {
		t.Errorf("--dry-run has removed it: %v", err)
	}
	if out := bbctl(t, cli.ExitDone, "--json", "doctor", "--clean", "--store", url); !strings.Contains(out, `"state":"removed"`) || !strings.Contains(out, `"state":"left"`) {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub", left)); !os.IsNotExist(err) {
		t.Errorf("what the killed daemon left: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, user)); err != nil || string(text) != "a user's" {
		t.Errorf("the user's file: %q, %v", text, err)
	}
	if out := bbctl(t, cli.ExitDone, "doctor", "--clean", "--store", url); strings.Contains(out, left) {
		t.Errorf("it is listed again:\n%s", out)
	}
	apptest.WantLine(t, bbctl(t, cli.ExitPartly, "doctor", "--clean", "--store", url+"/nowhere"), "nowhere")
}

// killedIn kills a daemon in the middle of a stage-out to a directory, and returns the name of its
// remains there.
func killedIn(t *testing.T, d *bbdtest.Daemon, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Buffer("b").WriteFile(t.Context(), "f", make([]byte, 48<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: "b", Path: "f", URL: "file://" + dir + "/f"}, nil)
		ended <- err
	}()
	left := ""
	for ; left == "" && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(dir, ".forebay-*.tmp"))
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 0 {
			left = filepath.Base(names[0])
		}
	}
	d.Kill()
	if err := <-ended; err == nil || left == "" {
		t.Fatalf("the daemon was not killed in the middle: %q, %v", left, err)
	}
	return left
}
