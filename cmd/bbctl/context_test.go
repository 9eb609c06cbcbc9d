package main

import "testing"

// Commands that Slurm runs on a node ask the daemon there, whatever context root uses.
func TestContextOfSlurm(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("FOREBAY_CONTEXT", "")
	bbctl(t, exitDone, "context", "add", "away", "--socket", "tcp://127.0.0.1:1")
	for _, test := range []struct {
		slurm   bool
		context string
		want    string
	}{{false, "", "tcp://127.0.0.1:1"}, {true, "", ""}, {true, "away", "tcp://127.0.0.1:1"}} {
		a := &app{slurm: test.slurm, context: test.context}
		if err := a.useContext(); err != nil || a.address != test.want {
			t.Errorf("%+v: %q (%v)", test, a.address, err)
		}
	}
	a := &app{}
	cmd := newCommand(a)
	cmd.SetArgs([]string{"slurm", "sweep"})
	t.Setenv("FOREBAY_SOCKET", "/nowhere")
	a.atOnce = true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !a.slurm {
		t.Errorf("slurm sweep: %v, one of Slurm's: %v", err, a.slurm)
	}
}
