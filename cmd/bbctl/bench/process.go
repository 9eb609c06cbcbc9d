package bench

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

// process is a child that dies with us, however we end.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it is gone
	output tail
}

// startProcess starts a child with further environment. What it prints on standard
// error, and on standard output where that is not taken, is kept for messages.
func startProcess(cmd *exec.Cmd, env []string) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
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

// run keeps the thread that starts the child until the child is gone: the kernel
// sends the death signal when that thread ends (prctl(2)).
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // how it ended is in what it printed
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end signals the child and waits until it is gone, by force after a time.
func (p *process) end(signal syscall.Signal, wait time.Duration) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(wait):
		_ = p.cmd.Process.Kill() // it may end at this very moment
		<-p.ended
		return fmt.Errorf("%s did not end within %v of %s", p.cmd.Path, wait, unix.SignalName(signal))
	}
}

func (p *process) said() string { return strings.TrimSpace(p.output.String()) }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
