package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/cmd/bbctl/app"
	"forebay/internal/bbdtest"
	"forebay/internal/cli"
)

// A daemon that does not answer is named after some seconds, and --timeout ends the wait with
// the exit code of a timeout.
func TestTimeoutOfHangingDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	silent, err := net.Listen("unix", socket) // never accepts, since the kernel does
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var out, errs strings.Builder
	a := &app.App{In: strings.NewReader(""), Out: &out, Err: &errs}
	defer a.Close()
	cmd := newCommand(a)
	cmd.SetArgs([]string{"buffer", "list", "--timeout", "4s", "--socket", socket})
	began := time.Now()
	err = cmd.ExecuteContext(t.Context())
	if err == nil || app.ExitCode(err) != cli.ExitCancelled {
		t.Fatalf("a hanging daemon: %v, want exit code %d", err, cli.ExitCancelled)
	}
	if !strings.Contains(err.Error(), "the timeout of 4s passed") {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if n := strings.Count(errs.String(), "no answer after 2s: waiting for the daemon"); n != 1 {
		t.Errorf("%d lines of the wait, want 1: %q", n, errs.String())
	}
}

// A store that takes connections and never answers, as a stopped server does, is named.
func TestTimeoutOfHangingStore(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // never accepts, since the kernel does
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	d := bbdtest.New(t)
	d.Env = []string{"AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s", "AWS_REGION=us-east-1"}
	d.Start()
	if code := run(t.Context(), []string{"buffer", "list", "--timeout", "1m", "--socket", d.Socket}); code != cli.ExitDone {
		t.Errorf("a timeout that does not pass: exit code %d", code)
	}
	store := "s3://bucket/in?path_style=true&endpoint=http://" + silent.Addr().String()
	var out, errs strings.Builder
	a := &app.App{In: strings.NewReader(""), Out: &out, Err: &errs, Connection: app.Connection{Address: d.Socket}}
	defer a.Close()
	cmd := newCommand(a)
	cmd.SetArgs([]string{"buffer", "create", "b", "--backing", store, "--timeout", "4s", "--socket", d.Socket})
	if err := cmd.ExecuteContext(t.Context()); err == nil || app.ExitCode(err) != cli.ExitCancelled {
		t.Fatalf("a hanging store: %v, want exit code %d", err, cli.ExitCancelled)
	}
	if !strings.Contains(errs.String(), "no answer after 2s: waiting for the daemon, which uses "+store) {
		t.Errorf("the wait is not explained: %q", errs.String())
	}
}

func TestTimeoutIsNotNegative(t *testing.T) {
	if code := run(t.Context(), []string{"buffer", "list", "--timeout", "-1s"}); code != cli.ExitUsage {
		t.Errorf("exit code %d, want %d", code, cli.ExitUsage)
	}
}
