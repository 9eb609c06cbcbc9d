// Package killed waits until a thread of another process is being killed, as /proc shows it. It must never
// know the reason.
package killed

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const poll = 50 * time.Millisecond

// Await returns when a thread is being killed, or ctx ends.
func Await(ctx context.Context, tid uint32) {
	if tid == 0 { // it runs in a namespace of processes that is not below this one
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !isKilled(tid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func isKilled(tid uint32) bool {
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
