package main

import (
	"context"
	"testing"
	"time"

	"forebay/internal/bbdtest"
)

// A command that is typed right after its daemon's start is carried out; one without any
// daemon fails soon.
func TestDaemonThatStarts(t *testing.T) {
	before := startTime
	t.Cleanup(func() { startTime = before })
	startTime = time.Minute // of a loaded machine
	d := bbdtest.New(t)
	t.Setenv("FOREBAY_SOCKET", d.Socket)
	done := make(chan int)
	go func() { done <- run(t.Context(), []string{"buffer", "list"}) }()
	d.Start()
	if code := <-done; code != exitDone {
		t.Errorf("a command before its daemon: exit code %d", code)
	}
	d.Kill()
	startTime = time.Hour
	for _, args := range [][]string{{"version"}, {"slurm", "prolog"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if run(ctx, args); ctx.Err() != nil {
			t.Errorf("bbctl %s waits for a daemon", args[0])
		}
		cancel()
	}
	startTime = time.Second
	if code := run(t.Context(), []string{"buffer", "list"}); code != exitUnavailable {
		t.Errorf("without a daemon: exit code %d, want %d", code, exitUnavailable)
	}
}
