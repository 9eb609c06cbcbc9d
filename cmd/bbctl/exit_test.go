package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"forebay/client"
)

// The connection to a daemon that hangs up, as bbd does beyond its limit of sessions, is a
// broken pipe as a closed standard output is; only the latter is a success.
func TestBrokenPipes(t *testing.T) {
	broken := &client.Error{Kind: client.ErrUnavailable, Op: "put", Err: &net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}}
	for _, closed := range []bool{false, true} {
		a := &app{err: io.Discard}
		want := exitUnavailable
		if closed {
			want = exitDone
		}
		if code := a.exit(t.Context(), broken, closed); code != want {
			t.Errorf("standard output closed %t: exit code %d, want %d", closed, code, want)
		}
	}
}

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
		if code := run(t.Context(), []string{"--socket", socket, "put", file, "bb://x/y"}); code != exitUnavailable {
			t.Fatalf("exit code %d, want %d", code, exitUnavailable)
		}
	}
}

// A removal that does not come to its end says how much is gone: cancelled, or after an error.
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
		{ctx, ctx.Err(), false, "", exitCancelled, "bbctl: cancelled\n"},
		{ctx, ctx.Err(), false, left, exitCancelled, "bbctl: cancelled\nbbctl: " + left + "\n"},
		{t.Context(), denied, false, left, exitPermission, "bbctl: remove: bb://b/x: permission\nbbctl: " + left + "\n"},
		{t.Context(), nil, false, left, exitDone, ""},
	} {
		var text strings.Builder
		a := &app{err: &text, left: c.left, json: c.json}
		if code := a.exit(c.ctx, c.err, false); code != c.code || text.String() != c.want {
			t.Errorf("exit code %d, %q, want %d, %q", code, text.String(), c.code, c.want)
		}
	}
}

func TestMistypedCommands(t *testing.T) {
	for _, line := range []string{"node drian n1", "buffer destory b", "txn abrt 1", "cluster innit d", "slurm sweeep", "jobs wach 1", "frobnicate"} {
		if code := run(t.Context(), strings.Fields(line)); code != exitUsage {
			t.Errorf("bbctl %s: exit code %d, want %d", line, code, exitUsage)
		}
	}
}

func TestOutputClosed(t *testing.T) {
	for _, err := range []error{nil, syscall.ENOSPC, syscall.EPIPE} {
		o := &output{Writer: failing{err}}
		if _, got := o.Write([]byte("x")); got != err || o.closed != (err == syscall.EPIPE) {
			t.Errorf("%v: %v, closed %t", err, got, o.closed)
		}
	}
}

type failing struct{ err error }

func (f failing) Write(p []byte) (int, error) { return len(p), f.err }
