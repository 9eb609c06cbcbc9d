// Package bbdtest runs real daemons for tests: the bbd binary, built once, as a process of its own
// that can be killed and started again, on this machine or on a host of its own
// (internal/netnstest). It must never import a package of the daemon, since it tests the program.
package bbdtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/netnstest"
	"forebay/internal/porttest"
	"forebay/internal/wire"
)

// Daemon is one bbd and its folder, which outlives the process. Its methods are for
// one goroutine at a time. Fields are used at each Start.
type Daemon struct {
	Dir    string // its state
	Socket string
	Args   []string // further arguments
	Env    []string // further environment

	// Config is the text of the daemon's configuration, a text/template over the Daemon:
	// {{.Host.Addr}}, {{.Dir}}. Name, state_dir, memory.dir, memory.mount (off) and listen.socket
	// are given besides, and go before this text. Empty: bbd --dev.
	Config string
	Host   *netnstest.Host // where it runs; nil: where the test does
	Memory string          // folder of the memory tier, if there is a Config
	Clock  time.Duration   // how far its clock is ahead of the machine's, in whole seconds
	Speaks wire.Versions   // the versions of the control protocol; zero: this release's. Not together with Clock
	Commit string          // of this repository's history, whose release's binary is run; "": this one's
	Edits  []Edit          // this release's binary is run with these changes of its source
	Behind []string        // a command that becomes the one that follows it (nsenter(1)); it starts the daemon

	tb      testing.TB
	process *process // nil: none was started, or it was waited for
	log     *os.File
}

// process is a daemon's process. Its end is waited for as soon as it is there.
type process struct {
	*os.Process
	ended chan struct{} // closed when err is there
	err   error
}

// New returns a daemon that has not been started, with a folder of its own. It is
// stopped, and its memory freed, when the test ends.
func New(tb testing.TB, args ...string) *Daemon {
	tb.Helper()
	// A unix socket's path has at most 107 bytes (unix(7)). The test's own folder may be deeper.
	dir, err := os.MkdirTemp("", "bbd")
	if err != nil {
		tb.Fatal(err)
	}
	d := &Daemon{Dir: dir, Socket: filepath.Join(dir, "bbd.sock"), Args: args, tb: tb}
	d.Memory = filepath.Join("/dev/shm", "bbdtest-"+filepath.Base(dir))
	tb.Cleanup(d.cleanup)
	return d
}

