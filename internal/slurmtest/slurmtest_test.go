package slurmtest

import (
	"strings"
	"testing"
)

// Each node runs its own share of a job, and finds its own daemon.
func TestCluster(t *testing.T) {
	c := Start(t, Options{
		Conf:  "Prolog=@DIR@/etc/prolog.sh\nPrologFlags=Alloc\n",
		Files: map[string]string{"prolog.sh": "#!/bin/sh\n@BBCTL@ status --json >@DIR@/log/status.$SLURMD_NODENAME\n"},
	})
	job := c.Submit(Alice, "srun -l printenv SLURMD_NODENAME | sort\nid -un\n", "-N3")
	if got := c.Wait(job); got["JobState"] != "COMPLETED" {
		t.Fatalf("%v\n%s", got, c.Output(job))
	}
	if got := c.Output(job); got != "0: n1\n1: n2\n2: n3\n"+Alice+"\n" {
		t.Errorf("the job printed %q", got)
	}
	for _, n := range c.Nodes {
		out := n.Run("root", "cat", c.Dir+"/log/status."+n.Name)
		if !strings.Contains(out, `"node":"`+n.Name+`"`) {
			t.Errorf("the prolog of %s saw another daemon: %s", n.Name, out)
		}
	}
	for _, kill := range []bool{false, true} {
		c.StopController(kill)
		c.StartController()
	}
	if got := c.Drained(); len(got) != 0 {
		t.Errorf("nodes are drained: %v", got)
	}
	c.Nodes[2].Lose()
	if out, err := c.Nodes[0].Bbctl(Bob, "nodes"); err != nil {
		t.Errorf("%s (%v)", out, err)
	}
}
