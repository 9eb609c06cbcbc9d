package leaselock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const holderEnv = "LEASELOCK_TEST_REGION"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderEnv); path != "" {
		hold(path)
	}
	os.Exit(m.Run())
}

// hold is the process of TestEndOfProcess. It has a lock until it is killed.
func hold(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = Hold(f, 0, 4096)
	}
	if err != nil {
		panic(err)
	}
	os.Stdout.Write([]byte{'x'})
	os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

func region(t *testing.T) (path string, daemon *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, reopen(t, path)
}

func reopen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func want(t *testing.T, f *os.File, off, n int64, held bool) {
	t.Helper()
	got, err := Held(f, off, n)
	if err != nil || got != held {
		t.Errorf("bytes %d+%d are locked: %v (%v), want %v", off, n, got, err, held)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRanges(t *testing.T) {
	path, daemon := region(t)
	a, b := reopen(t, path), reopen(t, path)
	want(t, daemon, 0, 1<<20, false)
	ok(t, Hold(a, 4096, 4096))
	ok(t, Hold(a, 8192, 4096)) // adjoins the first one
	ok(t, Hold(b, 8192, 8192)) // lies over it
	want(t, daemon, 0, 4096, false)
	want(t, daemon, 0, 4097, true)
	want(t, daemon, 16384, 4096, false)
	ok(t, Release(a, 8192, 4096))
	want(t, daemon, 4096, 4096, true)
	want(t, daemon, 8192, 4096, true)
	ok(t, b.Close())
	want(t, daemon, 8192, 4096, false)
	want(t, daemon, 4096, 4096, true)
	want(t, a, 4096, 4096, false) // its own
	ok(t, Release(a, 4096, 4096))
	want(t, daemon, 0, 1<<20, false)
}

// TestEndOfProcess: locks of a process are free when it was killed.
func TestEndOfProcess(t *testing.T) {
	path, daemon := region(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), holderEnv+"="+path)
	in, err := child.StdinPipe()
	ok(t, err)
	defer in.Close()
	out, err := child.StdoutPipe()
	ok(t, err)
	ok(t, child.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	want(t, daemon, 0, 4096, true)
	ok(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	want(t, daemon, 0, 4096, false)
}
