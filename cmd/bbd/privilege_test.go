package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/internal/bbdtest"
)

// A daemon of root's keeps the capabilities that it uses, in all of its threads, and those that
// the unit names.
func TestDaemonSheds(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	d := bbdtest.Start(t)
	unit, err := os.ReadFile("../../docs/forebay-bbd.service")
	if err != nil {
		t.Fatal(err)
	}
	named, n := uint64(0), 0
	for line := range strings.Lines(string(unit)) {
		if names, ok := strings.CutPrefix(line, "CapabilityBoundingSet="); ok {
			for name := range strings.FieldsSeq(names) {
				number, ok := numbers[name]
				if !ok {
					t.Errorf("the unit names %s", name)
				}
				named, n = named|1<<number, n+1
			}
		}
	}
	if n != len(numbers) {
		t.Errorf("the unit names %d capabilities, want %d", n, len(numbers))
	}
	want := map[string]string{"NoNewPrivs": "1", "CapInh": "0000000000000000", "CapAmb": "0000000000000000"}
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		want[set] = fmt.Sprintf("%016x", named)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.Pid()))
	if err != nil || len(tasks) < 2 {
		t.Fatal(tasks, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(b)) {
			field, value, _ := strings.Cut(line, ":")
			if w, ok := want[field]; ok && strings.TrimSpace(value) != w {
				t.Errorf("%s: %s is %s, want %s", task, field, strings.TrimSpace(value), w)
			}
		}
	}
}

// numbers are those of capabilities that the unit names.
var numbers = map[string]uint{
	"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7,
	"CAP_NET_BIND_SERVICE": 10, "CAP_IPC_LOCK": 14,
}
