package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"forebay/internal/bb"
	"forebay/internal/cli"
)

// readyEnv, in a mount's environment, means that its parent waits on descriptor readyFD for a line:
// empty when it serves, else the error.
const (
	readyEnv = "FOREBAY_MOUNT_READY"
	readyFD  = 3
)

// background starts this program again, in the foreground of a session of its own, and
// returns when the mount serves.
func background(ctx context.Context, logFile string) error {
	self, err := os.Executable()
	if err != nil {
		return bb.Wrap("mount", "", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return bb.Wrap("mount", "", err)
	}
	defer r.Close()
	cmd := exec.Command(self, slices.Concat([]string{"--foreground"}, os.Args[1:])...)
	cmd.Env = append(os.Environ(), readyEnv+"=1")
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if logFile != "" {
		log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			w.Close()
			return bb.Wrap("mount", logFile, err)
		}
		defer log.Close()
		cmd.Stderr = log
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return bb.Wrap("mount", self, err)
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })()
	line, err := bufio.NewReader(r).ReadString('\n')
	switch reason := strings.TrimSuffix(line, "\n"); {
	case err != nil:
		return bb.Wrap("mount", self, fmt.Errorf("it ended before it served: %w", cmp.Or(cmd.Wait(), err)))
	case reason != "":
		cmd.Wait()
		return &cli.Failed{Code: cmp.Or(cmd.ProcessState.ExitCode(), cli.ExitError), Line: reason}
	}
	return cmd.Process.Release()
}

// parent returns a function that reports the result of the mount, once, to the process that started
// this one.
func parent() (tell func(reason string), err error) {
	if os.Getenv(readyEnv) == "" {
		return func(string) {}, nil
	}
	syscall.CloseOnExec(readyFD)
	os.Unsetenv(readyEnv)
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	w := os.NewFile(readyFD, "ready")
	return func(reason string) {
		if w != nil {
			fmt.Fprintln(w, strings.ReplaceAll(reason, "\n", "; "))
			w.Close()
			w = nil
		}
	}, nil
}
