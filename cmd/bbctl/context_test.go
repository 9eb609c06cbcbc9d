package main

import (
	"testing"

	"forebay/cmd/bbctl/app"
	"forebay/internal/cli"
)

// Commands that Slurm runs on a node use the daemon there, in any context of root's.
func TestContextOfSlurm(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("FOREBAY_CONTEXT", "")
	bbctl(t, cli.ExitDone, "context", "add", "away", "--socket", "tcp://127.0.0.1:1")
	for _, test := range []struct {
		slurm   bool
		context string
		want    string
	}{{false, "", "tcp://127.0.0.1:1"}, {true, "", ""}, {true, "away", "tcp://127.0.0.1:1"}} {
		a := &app.App{Slurm: test.slurm, Connection: app.Connection{Context: test.context}}
		if err := a.UseContext(); err != nil || a.Address != test.want {
			t.Errorf("%+v: %q (%v)", test, a.Address, err)
		}
	}
	a := &app.App{}
	cmd := newCommand(a)
	cmd.SetArgs([]string{"slurm", "sweep"})
	t.Setenv("FOREBAY_SOCKET", "/nowhere")
	a.AtOnce = true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !a.Slurm {
		t.Errorf("slurm sweep: %v, one of Slurm's: %v", err, a.Slurm)
	}
}
