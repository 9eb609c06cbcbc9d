package slurm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/slurmtest"
)

// heldBbctl is a bbctl for hooks that blocks for a job at a verb as long as there is a file.
const heldBbctl = `#!/bin/sh
last= verb= job=
for word; do
	case $last in
	slurm) verb=$word ;;
	--job) job=$word ;;
	esac
	last=$word
done
hold=@DIR@/hold/$verb.$job
if [ -e "$hold" ]; then
	: >"$hold.at"
	while [ -e "$hold" ]; do sleep 0.1; done
fi
exec @BBCTL@ "$@"
`

// hold is where a job's hook is to be held.
func (l *luaCluster) hold(verb, job string) string { return filepath.Join(l.Dir, "hold", verb+"."+job) }

// submitHeld submits a job whose hook for a verb will be held, until release.
func (l *luaCluster) submitHeld(verb, text string, flags ...string) string {
	l.t.Helper()
	job := l.submit(text, append(flags, "--hold")...)
	if err := os.WriteFile(l.hold(verb, job), nil, 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.Run("root", "scontrol", "release", job)
	return job
}

// at waits until a job's hook is held that has begun since the last call.
func (l *luaCluster) at(verb, job string) {
	l.t.Helper()
	l.Until("job "+job+" is held in "+verb, func() bool { return os.Remove(l.hold(verb, job)+".at") == nil })
}

func (l *luaCluster) release(verb, job string) {
	l.t.Helper()
	if err := os.Remove(l.hold(verb, job)); err != nil {
		l.t.Fatal(err)
	}
}

// saved waits until slurmctld has saved the states of jobs, which it does within 5 seconds.
func (l *luaCluster) saved(job string) {
	l.t.Helper()
	now := time.Now()
	l.Until("slurmctld has saved its state", func() bool {
		l.Run("root", "scontrol", "update", "JobId="+job, "Comment="+time.Now().Format(time.RFC3339))
		state, err := os.Stat(filepath.Join(l.Dir, "state", "job_state"))
		return err == nil && state.ModTime().After(now)
	})
}

// lives are the lifetimes of a job's runs at the daemons, the newest first.
func (l *luaCluster) lives(job string) []admin.Lifetime {
	l.t.Helper()
	c, err := client.Dial(l.t.Context(), client.Options{Address: "unix://" + l.Nodes[0].Daemon.Socket})
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	list, err := admin.Lifetimes(l.t.Context(), c, job)
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// orphans are the keys of the jobs that bbctl orphans lists.
func (l *luaCluster) orphans() string {
	l.t.Helper()
	out, err := l.Nodes[0].Bbctl("root", "orphans")
	if err != nil {
		l.t.Fatal(out, err)
	}
	return out
}

// sound fails the test if a node is out of service.
func (l *luaCluster) sound() {
	l.t.Helper()
	if drained := l.Drained(); len(drained) > 0 {
		l.t.Errorf("nodes are drained: %v", drained)
	}
}

// TestLuaFaults injects one fault after the other into jobs in each stage: slurmctld ended in order
// and at once, a daemon killed, a store that is dead for longer than Slurm's timeout, slurmctld's
// state lost, so that ids begin anew, and a node lost. The jobs' files are saved, or in the bill.
func TestLuaFaults(t *testing.T) {
	c := startLua(t, luaOptions{both: true, held: true, stageOut: 15})
	c.Run("root", "install", "-d", "-m", "777", filepath.Join(c.Dir, "hold"))
	c.Run("root", "mkdir", "-m", "700", c.store+"/locked")
	c.tend("--pools", "1s", "--reap", "1s", "--quiet", "8s")
	first := restarts(c)
	idsAgain(c, first)
	lostWithJob(c)
	// It is tried again within a minute.
	for deadline := time.Now().Add(2 * time.Minute); c.lives(first)[1].State != admin.LifetimeGone; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("what the first job has left is not saved: %+v", c.lives(first)[1])
		}
	}
	c.stored("locked/first/x", "what was there first\n")
	if out := c.orphans(); strings.Contains(out, "job-") {
		t.Errorf("orphans: %s", out)
	}
	if out := c.buffers(); strings.Contains(out, "job-") {
		t.Errorf("buffers are left: %s", out)
	}
}

