package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bbdtest"
)

// TestReadme pastes the README's first example into a shell, as it stands: the daemon starts in
// the background, and the next line uses it. Only `make build` is left out, whose binaries are
// there, and the store is a folder of the test's.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "## Try it\n\n```sh\n")
	block, _, ends := strings.Cut(after, "```\n")
	if !found || !ends || !strings.Contains(block, "bbd --dev &") || !strings.Contains(block, "/tmp/slow") {
		t.Fatalf("the README has no such example: %q", block)
	}
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
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	block = strings.ReplaceAll(block, "/tmp/slow", filepath.Join(dir, "slow"))
	block = strings.Replace(block, "bbd --dev &", "bbd --dev & daemon=$!", 1)
	script := "set -e\nmake() { :; }\ntrap 'kill $daemon; wait $daemon || true' EXIT\n" + block
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FOREBAY_SOCKET=", "XDG_RUNTIME_DIR="+run, "TMPDIR="+run, "XDG_STATE_HOME="+run)
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
