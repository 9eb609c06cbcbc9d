package asuser

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStatus follows a worker that has nothing to do, has a request that it does not answer, has
// one that was abandoned, answers again, and ends.
func TestStatus(t *testing.T) {
	needRoot(t)
	w := workers(t, Options{})
	dir := home(t, alice)
	s := open(t, w, alice, dir)
	is := func(want State) func() bool {
		return func() bool {
			all := w.Status()
			if len(all) != 1 || all[0].UID != alice || all[0].Root != dir || all[0].State != want {
				return false
			}
			return all[0].Since.IsZero() != (want == Hanging)
		}
	}
	pid := s.pid(t)
	eventually(t, "it is idle", is(Idle))
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	eventually(t, "the process is stopped", func() bool { return strings.HasPrefix(procStatus(t, pid, "State"), "T") })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Check(ctx) }()
	eventually(t, "it has a request", is(Serving))
	cancel()
	if err := <-done; err == nil {
		t.Error("a process that is stopped has answered")
	}
	eventually(t, "it hangs", is(Hanging))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is idle again", is(Idle))
	if counts := w.Counts(); counts != (Counts{}) {
		t.Errorf("counted %+v", counts)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return len(w.Status()) == 0 })
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "it was started again", func() bool { return is(Idle)() && w.Counts() == Counts{Restarts: 1} })
}

// TestEndsAtItsStart: a worker that ends as soon as it is started is none that requests go to.
func TestEndsAtItsStart(t *testing.T) {
	uid := users()[0]
	w := workers(t, Options{Command: []string{"/bin/true"}})
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := Open(ctx, w, User{uid, uid}, home(t, int(uid)), options()); err == nil || ctx.Err() != nil {
			t.Errorf("opened by a worker that has ended: %v", err)
		}
		cancel()
	}
	eventually(t, "no processes", func() bool { return len(w.Status()) == 0 })
}