// whole copies in, writes, and copies out. More is for the end of the script.
//
// The job may begin while the killed daemon is away, so it tries again.
func whole(name, more string) string {
	return strings.ReplaceAll(`#BB jobbb capacity=1MiB
#BB stage_in source=STORE/in destination=$BB_JOB_STRIPED/in
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/NAME
{ until BBCTL cat $BB_JOB_STRIPED/in/a; do sleep 0.2; done; echo " NAME"; } >WORK/NAME && BBCTL put WORK/NAME $BB_JOB_STRIPED/out/x
`, "NAME", name) + more
}

// whole checks the files that it has copied out.
func (l *luaCluster) whole(name string) {
	l.t.Helper()
	l.stored(name+"/x", "what was there "+name+"\n")
}

func (l *luaCluster) touched(name string) {
	l.t.Helper()
	l.Until("a job has made "+name, func() bool { _, err := os.Stat(filepath.Join(l.Work, name)); return err == nil })
}

// restarts ends slurmctld twice while jobs are in each stage, and a daemon. It returns the first
// job, whose store is dead. Slurm abandons it, and the daemons do not.
func restarts(c *luaCluster) (first string) {
	// One after the other, since of hooks that begin at once one may seem to last as long as
	// another that is held (hooklock.go). The first ones are those without an event meanwhile.
	first = c.submit(strings.ReplaceAll(whole("first", ""), "STORE/first", "STORE/locked/first"))
	c.stage(first, "staging-out")
	running := c.submit(whole("running", "touch WORK/runs; while [ ! -e WORK/go ]; do sleep 0.1; done\n"))
	c.touched("runs")
	jobs := map[string]string{}
	for _, verb := range []string{"setup", "data-in", "pre-run", "teardown", "post-run", "data-out"} {
		jobs[verb] = c.submitHeld(verb, whole(verb, ""))
		c.at(verb, jobs[verb])
	}

	// In order. Finished stage-ins are torn down, and begun again after a minute, or on request.
	// The others' stages are begun again at the same moment, so that Slurm may detect no end of one
	// before all have ended.
	c.StopController(false)
	c.StartController()
	for _, verb := range []string{"pre-run", "post-run", "teardown"} {
		c.at(verb, jobs[verb])
	}
	for _, verb := range []string{"setup", "data-in", "post-run"} {
		c.release(verb, jobs[verb])
	}

	// At once. It has the jobs of the last half minute, and not their buffers.
	lost := map[string]string{}
	for _, verb := range []string{"post-run", "data-out", "data-in"} {
		lost[verb] = c.submitHeld(verb, whole("lost."+verb, ""))
		c.at(verb, lost[verb])
	}
	c.saved(lost["data-in"])
	c.StopController(true)
	c.StartController()
	for _, verb := range []string{"pre-run", "teardown"} {
		c.at(verb, jobs[verb])
	}

	// The hooks continue, and the daemon that they contact first is gone. The hook that does not go
	// on acts as one with an end that Slurm does not detect.
	c.Nodes[0].Daemon.Kill()
	for _, verb := range []string{"pre-run", "teardown"} {
		c.release(verb, jobs[verb])
	}
	for verb, job := range lost {
		c.release(verb, job)
	}
	c.Run(slurmtest.Alice, "touch", c.Work+"/go")
	c.Nodes[0].Daemon.Start()
	c.ended(running, "COMPLETED")
	c.whole("running")
	for _, verb := range []string{"setup", "data-in"} {
		c.stage(jobs[verb], "complete")
		c.Run(slurmtest.Alice, "scontrol", "update", "JobId="+jobs[verb], "StartTime=now")
		c.ended(jobs[verb], "COMPLETED")
		c.whole(verb)
	}
	for _, verb := range []string{"pre-run", "post-run", "data-out", "teardown"} {
		c.ended(jobs[verb], "COMPLETED")
		c.whole(verb)
	}
	for _, verb := range []string{"post-run", "data-out"} {
		c.Until("the reaper has ended what Slurm has forgotten", func() bool { return c.lives(lost[verb])[0].State == admin.LifetimeGone })
		c.whole("lost." + verb)
	}
	c.shows(lost["data-in"], "Slurm has lost track")
	c.Run(slurmtest.Alice, "scancel", lost["data-in"])
	// Slurm may end its own teardown with the job, and not begin it again.
	c.Wait(lost["data-in"], "CANCELLED")
	c.Until("nothing is left of the cancelled job", func() bool { return c.lives(lost["data-in"])[0].State == admin.LifetimeGone })

	c.sound()
	return first
}

