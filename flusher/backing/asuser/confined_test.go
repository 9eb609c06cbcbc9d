package asuser

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/confine"
)

// Each thread of a worker is filtered, and one that is started later too.
func TestWorkerIsFiltered(t *testing.T) {
	uid := users()[len(users())-1]
	s := open(t, workers(t, Options{}), uid, home(t, int(uid)))
	if _, err := s.Put(t.Context(), "f", backing.NewBytes(make([]byte, large)), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.pid(t)))
	if err != nil || len(tasks) < 2 {
		t.Fatal(tasks, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(b), "\nSeccomp:\t2\n") {
			t.Errorf("%s is not filtered:\n%s", task, b)
		}
	}
}

const oldKernel = "FOREBAY_TEST_OLD_KERNEL"

// On a kernel that has neither seccomp nor Landlock, workers work, and the log lists once the missing
// confinements. Here a filter makes it such a kernel.
func TestKernelWithoutConfinement(t *testing.T) {
	if os.Getenv(oldKernel) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), oldKernel+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	withoutCalls(t, unix.SYS_SECCOMP, unix.SYS_LANDLOCK_CREATE_RULESET)
	var log bytes.Buffer
	w, err := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range users() {
		s, err := Open(t.Context(), w, User{uid, uid}, home(t, int(uid)), options())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for _, what := range []string{"no seccomp: function not implemented", "no Landlock: function not implemented"} {
		if n := strings.Count(log.String(), what); n != 1 {
			t.Errorf("%q is in the log %d times:\n%s", what, n, &log)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the log:\n%s", n, &log)
	}
}

// withoutCalls has this process, and those that it starts, do without system calls, as on an older kernel.
func withoutCalls(t *testing.T, calls ...uint32) {
	t.Helper()
	p := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for _, call := range calls {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, K: call, Jf: 1}, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	}
	p = append(p, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := confine.Install(p); err != nil {
		t.Fatal(err)
	}
}
