package app

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"forebay/internal/bbdtest"
	"forebay/internal/cli"
	"forebay/internal/porttest"
)

// TestStartIsExplained: bbctl and doctor print the reason why a starting daemon waits.
func TestStartIsExplained(t *testing.T) {
	nobody, err := porttest.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Cleanup(func() { syscall.Unmount(filepath.Join(dir, "mem"), syscall.MNT_DETACH) }) // root's daemon mounts it
	daemon := exec.Command(bbdtest.Binary(t), "--dev", "--dir", dir, "--memory", "64MiB")
	daemon.Env = append(daemon.Environ(), "FOREBAY_NATS_URL=nats://"+nobody)
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
	})
	socket := filepath.Join(dir, "bbd.sock")
	for readiness(t.Context(), "unix", filepath.Join(dir, "bbd-admin.sock")) == "" {
		if err := daemon.Process.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("the daemon has ended: %s", &log)
		}
	}
	for command, code := range map[string]int{"status": cli.ExitUnavailable, "doctor": cli.ExitPartly} {
		out, err := exec.Command(bbdtest.Bbctl(t), "--socket", socket, command).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != code {
			t.Errorf("%s: %v, want exit code %d", command, err, code)
		}
		if text := string(out); !strings.Contains(text, "does not serve yet: starting: ") || !strings.Contains(text, nobody) {
			t.Errorf("%s does not say what the daemon waits for: %s", command, text)
		}
	}
}
