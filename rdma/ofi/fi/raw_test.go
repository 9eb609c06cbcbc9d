//go:build ofi && cgo

package fi

import (
	"strings"
	"testing"
)

// TestRaw: the loop that benchmarks compare with runs, ends with its peer, and reports failures.
func TestRaw(t *testing.T) {
	near, err := OpenRaw("tcp", "127.0.0.1", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := OpenRaw("tcp", "127.0.0.1", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	address, err := far.Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- far.Serve() }()
	if err := near.Connect(address); err != nil {
		t.Fatal(err)
	}
	for _, what := range []RawOp{RawWrite, RawDeliver, RawRead} {
		if took, err := near.Run(what, 4096, 4, 100); err != nil || took <= 0 {
			t.Errorf("%s: %v, %v", what, took, err)
		}
	}
	if _, err := near.Run(RawWrite, 2<<20, 1, 1); err == nil {
		t.Error("an operation larger than the memory succeeds")
	}
	near.Close()
	if err := <-served; err != nil {
		t.Errorf("the serving end: %v", err)
	}
	if _, err := OpenRaw("no such provider", "", 1<<20); err == nil || !strings.Contains(err.Error(), "fi_getinfo") {
		t.Errorf("%v", err)
	}
}
