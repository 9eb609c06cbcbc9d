package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/porttest"
)

// TestReadme pastes the README's first example into a shell, as it stands. The daemon starts in the
// background, and the next line uses it. Only `make build` is left out, whose binaries are there,
// and the store is a folder of the test's.
func TestReadme(t *testing.T) {
	block := readme(t, "## Try it\n\n```sh\n", "bbd --dev &", "/tmp/slow")
	dir, run := t.TempDir(), t.TempDir()
	for name, target := range map[string]string{"bin/bbd": bbdtest.Binary(t), "bin/bbctl": bbdtest.Bbctl(t), "docs": "../../docs"} {
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Unmount(filepath.Join(run, "forebay/mem"), syscall.MNT_DETACH) }) // root's daemon mounts it
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	block = strings.ReplaceAll(block, "/tmp/slow", filepath.Join(dir, "slow"))
	block = strings.Replace(block, "bbd --dev &", "bbd --dev & daemon=$!", 1)
	script := "set -e\nmake() { :; }\ntrap 'kill $daemon; wait $daemon || true' EXIT\n" + block
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FOREBAY_SOCKET=", "XDG_RUNTIME_DIR="+run, "TMPDIR="+run, "XDG_CACHE_HOME="+run)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"docs.tar", "ckpt"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not shown: %s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "slow/run1/docs.tar")); err != nil {
		t.Errorf("the store has no file: %v", err)
	}
}

// TestReadmeGo makes a module of its own with the README's program, by the README's steps.
func TestReadmeGo(t *testing.T) {
	const checkout = "/path/to/forebay"
	script := readme(t, "From Go,", checkout)
	_, script, _ = strings.Cut(script, "```sh\n")
	program := readme(t, "with this `main.go`:\n\n```go\n", "ckpt", "step-100.ckpt")
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	d := bbdtest.Start(t)
	store, dir := t.TempDir(), t.TempDir()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "ckpt", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", strings.ReplaceAll(script, checkout, source))
	cmd.Dir = dir
	// The checkout's go.sum has checked the modules already, without the checksum database.
	cmd.Env = append(os.Environ(), "FOREBAY_SOCKET="+d.Socket, "GOSUMDB=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if info, err := os.Stat(filepath.Join(store, "step-100.ckpt")); err != nil || info.Size() != 64<<20 {
		t.Errorf("the store does not have the file: %+v (%v)", info, err)
	}
}

// TestQuickStart pastes the blocks of docs/quickstart.md one after the other, as they stand, into
// terminals. A daemon runs in one, which starts again for the store's credentials, an S3 server in
// another, all else in a third. Left out is `make build`, whose binaries are there. The server's
// address and the folders below /tmp are the test's.
func TestQuickStart(t *testing.T) {
	text, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, part := range strings.Split(string(text), "\n```") {
		if i%2 == 1 {
			blocks = append(blocks, strings.TrimPrefix(part, "sh\n"))
		}
	}
	if len(blocks) != 8 || !strings.Contains(blocks[0], "bbd --dev") || !strings.Contains(blocks[2], "bbd --dev") || !strings.Contains(blocks[7], "bbd purge --discard") {
		t.Fatalf("the quick start has other blocks than this test: %q", blocks)
	}
	address := startS3Server(t)
	dir, run := t.TempDir(), t.TempDir()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"bin/bbd": bbdtest.Binary(t), "bin/bbctl": bbdtest.Bbctl(t), "docs": "../../docs", "README.md": "../../README.md"} {
		target, err := filepath.Abs(target)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		if err = errors.Join(err, os.Symlink(target, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Unmount(filepath.Join(run, "forebay/mem"), syscall.MNT_DETACH) }) // root's daemon mounts it
	const stop = "kill $daemon; wait $daemon || true; daemon="
	script := "set -e -o pipefail\nmake() { :; }\n_get_comp_words_by_ref() { :; }\ntrap 'test -z \"$daemon\" || kill $daemon' EXIT\n"
	for i, block := range blocks {
		if i == 2 || i == len(blocks)-1 { // ctrl-C
			script += stop + "\n"
		}
		script += strings.Replace(block, "bbd --dev", "bbd --dev & daemon=$!", 1) + "\n"
	}
	script = strings.NewReplacer("/tmp/", dir+"/", "127.0.0.1:7070", address).Replace(script)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FOREBAY_SOCKET=", "XDG_RUNTIME_DIR="+run, "TMPDIR="+run, "XDG_CACHE_HOME="+run, "FOREBAY_MEMORY_SIZE=256MiB")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A drain on a slow machine finds all files flushed already. The comparison with the store shows its purpose.
	for _, want := range []string{"created bb://ckpt/", "created bb://out/", "# Forebay", "drain: ", "verify: 2 files", "stage-in: 2 files", "would remove bb://ckpt/kept/README.md", "purged"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not shown: %s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "elsewhere/README.md")); err != nil {
		t.Errorf("stage-out has made no file: %v", err)
	}
}

// readme returns the rest of a code block of the README that begins after some words.
func readme(t *testing.T, after string, with ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), after)
	block, _, ends := strings.Cut(rest, "\n```\n")
	if !found || !ends || slices.ContainsFunc(with, func(w string) bool { return !strings.Contains(block, w) }) {
		t.Fatalf("the README has no such example after %q: %q", after, block)
	}
	return block + "\n"
}

// startS3Server runs the server of `make s3server`, at an address of its own, until the test ends.
func startS3Server(t *testing.T) (address string) {
	t.Helper()
	address, err := porttest.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, "../../scripts/s3server.sh", address, t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { stop(); <-ended })
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the S3 server has ended: %v: %s", err, &out)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
