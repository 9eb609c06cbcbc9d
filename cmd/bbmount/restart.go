package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/cmd/bbmount/bufferfs"
	"forebay/cmd/bbmount/device"
	"forebay/cmd/bbmount/passthrough"
	"forebay/cmd/bbmount/tables"
	"forebay/internal/bb"
)

// state is what the process needs that goes on for this one. The new program may be of another release.
type state struct {
	Version int // stateVersion
	Dir     string
	Device  int    // descriptor of /dev/fuse
	Init    []byte // the kernel's first request
	Calls   []device.Call
	Kernel  tables.State
	Files   *bufferfs.State

	rehearsal bool // the state is restored, and that is all
}

// stateVersion changes with the meaning of state. A program refuses any other.
const stateVersion = 1

// stateEnv, in a process's environment, has the descriptor of the state that it goes on with, and whether it rehearses.
const (
	stateEnv  = "FOREBAY_MOUNT_STATE"
	rehearses = "rehearsal"
)

// pauseLimit bounds how long programs wait for requests before a restart is given up.
const pauseLimit = 20 * time.Second

// earlier returns the state of the process that this one goes on for, nil if there is none.
func earlier() (*state, error) {
	text := os.Getenv(stateEnv)
	if text == "" {
		return nil, nil
	}
	os.Unsetenv(stateEnv)
	var fd int
	var mode string
	if n, err := fmt.Sscan(text, &fd, &mode); n == 0 {
		return nil, bb.Wrap("restart", text, err)
	}
	file := os.NewFile(uintptr(fd), "state")
	defer file.Close()
	s := &state{rehearsal: mode == rehearses}
	if err := gob.NewDecoder(io.NewSectionReader(file, 0, 1<<62)).Decode(s); err != nil {
		return nil, bb.Wrap("restart", "", err)
	}
	if s.Version != stateVersion {
		return nil, bb.E(bb.Unsupported, "restart", s.Dir, fmt.Sprintf("the state is of version %d, this program has %d", s.Version, stateVersion)).
			WithRemedy("unmount, and mount again")
	}
	return s, nil
}

// restore gives a file system the state.
func (s *state) restore(ctx context.Context, f *bufferfs.FS, t *tables.Tables) error {
	file := func(fd int) *os.File {
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), "unlinked")
	}
	if s.rehearsal {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return bb.Wrap("restart", os.DevNull, err)
		}
		file = func(int) *os.File { return null }
	}
	if err := f.Restore(ctx, s.Files, file); err != nil {
		return err
	}
	return t.Restore(s.Kernel)
}

// server is a buffer that is mounted and served.
type server struct {
	o     options
	files *bufferfs.FS
	ends  *passthrough.Ends
	dev   *device.Device
	calls chan device.Call
	table *tables.Tables
}

// start mounts, or goes on with what another process has mounted. It returns nil of a rehearsal.
func (s *server) start(ctx context.Context, from *state) (err error) {
	settings := s.o.fuse()
	switch {
	case from == nil:
		if s.dev, err = device.Mount(s.o.dir, &settings.MountOptions, s.o.log); err != nil {
			return mountError(s.o.dir, err)
		}
	case !from.rehearsal:
		if s.dev, err = device.Inherit(from.Device, from.Init, settings.MaxWrite, s.o.log); err != nil {
			return err
		}
	}
	if from != nil {
		settings.FirstAutomaticIno = from.Files.FirstNumber()
	}
	if s.dev != nil {
		settings.ServerCallbacks = s.dev
	}
	s.table = tables.New(s.ends.Wrap(fusefs.NewNodeFS(s.files.Root(), settings)))
	if from != nil {
		if err := from.restore(ctx, s.files, s.table); err != nil || from.rehearsal {
			return err
		}
	}
	if err := s.begin(&settings.MountOptions); err != nil {
		return err
	}
	if from != nil {
		for _, c := range from.Calls {
			s.dev.Answer(c, 0)
		}
		s.o.log.Info("restarted", "open files and directories", len(from.Kernel.Handles))
	}
	return nil
}

