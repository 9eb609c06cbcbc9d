package app

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"forebay/client"
	"forebay/internal/cli"
)

// The connection to a daemon that hangs up, as bbd does beyond its limit of sessions, is a broken
// pipe as a closed standard output is. Only the latter is a success.
func TestBrokenPipes(t *testing.T) {
	broken := &client.Error{Kind: client.ErrUnavailable, Op: "put", Err: &net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}}
	for _, c := range []struct {
		output error
		code   int
	}{{nil, cli.ExitUnavailable}, {syscall.ENOSPC, cli.ExitUnavailable}, {syscall.EPIPE, cli.ExitDone}} {
		a := New(strings.NewReader(""), failing{c.output}, io.Discard, "")
		if _, err := a.Out.Write([]byte("x")); err != c.output {
			t.Errorf("writing: %v, want %v", err, c.output)
		}
		if code := a.Exit(t.Context(), broken); code != c.code {
			t.Errorf("after %v of standard output: exit code %d, want %d", c.output, code, c.code)
		}
	}
}

type failing struct{ err error }

func (f failing) Write(p []byte) (int, error) { return len(p), f.err }
