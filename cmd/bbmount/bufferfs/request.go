package bufferfs

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
)

// request returns the context of one request of the kernel. It ends when the process that
// waits for the request is being killed, not when it has another signal to handle: a handler
// runs when the call has returned, as on any disk, and no program sees EINTR from open or
// stat. Call the returned function when the request is answered.
func (f *FS) request(ctx context.Context) (context.Context, func()) {
	inner, cancel := context.WithCancel(f.ctx)
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return inner, cancel
	}
	pid := caller.Pid
	stop := context.AfterFunc(ctx, func() { // the kernel interrupts a request once, whatever signals follow
		awaitKill(inner, pid)
		cancel()
	})
	return inner, func() {
		stop()
		cancel()
	}
}

const killPoll = 50 * time.Millisecond

// awaitKill returns when a thread is being killed, or ctx ends.
func awaitKill(ctx context.Context, tid uint32) {
	if tid == 0 { // it runs in a namespace of processes that is not below this one
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(killPoll)
	defer tick.Stop()
	for !killed(tid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func killed(tid uint32) bool {
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return beingKilled(string(status))
}

// beingKilled reports whether the text of /proc/TID/status is of a thread that SIGKILL is
// pending for, or that has ended. The kernel makes SIGKILL of every signal that ends a
// process without a core dump.
func beingKilled(status string) bool {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(value, 16, 64)
			if err == nil && pending&(1<<(syscall.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// settle carries out a change of names until its outcome is known. When the connection to
// the daemon breaks, do is called again with repeated set: the change may have been carried
// out by then, which do looks at.
func settle(ctx context.Context, do func(repeated bool) error) error {
	for repeated := false; ; repeated = true {
		err := do(repeated)
		if !errors.Is(err, client.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}
