package session

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"forebay/internal/bb"
)

func TestWellKnownAddresses(t *testing.T) {
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	if got := addresses(""); len(got) != 2 || got[0] != "unix:///run/user/1/forebay/bbd.sock" || got[1] != "unix:///run/forebay/bbd.sock" {
		t.Errorf("addresses are %v", got)
	}
	t.Setenv("FOREBAY_SOCKET", "/x.sock")
	if got := addresses(""); len(got) != 1 || got[0] != "unix:///x.sock" {
		t.Errorf("addresses are %v", got)
	}
}

// A socket that the user may not use does not hide that the user's own daemon is not there, or
// not yet. That is the error, and it may pass. After a refusal by a daemon there is no other
// attempt.
func TestNoDaemon(t *testing.T) {
	own, nodes := "unix:///own", "unix:///node's"
	absent := &net.OpError{Op: "dial", Err: syscall.ENOENT}
	denied := bb.Wrap("dial", nodes, &net.OpError{Op: "dial", Err: syscall.EACCES})
	for _, c := range []struct {
		err       error
		addresses int
		on        bool
	}{
		{absent, 1, true},
		{denied, 1, false},
		{denied, 2, true},
		{bb.E(bb.Permission, "hello", nodes, "another key"), 2, false},
		{bb.E(bb.Invalid, "dial", "x", "is no address"), 2, false},
	} {
		if on := elsewhere(c.err, c.addresses); on != c.on {
			t.Errorf("%v, of %d addresses: goes on: %v", c.err, c.addresses, on)
		}
	}
	err := noDaemon([]string{own, nodes}, []error{absent, denied})
	if bb.KindOf(err) != bb.Unavailable {
		t.Errorf("the error is %v", err)
	}
	for _, part := range []string{own, nodes, "no such file", "permission denied", "start your own", "administrator"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("several lines: %q", err)
	}
}

// A user's own daemon is tried before that of the node.
func TestOwnDaemonFirst(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := filepath.Join(base, fmt.Sprintf("forebay-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{"unix://" + dir + "/bbd.sock", "unix:///run/forebay/bbd.sock"}
	if got := addresses(""); !slices.Equal(got, want) {
		t.Errorf("addresses: %v, want %v", got, want)
	}
}