func (s *server) begin(o *fuse.MountOptions) error {
	if err := s.dev.Begin(s.table, o); err != nil {
		unmount(s.o.dir, s.o.log)
		return mountError(s.o.dir, err)
	}
	s.calls = make(chan device.Call, 64)
	s.dev.OnRestart(func(c device.Call) {
		errno := syscall.EBUSY
		if int(c.UID) != os.Geteuid() && c.UID != 0 {
			errno = syscall.EPERM
		} else {
			select {
			case s.calls <- c:
				return
			default:
			}
		}
		s.dev.Answer(c, errno)
	})
	s.dev.Serve()
	return nil
}

// restarts carries out restarts that are called for, by bbctl or SIGHUP, until ctx ends.
func (s *server) restarts(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		var calls []device.Call
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		case c := <-s.calls:
			calls = append(calls, c)
		}
		err := s.restart(ctx, calls) // it returns only if it has failed
		s.o.log.Error("the restart has failed, so this process goes on", "err", err)
		errno := syscall.EIO
		if errors.Is(err, bb.Busy) {
			errno = syscall.EBUSY
		}
		for _, c := range calls {
			s.dev.Answer(c, errno)
		}
	}
}

// restart has the program at this one's path go on in this process. If it fails, this one goes on.
func (s *server) restart(ctx context.Context, calls []device.Call) error {
	self, err := os.Executable()
	if err != nil {
		return bb.Wrap("restart", "", err)
	}
	if err := s.files.Prepare(ctx); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, pauseLimit)
	defer cancel()
	if err := s.dev.Pause(limit); err != nil {
		return err
	}
	defer s.dev.Resume()
	next := &state{Version: stateVersion, Dir: s.o.dir, Device: s.dev.Fd(), Init: s.dev.Init(), Calls: calls, Kernel: s.table.State()}
	s.table.Ask()
	if next.Files, err = s.files.Save(limit); err != nil {
		return err
	}
	file, err := next.file()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := rehearse(limit, self, file); err != nil {
		return err
	}
	if ctx.Err() != nil { // it is being unmounted
		return bb.Cancelled
	}
	return next.exec(self, file)
}

// file returns a file in memory that has the state.
func (s *state) file() (*os.File, error) {
	fd, err := unix.MemfdCreate("bbmount-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, bb.Wrap("restart", "", err)
	}
	file := os.NewFile(uintptr(fd), "state")
	if err := gob.NewEncoder(file).Encode(s); err != nil {
		file.Close()
		return nil, bb.Wrap("restart", "", err)
	}
	return file, nil
}

// rehearse has a program restore the state in a process of its own, which ends then. What fails there fails no program.
func rehearse(ctx context.Context, self string, file *os.File) error {
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stateEnv+"=3 "+rehearses)
	cmd.ExtraFiles = []*os.File{file}
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Run(); err != nil {
		return bb.Wrap("restart", self, fmt.Errorf("%w: %s", err, strings.TrimSpace(text.String())))
	}
	return nil
}

// exec replaces the program of this process. Signals wait until the new one handles them.
func (s *state) exec(self string, file *os.File) error {
	inherited := []int{s.Device, int(file.Fd())}
	for i := range s.Files.Nodes {
		if fd := s.Files.Nodes[i].Scratch; fd != 0 {
			inherited = append(inherited, fd)
		}
	}
	for _, fd := range inherited {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return bb.Wrap("restart", self, err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wait, before unix.Sigset_t
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		wait.Val[0] |= 1 << (sig - 1)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &wait, &before); err != nil {
		return bb.Wrap("restart", self, err)
	}
	err := syscall.Exec(self, os.Args, append(os.Environ(), fmt.Sprintf("%s=%d", stateEnv, file.Fd())))
	unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) //nolint:errcheck // it cannot fail
	for _, fd := range inherited {
		unix.CloseOnExec(fd)
	}
	return bb.Wrap("restart", self, err)
}