// On is New of a daemon on a host of its own, with a configuration.
func On(tb testing.TB, host *netnstest.Host, config string, args ...string) *Daemon {
	tb.Helper()
	d := New(tb, args...)
	d.Host, d.Config = host, config
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

// StartAll starts daemons at the same time, of which none may serve before others do.
func StartAll(tb testing.TB, daemons ...*Daemon) {
	tb.Helper()
	errs := make([]error, len(daemons))
	for _, d := range daemons {
		d.Build() // on this goroutine, which may end the test
	}
	var all sync.WaitGroup
	for i, d := range daemons {
		all.Go(func() { errs[i] = d.TryStart() })
	}
	all.Wait()
	for i, d := range daemons {
		if errs[i] != nil {
			tb.Errorf("%s: %v\n%s", d.name(), errs[i], d.Log())
		}
	}
	if tb.Failed() {
		tb.FailNow()
	}
}

// testMemory is a daemon's memory unless a test sets another size. Several run at a time, each of
// which would take a quarter of the machine's.
const testMemory = "512MiB"

// startTime is how long a daemon may take until it serves.
const startTime = 60 * time.Second

// Build builds the daemon's binary if it is not built yet. A TryStart on another goroutine must
// not, since it could not end the test.
func (d *Daemon) Build() {
	d.tb.Helper()
	d.binary()
}

// TryStart is Start that returns the error.
func (d *Daemon) TryStart() error {
	cmd, err := d.command()
	if err != nil {
		return err
	}
	if d.log == nil {
		if d.log, err = os.Create(filepath.Join(d.Dir, "bbd.log")); err != nil {
			return err
		}
	}
	cmd.Stdout, cmd.Stderr = d.log, d.log
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{Process: cmd.Process, ended: make(chan struct{})}
	d.process = p
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	deadline := time.After(startTime)
	for {
		conn, err := net.Dial("unix", d.Socket)
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case <-p.ended:
			d.process = nil
			return fmt.Errorf("the daemon ended at its start: %v", p.err)
		case <-deadline:
			p.Signal(syscall.SIGQUIT) // its goroutines go to the log
			<-p.ended
			d.process = nil
			return fmt.Errorf("the daemon does not serve after %v: %v; its goroutines:\n%s", startTime, err, stacks(d.Log()))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (d *Daemon) command() (*exec.Cmd, error) {
	args := []string{"--dev", "--dir", d.Dir}
	if _, bench := d.tb.(*testing.B); !bench {
		args = append(args, "--memory", testMemory)
	}
	if d.Config != "" {
		file, err := d.configure()
		if err != nil {
			return nil, err
		}
		args = []string{"--config", file, "--state-dir", d.Dir, "--memory-dir", d.Memory, "--memory-mount", "off", "--listen-socket", d.Socket}
		if d.Host != nil {
			args = append(args, "--name", d.Host.Name)
		}
	}
	args = append(args, d.Args...)
	line := append(append(slices.Clone(d.Behind), d.binary()), args...)
	cmd := exec.Command(line[0], line[1:]...)
	// The daemon dies with the test process, however that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if d.Host != nil {
		cmd = d.Host.Command(d.binary(), args...)
	}
	cmd.Env = slices.Concat(os.Environ(), d.engine(), d.Env)
	return cmd, nil
}

// engine is the environment of a daemon of this release: FOREBAY_TEST_ENGINE selects how it keeps namespaces.
func (d *Daemon) engine() []string {
	engine := os.Getenv("FOREBAY_TEST_ENGINE")
	if engine == "" || d.Commit != "" {
		return nil
	}
	return []string{"FOREBAY_NAMESPACE_ENGINE=" + engine}
}

// configure writes the configuration, and returns its file.
func (d *Daemon) configure() (string, error) {
	if err := os.MkdirAll(d.Memory, 0o700); err != nil {
		return "", err
	}
	t, err := template.New("config").Option("missingkey=error").Parse(d.Config)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if err := t.Execute(&text, d); err != nil {
		return "", err
	}
	file := filepath.Join(d.Dir, "bbd.yaml")
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

func (d *Daemon) binary() string {
	d.tb.Helper()
	switch {
	case d.Clock != 0:
		return clockBinary(d.tb, d.Clock)
	case d.Speaks != (wire.Versions{}):
		return versionBinary(d.tb, d.Speaks)
	case d.Commit != "":
		return releaseBinary(d.tb, d.Commit)
	case len(d.Edits) > 0:
		return editedBinary(d.tb, d.Edits)
	}
	return Binary(d.tb)
}

func (d *Daemon) name() string {
	if d.Host != nil {
		return "the daemon of " + d.Host.Name
	}
	return "the daemon"
}

// Pid returns the process id of the running daemon.
func (d *Daemon) Pid() int { return d.process.Pid }

// Ended returns a channel that is closed when the running daemon ends.
func (d *Daemon) Ended() <-chan struct{} { return d.process.ended }

// Kill ends the daemon with SIGKILL and waits until it is gone.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

// Stop ends the daemon with SIGTERM and waits until it is gone.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

// Pause stops the daemon's process (SIGSTOP), and returns when all its threads have stopped. Its connections stay, without
// answers. Resume lets it continue.
func (d *Daemon) Pause() {
	d.tb.Helper()
	d.signal(syscall.SIGSTOP)
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, d.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	if err != nil {
		d.tb.Errorf("%s has not stopped: %v", d.name(), err)
	}
}

// Resume ends a Pause.
func (d *Daemon) Resume() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(sig syscall.Signal) {
	d.tb.Helper()
	if err := d.process.Signal(sig); err != nil {
		d.tb.Errorf("%s, signal %v: %v", d.name(), sig, err)
	}
}

// Crash is Kill of the whole machine. The memory tier is gone, the state folder and the disk tier
// stay. The next Start is a new instance. The daemon needs a Config.
func (d *Daemon) Crash() {
	d.tb.Helper()
	d.Kill()
	if d.Config == "" {
		d.tb.Fatal("where bbd --dev keeps its memory, it alone knows: give the daemon a Config")
	}
	if err := os.RemoveAll(d.Memory); err != nil {
		d.tb.Error(err)
	}
}

// Wipe is Kill of a machine that comes back empty. Memory, state folder and all else in it are
// gone.
func (d *Daemon) Wipe() {
	d.tb.Helper()
	d.Crash()
	entries, err := os.ReadDir(d.Dir)
	for _, e := range entries {
		if e.Name() != "bbd.log" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.Dir, e.Name())))
		}
	}
	if err != nil {
		d.tb.Error(err)
	}
}