// idsAgain makes slurmctld lose its state. It has no record of a job that runs, and the next has
// the id of the first one, whose data are not saved yet.
func idsAgain(c *luaCluster, first string) {
	c.Until("Slurm gives up the first job's stage-out", func() bool {
		state := c.buffersOf(first)
		return state == "teardown" || state == "complete"
	})
	old := c.lives(first)[0].Key
	if out := c.orphans(); !strings.Contains(out, old) || strings.Count(out, "job-") != 1 {
		c.t.Errorf("orphans: %s", out)
	}
	unknown := c.submit(whole("unknown", "touch WORK/unknown.runs; sleep 600\n"))
	c.touched("unknown.runs")
	c.StopController(true)
	c.Run("root", "sh", "-c", "rm -rf "+c.Dir+"/state/*")
	c.StartController()
	c.Until("the nodes are back", func() bool {
		return strings.Count(c.Run("root", "sinfo", "-h", "-N", "-o", "%N %T"), " idle") == 3
	})
	again := c.submit(whole("again", ""), "--output="+c.Work+"/again.out")
	if again != first {
		c.t.Fatalf("the next job has id %s, not %s", again, first)
	}
	if l := c.lives(first); l[len(l)-1].Key != old || l[len(l)-1].State != admin.LifetimeOrphan {
		c.t.Fatalf("the first job is %+v", l)
	}
	c.Run("root", "chown", slurmtest.Alice, c.store+"/locked")
	if info := c.Wait(again); info["JobState"] != "COMPLETED" {
		out, _ := os.ReadFile(c.Work + "/again.out")
		c.t.Fatalf("%v: %s", info, out)
	}
	c.Until("what it has left is gone", func() bool { return c.lives(again)[0].State == admin.LifetimeGone })
	c.whole("again")
	if list := c.lives(first); len(list) != 2 || list[1].Key != old {
		c.t.Fatalf("what is known of the two jobs of one id: %+v", list)
	}
	c.Until("the job that Slurm does not know any more is saved", func() bool { return c.lives(unknown)[0].State == admin.LifetimeGone })
	c.whole("unknown")
	c.sound()
}

// lostWithJob loses a node during its job. Its own files are an orphan, until the node is declared
// gone.
func lostWithJob(c *luaCluster) {
	c.Run(slurmtest.Alice, "mkdir", c.store+"/lost")
	job := c.submit(`#BB jobbb capacity=4MiB backing=STORE/lost flush_limit=10KB
set -e
head -c 1000000 /dev/zero | BBCTL put - $BB_JOB_STRIPED/there
touch WORK/lost.runs
sleep 600
`, "-w", "n3", "--no-requeue", "--output="+c.Work+"/lost.out")
	c.touched("lost.runs")
	c.Nodes[2].Lose()
	c.Run("root", "scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=lost")
	c.Until("what it has left is an orphan", func() bool {
		l := c.lives(job)[0]
		return l.State == admin.LifetimeOrphan && strings.Contains(l.Reason, "n3")
	})
	if out := c.orphans(); !strings.Contains(out, c.lives(job)[0].Key) || !strings.Contains(out, "n3") {
		c.t.Errorf("orphans: %s", out)
	}
	// An earlier job, whose stage-out may not have been tried again yet, may have lost a file with n3 too.
	lost := "lost: bb://" + c.lives(job)[0].Key + "/there, 977 KiB"
	if out, err := c.Nodes[0].Bbctl("root", "node", "forget", "n3", "--yes"); err == nil || !strings.Contains(out+err.Error(), lost) {
		c.t.Fatal(out, err)
	}
	c.ended(job, "NODE_FAIL")
	l := c.lives(job)[0]
	if l.Losses.Total != 1 || l.Losses.Bytes != 1000000 || !strings.HasSuffix(l.Losses.Files[0].Path, "/there") {
		text, _ := json.Marshal(l)
		c.t.Errorf("what is known of it: %s", text)
	}
}
