package main

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
)

// describeMachine describes the machine of the report. Regions and daemon are those of the
// rows that were measured.
func describeMachine(e *testbed.Env) report.Machine {
	m := report.Machine{
		Processor: processorName(), Processors: runtime.NumCPU(), Go: runtime.Version(),
		Daemon: "no daemon", Regions: e.Regions, Store: hostlimit.FileSystem(e.Store),
		When: time.Now().UTC().Format(time.RFC3339),
	}
	if e.Version != "" {
		m.Daemon = e.Version
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