// stopTime is how long a daemon may take to end. A graceful stop flushes nothing by default.
const stopTime = 30 * time.Second

func (d *Daemon) end(sig syscall.Signal) {
	d.tb.Helper()
	p := d.process
	if p == nil {
		return
	}
	d.process = nil
	defer d.awaitWorkers()
	p.Signal(sig)
	select {
	case <-p.ended:
		return
	case <-time.After(stopTime):
	}
	d.tb.Errorf("%s did not end within %v of signal %v", d.name(), stopTime, sig)
	p.Kill()
	<-p.ended
}

// workersTime is how long store workers may take to end after their daemon.
const workersTime = 10 * time.Second

// awaitWorkers waits for the daemon's store workers, which the kernel ends with it. A system call that
// one is in may still change the store. Each holds a lock. A worker that hangs is not waited for.
func (d *Daemon) awaitWorkers() {
	held, _ := filepath.Glob(filepath.Join(d.Dir, "store-workers.d", "*")) // asuser.DirName
	end := time.Now().Add(workersTime)
	for _, name := range held {
		f, err := os.Open(name)
		if err != nil {
			continue // the daemon has removed it
		}
		for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			if time.Now().After(end) {
				d.tb.Logf("store workers of %s hang", d.name())
				break
			}
			time.Sleep(time.Millisecond)
		}
		f.Close()
	}
}

// Log returns the daemon's output.
func (d *Daemon) Log() string {
	text, _ := os.ReadFile(filepath.Join(d.Dir, "bbd.log"))
	return string(text)
}

func (d *Daemon) cleanup() {
	if p := d.process; p != nil {
		select {
		case <-p.ended:
			d.tb.Errorf("%s ended by itself: %v", d.name(), p.err)
		default:
		}
	}
	d.Kill()
	if text := race(d.Log()); text != "" {
		d.tb.Errorf("%s:\n%s", d.name(), text)
	}
	if d.tb.Failed() {
		log := d.Log()
		d.tb.Logf("the log of %s ends:\n%s", d.name(), log[max(0, len(log)-8<<10):])
	}
	if d.log != nil {
		d.log.Close()
	}
	if d.Config == "" {
		purge := exec.Command(Binary(d.tb), "purge", "--discard", "--dir", d.Dir)
		if out, err := purge.CombinedOutput(); err != nil {
			d.tb.Errorf("bbd purge: %v\n%s", err, out)
		}
	}
	if err := errors.Join(os.RemoveAll(d.Memory), os.RemoveAll(d.Dir)); err != nil {
		d.tb.Error(err)
	}
}

// stacks is the last output of a program that got SIGQUIT.
func stacks(log string) string {
	if at := strings.LastIndex(log, "SIGQUIT: quit"); at >= 0 {
		return log[at:]
	}
	return "none"
}

// race returns the first data race that a daemon built with the race detector has printed, or "" if there is none.
func race(log string) string {
	const begins, ends = "WARNING: DATA RACE", "\n=================="
	at := strings.Index(log, begins)
	if at < 0 {
		return ""
	}
	text, _, _ := strings.Cut(log[at:], ends)
	return text
}

// FreePort is porttest.Free for a test.
func FreePort(tb testing.TB, host string) string {
	tb.Helper()
	address, err := porttest.Free(host)
	if err != nil {
		tb.Fatal(err)
	}
	return address
}
