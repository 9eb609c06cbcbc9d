package testbed

import (
	"errors"
	"os"
	"testing"

	"forebay/internal/bb"
)

func TestSizes(t *testing.T) {
	full := FullSizes()
	if full.File != 1<<30 || full.Burst != 8<<30 || full.Memory() != 7<<30 {
		t.Errorf("full: %+v", full)
	}
	odd, err := QuickSizes().WithFile("100MB")
	if err != nil || odd.File != 95<<20 || odd.Memory() != 2<<30 {
		t.Errorf("100MB: %+v, %v", odd, err)
	}
	for _, bad := range []string{"1", "-1GiB", "100GiB", "many", "1GiBs"} {
		if _, err := full.WithFile(bad); !errors.Is(err, bb.Invalid) {
			t.Errorf("size %q: %v", bad, err)
		}
	}
}

func TestSchedstat(t *testing.T) {
	if got, err := parseSchedstat("61352 1000 7\n"); err != nil || got != 61352 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 2", "a b c", "-1 2 3"} {
		if _, err := parseSchedstat(bad); err == nil {
			t.Errorf("%q is taken for schedstat", bad)
		}
	}
	if got, err := ProcessTime(os.Getpid()); err != nil || got <= 0 {
		t.Errorf("of this process: %v, %v", got, err)
	}
}
