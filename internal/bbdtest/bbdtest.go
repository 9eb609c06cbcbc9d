// Package bbdtest runs real daemons for tests: the bbd binary, built once, as a
// process of its own that can be killed and started again.
package bbdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Daemon is one bbd --dev and its folder, which outlives the process.
type Daemon struct {
	Dir    string // its state
	Socket string
	Args   []string // further arguments, used at each Start
	Env    []string // further environment

	tb  testing.TB
	cmd *exec.Cmd
	log *os.File
}

// New returns a daemon that has not been started, with a folder of its own. It is
// stopped, and its memory freed, when the test ends.
func New(tb testing.TB, args ...string) *Daemon {
	tb.Helper()
	// A unix socket's path has at most 107 bytes (unix(7)): the test's own folder may be deeper.
	dir, err := os.MkdirTemp("", "bbd")
	if err != nil {
		tb.Fatal(err)
	}
	d := &Daemon{Dir: dir, Socket: filepath.Join(dir, "bbd.sock"), Args: args, tb: tb}
	tb.Cleanup(d.cleanup)
	return d
}

// Start starts a daemon and waits until it serves.
func Start(tb testing.TB, args ...string) *Daemon {
	tb.Helper()
	d := New(tb, args...)
	d.Start()
	return d
}

// Start starts the process and waits until it serves.
func (d *Daemon) Start() {
	d.tb.Helper()
	if err := d.TryStart(); err != nil {
		d.tb.Fatalf("%v\n%s", err, d.Log())
	}
}

// TryStart is Start that returns what went wrong.
func (d *Daemon) TryStart() error {
	var err error
	if d.log == nil {
		if d.log, err = os.Create(filepath.Join(d.Dir, "bbd.log")); err != nil {
			return err
		}
	}
	d.cmd = exec.Command(Binary(d.tb), append([]string{"--dev", "--dir", d.Dir}, d.Args...)...)
	d.cmd.Env = append(os.Environ(), d.Env...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	// The daemon dies with the test process, however that ends.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	cmd := d.cmd
	go func() { exited <- cmd.Wait() }()
	deadline := time.After(30 * time.Second)
	for {
		conn, err := net.Dial("unix", d.Socket)
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case err := <-exited:
			d.cmd = nil
			return fmt.Errorf("the daemon ended at its start: %v", err)
		case <-deadline:
			d.Kill()
			return fmt.Errorf("the daemon does not serve after 30 s: %v", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Pid returns the process id of the running daemon.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Kill ends the daemon with SIGKILL and waits until it is gone.
func (d *Daemon) Kill() { d.signal(syscall.SIGKILL) }

// Stop ends the daemon with SIGTERM and waits until it is gone.
func (d *Daemon) Stop() { d.signal(syscall.SIGTERM) }

func (d *Daemon) signal(sig syscall.Signal) {
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Signal(sig)
	for range 3000 { // 30 s: a graceful stop flushes nothing by default
		if d.cmd.Process.Signal(syscall.Signal(0)) != nil {
			d.cmd = nil
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.tb.Errorf("the daemon did not end within 30 s of signal %v", sig)
	d.cmd.Process.Kill()
	d.cmd = nil
}

// Log returns what the daemon has printed.
func (d *Daemon) Log() string {
	text, _ := os.ReadFile(filepath.Join(d.Dir, "bbd.log"))
	return string(text)
}

func (d *Daemon) cleanup() {
	d.Kill()
	if d.tb.Failed() {
		log := d.Log()
		d.tb.Logf("the daemon's log ends:\n%s", log[max(0, len(log)-8<<10):])
	}
	if d.log != nil {
		d.log.Close()
	}
	purge := exec.Command(Binary(d.tb), "purge", "--discard", "--dir", d.Dir)
	if out, err := purge.CombinedOutput(); err != nil {
		d.tb.Errorf("bbd purge: %v\n%s", err, out)
	}
	os.RemoveAll(d.Dir)
}

var build struct {
	sync.Once
	path string
	err  error
}

// Binary returns the path of the bbd binary, which it builds once per test process.
func Binary(tb testing.TB) string {
	tb.Helper()
	build.Do(func() { build.path, build.err = compile() })
	if build.err != nil {
		tb.Fatal(build.err)
	}
	return build.path
}

func compile() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(string(bytes.TrimSpace(out)))
	path := filepath.Join(root, ".cache", "test", "bbd")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Packages are tested in parallel: one of them builds, the others find it built.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/bbd")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building bbd: %w\n%s", err, text)
	}
	return path, nil
}
