package main

import (
	"context"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/cli"
)

// A command that is typed right after its daemon's start is carried out. One without any daemon
// fails soon.
func TestDaemonThatStarts(t *testing.T) {
	d := bbdtest.New(t)
	t.Setenv("FOREBAY_SOCKET", d.Socket)
	done := make(chan int)
	go func() { done <- runWithin(t.Context(), time.Minute, []string{"buffer", "list"}) }() // of a loaded machine
	d.Start()
	if code := <-done; code != cli.ExitDone {
		t.Errorf("a command before its daemon: exit code %d", code)
	}
	d.Kill()
	for _, args := range [][]string{{"version"}, {"slurm", "prolog"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if runWithin(ctx, time.Hour, args); ctx.Err() != nil {
			t.Errorf("bbctl %s waits for a daemon", args[0])
		}
		cancel()
	}
	if code := runWithin(t.Context(), time.Second, []string{"buffer", "list"}); code != cli.ExitUnavailable {
		t.Errorf("without a daemon: exit code %d, want %d", code, cli.ExitUnavailable)
	}
}
