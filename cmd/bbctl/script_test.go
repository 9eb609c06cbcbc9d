package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bbdtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bbctl": main})
}

// TestScripts runs the command line scenarios in testdata against a real daemon.
// Each has $STORE, an empty directory to put behind a buffer.
func TestScripts(t *testing.T) { runScripts(t, "testdata") }

// TestScriptsAlone runs scenarios with a daemon that no other scenario uses, since their stores
// fail.
func TestScriptsAlone(t *testing.T) { runScripts(t, "testdata/alone") }

// TestScriptsFull runs a scenario that fills the daemon's memory.
func TestScriptsFull(t *testing.T) { runScripts(t, "testdata/full") }

func runScripts(t *testing.T, folder string) {
	t.Helper()
	store := t.TempDir()
	d := bbdtest.Start(t, "--memory", "256MiB")
	testscript.Run(t, testscript.Params{
		Dir:  folder,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": exitsWith, "xattr": setsXattr, "fifo": makesFIFO},
		Setup: func(e *testscript.Env) error {
			dir := filepath.Join(store, filepath.Base(e.WorkDir))
			e.Setenv("STORE", dir)
			e.Setenv("FOREBAY_SOCKET", d.Socket)
			return os.Mkdir(dir, 0o755)
		},
	})
}

// exitsWith is the command "code N command…". It runs a command that has to exit with N.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: code N command…")
	}
	want := args[0]
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = strconv.Itoa(exit.ExitCode())
	}
	if got != want {
		ts.Fatalf("exit code %s, want %s (%v)", got, want, err)
	}
}

// setsXattr is the command "xattr BUFFER PATH NAME VALUE". The value is as in a Go string.
func setsXattr(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: xattr BUFFER PATH NAME VALUE")
	}
	value, err := strconv.Unquote(`"` + args[3] + `"`)
	ts.Check(err)
	inBuffer(ts, args[0], func(b *client.Buffer) error {
		return b.SetXattr(context.Background(), args[1], args[2], []byte(value))
	})
}

// makesFIFO is the command "fifo BUFFER PATH".
func makesFIFO(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: fifo BUFFER PATH")
	}
	inBuffer(ts, args[0], func(b *client.Buffer) error {
		return b.Mknod(context.Background(), args[1], client.TypeFIFO, 0o600)
	})
}

func inBuffer(ts *testscript.TestScript, name string, do func(*client.Buffer) error) {
	c, err := client.Dial(context.Background(), client.Options{Address: "unix://" + ts.Getenv("FOREBAY_SOCKET")})
	ts.Check(err)
	defer c.Close()
	ts.Check(do(c.Buffer(name)))
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"64GiB": 64 << 30, "1.5TB": 1.5e12, "100M": 100e6, "4096": 4096, "1 KiB": 1024} {
		if got, err := app.ParseSize("size", text); err != nil || got != want {
			t.Errorf("%q: %d (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "lots", "1XB", "9999999PiB", "NaN"} {
		if got, err := app.ParseSize("size", text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("64GiB")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := app.ParseSize("size", text); err == nil && n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
	})
}

func TestExitCodes(t *testing.T) {
	for kind, want := range map[client.Kind]int{
		client.ErrInvalid: 2, client.ErrUnsupported: 2, client.ErrNotFound: 3, client.ErrPermission: 4, client.ErrUnavailable: 5,
		client.ErrLost: 6, client.ErrChecksum: 6, client.ErrCancelled: 8, client.ErrExists: 9, client.ErrBusy: 9, client.ErrNoSpace: 10,
		client.ErrInternal: 1,
	} {
		if got := app.ExitCode(&client.Error{Kind: kind}); got != want {
			t.Errorf("%v: %d, want %d", kind, got, want)
		}
	}
	if got := app.ExitCode(app.Partly(client.ErrBusy)); got != 7 {
		t.Errorf("a part done: %d", got)
	}
}
