// Package process starts the processes of a measurement, daemons and workers, which end with it, and
// sends orders to the workers. It must never depend on the purpose of an order.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a process may take to serve, and to end.
const (
	StartTime = 60 * time.Second
	StopTime  = 60 * time.Second
)

// Process is a child that ends with us, in any case.
type Process struct {
	cmd    *exec.Cmd
	Ended  chan struct{} // closed when it is gone
	output Tail
}

// StartProcess starts a child with further environment. Its output on standard
// error, and on standard output where that is not used otherwise, is kept for messages.
func StartProcess(cmd *exec.Cmd, env []string) (*Process, error) {
	p := &Process{cmd: cmd, Ended: make(chan struct{})}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = &p.output
	if cmd.Stdout == nil {
		cmd.Stdout = &p.output
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run keeps the thread that starts the child until the child is gone. The kernel sends the death
// signal when that thread ends (prctl(2)).
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.Ended)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // its end is in its output
	}
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// End signals the child and waits until it is gone, by force after a time.
func (p *Process) End(signal syscall.Signal, wait time.Duration) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.Ended:
		return nil
	case <-time.After(wait):
		_ = p.cmd.Process.Kill() // it may end at this very moment
		<-p.Ended
		return fmt.Errorf("%s did not end within %v of %s", p.cmd.Path, wait, unix.SignalName(signal))
	}
}

// Said returns the end of the process's output.
func (p *Process) Said() string { return strings.TrimSpace(p.output.String()) }

// Tail keeps the end of its input.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 4 << 10

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(b), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
