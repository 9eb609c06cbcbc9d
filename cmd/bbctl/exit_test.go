package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/cli"
)

// A daemon that hangs up at once, whether it has read something by then or not, is no success.
func TestDaemonHangsUp(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "f"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if i%2 == 0 {
				_, _ = conn.Read(make([]byte, 1))
			}
			conn.Close()
		}
	}()
	defer func() {
		l.Close()
		<-ended
	}()
	for range 2 { // each waits for a daemon that may be starting
		if code := run(t.Context(), []string{"--socket", socket, "put", file, "bb://x/y"}); code != cli.ExitUnavailable {
			t.Fatalf("exit code %d, want %d", code, cli.ExitUnavailable)
		}
	}
}

// An incomplete removal, cancelled or failed, reports the removed files.
func TestUnfinishedRemoval(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	denied := &client.Error{Kind: client.ErrPermission, Op: "remove", Path: "bb://b/x"}
	const left = "of bb://b/x, 998 files and 2 directories are removed, the rest is still there"
	for _, c := range []struct {
		ctx  context.Context
		err  error
		json bool
		left string
		code int
		want string
	}{
		{ctx, ctx.Err(), false, "", cli.ExitCancelled, "bbctl: cancelled\n"},
		{ctx, ctx.Err(), false, left, cli.ExitCancelled, "bbctl: cancelled\nbbctl: " + left + "\n"},
		{t.Context(), denied, false, left, cli.ExitPermission, "bbctl: remove: bb://b/x: permission\nbbctl: " + left + "\n"},
		{t.Context(), nil, false, left, cli.ExitDone, ""},
	} {
		var text strings.Builder
		a := &app.App{Err: &text, Left: c.left, JSON: c.json}
		if code := a.Exit(c.ctx, c.err); code != c.code || text.String() != c.want {
			t.Errorf("exit code %d, %q, want %d, %q", code, text.String(), c.code, c.want)
		}
	}
}

func TestMistypedCommands(t *testing.T) {
	for _, line := range []string{"node drian n1", "buffer destory b", "txn abrt 1", "cluster innit d", "slurm sweeep", "jobs wach 1", "frobnicate"} {
		if code := run(t.Context(), strings.Fields(line)); code != cli.ExitUsage {
			t.Errorf("bbctl %s: exit code %d, want %d", line, code, cli.ExitUsage)
		}
	}
}
