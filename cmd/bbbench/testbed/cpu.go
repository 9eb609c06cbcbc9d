package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/measure"
)

// OwnTime returns the processor time of this process so far.
func OwnTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, bb.Wrap("bench", "getrusage", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// ProcessTime returns the processor time of another process's living threads so far,
// in nanoseconds as the scheduler counts them (the first field of /proc/PID/task/TID/schedstat),
// where /proc/PID/stat has hundredths of a second.
func ProcessTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, measure.Cannot("the kernel does not report the processor time of process %d's threads (schedstat)", pid)
	}
	var total time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // the thread has ended meanwhile
		}
		if err != nil {
			return 0, bb.Wrap("bench", file, err)
		}
		ns, err := parseSchedstat(string(text))
		if err != nil {
			return 0, bb.Wrap("bench", file, err)
		}
		total += ns
	}
	return total, nil
}

func parseSchedstat(text string) (time.Duration, error) {
	var running, waiting, slices uint64
	if _, err := fmt.Sscanf(text, "%d %d %d", &running, &waiting, &slices); err != nil {
		return 0, fmt.Errorf("%q is not schedstat: %w", text, err)
	}
	return time.Duration(running), nil
}
