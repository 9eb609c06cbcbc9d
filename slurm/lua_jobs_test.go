package slurm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/slurmtest"
	"forebay/slurm"
	"forebay/slurm/node"
	"forebay/slurm/slurmctl"
)

// luaCluster is a real Slurm with burst_buffer/lua, and folders of a user's.
type luaCluster struct {
	*slurmtest.Cluster
	t      *testing.T
	folder string
	store  string
}

// mountedBelow is the folder of each node in which prologs mount the buffers of jobs.
const mountedBelow = "/run/forebay/bb"

type luaOptions struct {
	both     bool // with prologs and epilogs besides, which mount
	held     bool // hooks can be held (luaCluster.hold)
	stageOut int  // StageOutTimeout, seconds; 0: the default of bbctl slurm install-lua
}

func startLua(t *testing.T, o luaOptions) *luaCluster {
	t.Helper()
	if testing.Short() {
		t.Skip("daemons and hooks are processes of their own")
	}
	s := slurm.Settings{
		Folder: "@DIR@/etc", Cluster: "test", Prefixes: []string{"BB"}, Pools: []string{"memory"}, Default: "memory", Granule: 1 << 20,
		Bbctl:        []string{"@BBCTL@", "--socket", "tcp://127.0.0.11:7481,tcp://127.0.0.12:7481", "--key-file", "@DIR@/etc/key"},
		StageInLimit: 60,
	}
	if o.held {
		s.Bbctl[0] = "@DIR@/etc/held"
	}
	files := s.Files()
	if o.held {
		files["held"] = heldBbctl
	}
	if o.stageOut > 0 {
		conf := regexp.MustCompile(`(?m)^StageOutTimeout=.*$`).ReplaceAllString(files[slurm.ConfigFile], fmt.Sprintf("StageOutTimeout=%d", o.stageOut))
		if conf == files[slurm.ConfigFile] {
			t.Fatal("there is no StageOutTimeout to change")
		}
		files[slurm.ConfigFile] = conf
	}
	// Slurm requests the pools when it starts, and then every 30 seconds.
	files["pools.json"] = `{"pools":[{"id":"memory","units":"bytes","granularity":1048576,"quantity":768,"free":768}]}`
	conf := s.SlurmConf()
	if o.both {
		wrappers := node.Wrappers("@BBCTL@", "/usr/sbin:/usr/bin:/sbin:/bin", []string{"--mount=" + mountedBelow}, nil)
		for _, w := range wrappers {
			files[w.Name] = w.Text
		}
		conf += node.SlurmConf("@DIR@/etc", wrappers, "forebay")
	}
	files["job_submit.lua"] = `dofile("@DIR@/etc/` + slurm.SubmitFile + `")` + "\n"
	c := slurmtest.Start(t, slurmtest.Options{Conf: conf, Files: files, Daemon: deadEndpoint})
	l := &luaCluster{Cluster: c, t: t, folder: filepath.Join(c.Dir, "etc"), store: filepath.Join(c.Work, "store")}
	s.Folder = l.folder
	for i, word := range s.Bbctl {
		s.Bbctl[i] = strings.NewReplacer("@DIR@", c.Dir, "@BBCTL@", l.Bbctl).Replace(word)
	}
	key := strings.Repeat("0123456789abcdef", 4)
	if err := os.WriteFile(filepath.Join(l.folder, "key"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	c.Run("root", "chown", "slurm", l.folder, l.folder+"/key", l.folder+"/pools.json")
	l.verb("pools")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.Try("root", "ls", "-laR", l.store)
			t.Log(out)
			for _, line := range []string{"buffer list", "orphans"} {
				out, _ = l.Nodes[0].Bbctl("root", strings.Fields(line)...)
				t.Logf("%s:\n%s", line, out)
			}
		}
	})
	c.Run(slurmtest.Alice, "mkdir", "-p", l.store+"/in")
	l.write("in/a", "what was there")
	return l
}

// verb runs a verb as the user that slurmctld runs as.
func (l *luaCluster) verb(args ...string) string {
	l.t.Helper()
	return l.Run("slurm", append([]string{
		l.Bbctl, "--socket", "tcp://127.0.0.12:7481", "--key-file", l.folder + "/key", "slurm",
	}, append(args, "--folder", l.folder)...)...)
}

// tend runs bbctl slurm tend until the test ends.
func (l *luaCluster) tend(args ...string) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := l.Command(ctx, "", "slurm", append([]string{
		l.Bbctl, "--socket", "tcp://127.0.0.12:7481,tcp://127.0.0.11:7481", "--key-file", l.folder + "/key", "slurm", "tend", "--folder", l.folder,
	}, args...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("tend says:\n%s", said.String())
		}
	})
}

// write makes a file of Alice's in the store.
func (l *luaCluster) write(name, text string) {
	l.t.Helper()
	l.Run(slurmtest.Alice, "sh", "-c", fmt.Sprintf("mkdir -p $(dirname %[1]s/%[2]s); printf '%%s' '%[3]s' >%[1]s/%[2]s", l.store, name, text))
}

func (l *luaCluster) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(l.store, name))
	return string(text)
}

// gone waits until nothing is left of a job's buffer, in Slurm, or with the daemons.
func (l *luaCluster) gone(job string) {
	l.t.Helper()
	l.Until("job "+job+" has no buffer any more", func() bool {
		state := l.buffersOf(job)
		return state == "complete" || state == ""
	})
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(l.buffers()), &list); err != nil {
		l.t.Fatal(err)
	}
	for _, b := range list {
		if strings.HasPrefix(b.Name, "job-"+job+"-") {
			l.t.Errorf("there is still %s", b.Name)
		}
	}
}

// buffers lists all buffers, as JSON.
func (l *luaCluster) buffers() string {
	l.t.Helper()
	out, err := l.Nodes[0].Bbctl("root", "buffer", "list", "--json")
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// text fills in the names in a job's script or a command.
func (l *luaCluster) text(text string) string {
	return strings.NewReplacer("STORE", l.store, "BBCTL", l.Bbctl, "WORK", l.Work).Replace(text)
}

func (l *luaCluster) submit(text string, flags ...string) string {
	l.t.Helper()
	return l.Submit(slurmtest.Alice, l.text(text), flags...)
}

// completed waits for a job's end, and for that of its buffer.
func (l *luaCluster) ended(job, state string) {
	l.t.Helper()
	if info := l.Wait(job); info["JobState"] != state {
		l.t.Errorf("job %s: %v\n%s", job, info, l.Output(job))
	}
	l.gone(job)
}

func (l *luaCluster) stored(name, want string) {
	l.t.Helper()
	if got := l.read(name); got != want {
		l.t.Errorf("%s holds %q, not %q", name, got, want)
	}
}

// shows waits until a field of a job has some text in it.
func (l *luaCluster) shows(job, text string) {
	l.t.Helper()
	l.Until(fmt.Sprintf("job %s shows %q", job, text), func() bool {
		out, _ := l.Try(slurmtest.Alice, "scontrol", "show", "job", job)
		return strings.Contains(out, text)
	})
}

// buffersOf is Slurm's record of a job's buffer. Its directives, which come before that, have
// lines.
func (l *luaCluster) buffersOf(job string) string {
	out, _ := l.Try("root", "scontrol", "show", "job", job)
	for _, j := range slurmctl.ParseJobs(out) {
		return j.Buffers
	}
	return ""
}

// stage waits until a job's buffer is in one of Slurm's states.
func (l *luaCluster) stage(job, state string) {
	l.t.Helper()
	l.Until(fmt.Sprintf("the buffer of job %s is %s", job, state), func() bool { return l.buffersOf(job) == state })
}

// deadStore is a store that does not answer. It is the site's, since users may name no other
// without TLS.
const (
	deadStore    = "s3://bucket/x?path_style=true"
	deadEndpoint = "s3: {endpoint: \"http://127.0.0.1:1\"}\n"
)

// TestLuaJobs runs jobs of many kinds at the same time. Each scenario submits its own, and is
// checked when all are under way. Jobs with hooks that stay come alone, at the end. Prologs and
// epilogs are there too, and leave buffers of burst_buffer/lua alone.
func TestLuaJobs(t *testing.T) {
	c := startLua(t, luaOptions{both: true})
	scenarios := []func(*luaCluster) func(){
		wholeWay, refused, heldThenReleased, runsWithoutInput, ignoresTerm, failing, array, manyNodes, requeued, twoUsers, persistent, draining, byFeature,
	}
	var checks []func()
	for _, s := range scenarios {
		checks = append(checks, s(c))
	}
	for _, check := range checks {
		check()
	}
	// The hooks of these stay until their jobs are ended. A hook that is forked together with
	// others may have their pipes, and then Slurm does not detect the end of those (hooklock.go).
	for _, s := range []func(*luaCluster) func(){cancelledStagingIn, hurried} {
		s(c)()
	}
	if drained := c.Drained(); len(drained) > 0 {
		t.Errorf("nodes are drained: %v", drained)
	}
	if strings.Contains(c.buffers(), "job-") {
		t.Errorf("buffers are left: %s", c.buffers())
	}
	t.Run("reap", func(t *testing.T) { reaped(t, c) })
}

// wholeWay copies in, computes, and copies out.
func wholeWay(l *luaCluster) func() {
	job := l.submit(`#BB jobbb capacity=10MiB name=ckpt
#BB stage_in source=STORE/in destination=$BB_JOB_STRIPED/in
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/out.%j
printenv | grep '^BB_\|^FOREBAY' | sort | cut -d= -f1
BBCTL cat $BB_JOB_STRIPED/in/a >WORK/whole && { cat WORK/whole; echo; echo and more; } >WORK/whole.out
BBCTL put WORK/whole.out $BB_JOB_ckpt/out/b
[ $BB_JOB_STRIPED = $FOREBAY_DIR ] && [ $BB_JOB_ckpt = $FOREBAY_DIR ] && srun sh -c 'mkdir -p $BB_JOB_STRIPED/out && cp $BB_JOB_STRIPED/out/b $BB_JOB_STRIPED/out/c'
BBCTL ls bb://$FOREBAY_BUFFER/out/c
`)
	return func() {
		l.ended(job, "COMPLETED")
		l.stored("out."+job+"/b", "what was there\nand more\n")
		l.stored("out."+job+"/c", "what was there\nand more\n")
		if got := l.Output(job); got != "BB_JOB_STRIPED\nBB_JOB_ckpt\nFOREBAY_BUFFER\nFOREBAY_DIR\nc\n" {
			l.t.Errorf("the job printed %q", got)
		}
		if got := l.verb("status", "--job", job); !strings.Contains(got, "it is over, everything is saved") {
			l.t.Errorf("status: %s", got)
		}
		if out, err := l.Try(slurmtest.Alice, "scontrol", "show", "bbstat", job); err != nil || !strings.Contains(out, "staged out: bb://") {
			l.t.Errorf("bbstat: %s (%v)", out, err)
		}
	}
}

func refused(l *luaCluster) func() {
	for text, want := range map[string]string{
		"#BB jobbb capacity=1.5GiB\n":                                       "forebay: line 2, column 20: capacity 1.5GiB is no whole number: Slurm would read 1 bytes",
		"#BB jobbb capacity=1G pool=tape\n":                                 "there is no pool \"tape\" (write pool=memory)",
		"true\n#BB jobbb capacity=1G\n":                                     "the directive comes after line 2",
		"#BB stage_in source=/a destination=$BB_JOB_STRIPED/a\n":            "the job has no buffer (add a jobbb line)",
		"#BB jobbb\n#BB stage_in source=/%z destination=$BB_JOB_STRIPED/\n": "or %% for the sign",
	} {
		if _, err := l.TrySubmit(slurmtest.Alice, text); err == nil || !strings.Contains(err.Error(), want) {
			l.t.Errorf("%q: %v", text, err)
		}
	}
	// Without job_submit.lua, burst_buffer.lua prints the same.
	if _, err := l.Try(slurmtest.Alice, "srun", "--bb=#BB jobbb capacity=2N pool=memory", "true"); err == nil || !strings.Contains(err.Error(), "counts nodes") {
		l.t.Errorf("--bb: %v", err)
	}
	return func() {}
}

// heldThenReleased fails to copy in, is held with the reason, and runs when that is repaired.
func heldThenReleased(l *luaCluster) func() {
	job := l.submit("#BB jobbb capacity=1MiB\n#BB stage_in source=STORE/late destination=$BB_JOB_STRIPED/late\nBBCTL cat $BB_JOB_STRIPED/late\n")
	return func() {
		l.shows(job, "there_is_nothing_under_this_name:_stage_in_file://"+l.store+"/late")
		l.stage(job, "complete")
		if info := l.Job(job); info["JobState"] != "PENDING" || info["Priority"] != "0" {
			l.t.Errorf("not held: %v", info)
		}
		l.write("late", "it came")
		l.Run("root", "scontrol", "release", job)
		l.ended(job, "COMPLETED")
		if out := l.Output(job); out != "it came" {
			l.t.Errorf("the job printed %q", out)
		}
	}
}

func runsWithoutInput(l *luaCluster) func() {
	job := l.submit("#BB jobbb capacity=1MiB\n#BB stage_in source=STORE/none destination=$BB_JOB_STRIPED/x on_error=continue\necho ran\n")
	return func() {
		l.ended(job, "COMPLETED")
		if out := l.Output(job); out != "ran\n" {
			l.t.Errorf("the job printed %q", out)
		}
		if got := l.verb("status", "--job", job); !strings.Contains(got, "x, failed: ") {
			l.t.Errorf("status: %s", got)
		}
	}
}

// cancelledStagingIn is cancelled while its input is copied. Slurm ends the hook that waits for that, and at times the teardown
// that it has just begun with it ("terminated by slurmctld"). It does not repeat that one, and its own record of the buffer
// stays. What the daemons have is ended by reap, as the site's tend does.
func cancelledStagingIn(l *luaCluster) func() {
	job := l.submit("#BB jobbb capacity=1MiB\n#BB stage_in source=" + deadStore + " destination=$BB_JOB_STRIPED/x\ntrue\n")
	l.stage(job, "staging-in")
	return func() {
		l.shows(job, "AdminComment=forebay: data-in is tried again")
		l.Run(slurmtest.Alice, "scancel", job)
		if info := l.Wait(job); info["JobState"] != "CANCELLED" {
			l.t.Errorf("job %s: %v", job, info)
		}
		l.Until("nothing of job "+job+" is left", func() bool {
			l.verb("reap")
			return !strings.Contains(l.buffers(), "job-"+job+"-")
		})
	}
}

// ignoresTerm is cancelled, and writes until it is killed. All that it wrote is copied out.
func ignoresTerm(l *luaCluster) func() {
	job := l.submit(`#BB jobbb capacity=10MiB
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/term
trap '' TERM
i=0
while :; do i=$((i+1)); echo $i >WORK/term.in; BBCTL put WORK/term.in $BB_JOB_STRIPED/out/$i && echo $i >>WORK/term.done; done
`)
	l.Until("it has written", func() bool { _, err := os.Stat(l.Work + "/term.done"); return err == nil })
	l.Run(slurmtest.Alice, "scancel", job)
	return func() {
		l.ended(job, "CANCELLED")
		done, err := os.ReadFile(l.Work + "/term.done")
		if err != nil {
			l.t.Fatal(err)
		}
		for i := range strings.FieldsSeq(string(done)) {
			l.stored("term/"+i, i+"\n")
		}
	}
}

func failing(l *luaCluster) func() {
	job := l.submit(`#BB jobbb capacity=1MiB
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/fail.any
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/fail.success on=success
#BB stage_out source=$BB_JOB_STRIPED/never destination=STORE/fail.never
echo x >WORK/fail && BBCTL put WORK/fail $BB_JOB_STRIPED/out/x
exit 3
`)
	return func() {
		l.ended(job, "FAILED")
		l.stored("fail.any/x", "x\n")
		l.stored("fail.success/x", "")
		got := l.verb("status", "--job", job)
		for _, want := range []string{"not staged out, as the job failed: bb://", "nothing was written to it"} {
			if !strings.Contains(got, want) {
				l.t.Errorf("status: %s", got)
			}
		}
	}
}

func array(l *luaCluster) func() {
	first := l.submit(`#BB jobbb capacity=1MiB
#BB stage_out source=$BB_JOB_STRIPED/x destination=STORE/array.%A.%a
echo $SLURM_ARRAY_TASK_ID >WORK/array.$SLURM_JOB_ID && BBCTL put WORK/array.$SLURM_JOB_ID $BB_JOB_STRIPED/x
`, "--array=1-3")
	return func() {
		for i := 1; i <= 3; i++ {
			name := fmt.Sprintf("array.%s.%d", first, i)
			l.Until(name+" is copied out", func() bool { return l.read(name) == fmt.Sprintf("%d\n", i) })
		}
		l.Until("no job of the array has a buffer", func() bool { return !strings.Contains(l.buffers(), "job-"+first+"-") })
	}
}

func manyNodes(l *luaCluster) func() {
	job := l.submit(`#BB jobbb capacity=30MiB
#BB stage_in source=STORE/in destination=$BB_JOB_STRIPED/in
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/nodes
srun sh -c 'BBCTL get $BB_JOB_STRIPED/in/a WORK/nodes.$SLURMD_NODENAME && BBCTL put WORK/nodes.$SLURMD_NODENAME $BB_JOB_STRIPED/out/$SLURMD_NODENAME'
`, "-N3")
	return func() {
		l.ended(job, "COMPLETED")
		for _, n := range l.Nodes {
			l.stored("nodes/"+n.Name, "what was there")
		}
	}
}

// requeued is begun again while it runs. Its first life is copied out, and the second too.
func requeued(l *luaCluster) func() {
	job := l.submit(`#BB jobbb capacity=1MiB
#BB stage_out source=$BB_JOB_STRIPED/out destination=STORE/requeue
n=${SLURM_RESTART_COUNT:-0}
echo $n >WORK/requeue.$n && BBCTL put WORK/requeue.$n $BB_JOB_STRIPED/out/$n
BBCTL ls $BB_JOB_STRIPED/out >WORK/requeue.ls.$n
[ $n = 1 ] || sleep 600
`, "--requeue")
	l.Until("it has written", func() bool { _, err := os.Stat(l.Work + "/requeue.ls.0"); return err == nil })
	l.Run("root", "scontrol", "requeue", job)
	return func() {
		l.ended(job, "COMPLETED")
		l.stored("requeue/0", "0\n")
		l.stored("requeue/1", "1\n")
		if text, _ := os.ReadFile(l.Work + "/requeue.ls.1"); strings.Contains(string(text), "0") && !strings.Contains(string(text), "1") {
			l.t.Errorf("the second life saw the first one's buffer: %s", text)
		}
	}
}

// twoUsers shows that neither user reads the other's files, nor can get them by a stage.
func twoUsers(l *luaCluster) func() {
	job := l.submit("#BB jobbb capacity=1MiB\n#BB stage_in source=STORE/in destination=$BB_JOB_STRIPED/in\necho bb://$FOREBAY_BUFFER >WORK/address\nwhile [ ! -e WORK/looked ]; do sleep 0.1; done\n")
	l.Run(slurmtest.Alice, "sh", "-c", l.text("umask 077; echo mine >STORE/secret"))
	thief := l.Submit(slurmtest.Bob, l.text("#BB jobbb capacity=1MiB\n#BB stage_in source=STORE/secret destination=$BB_JOB_STRIPED/secret\nBBCTL cat $BB_JOB_STRIPED/secret\n"))
	return func() {
		l.shows(thief, "permission_denied")
		l.Run(slurmtest.Bob, "scancel", thief)
		l.Until("Alice's job runs", func() bool { _, err := os.Stat(l.Work + "/address"); return err == nil })
		address := strings.TrimSpace(l.Run(slurmtest.Alice, "cat", l.Work+"/address"))
		if out, err := l.Nodes[0].Bbctl(slurmtest.Bob, "cat", address+"/in/a"); err == nil {
			l.t.Errorf("Bob has read %q", out)
		}
		if out, err := l.Nodes[0].Bbctl(slurmtest.Alice, "cat", address+"/in/a"); err != nil || out != "what was there" {
			l.t.Errorf("Alice has read %q (%v)", out, err)
		}
		l.Run(slurmtest.Alice, "touch", l.Work+"/looked")
		l.ended(job, "COMPLETED")
		l.gone(thief)
	}
}

// persistent makes a buffer in one job, uses it in the next, and destroys it in a third.
func persistent(l *luaCluster) func() {
	first := l.submit("#BB create_persistent name=shared capacity=4MiB\necho kept >WORK/kept; BBCTL put WORK/kept $BB_PERSISTENT_STRIPED_shared/kept\n")
	return func() {
		l.ended(first, "COMPLETED")
		second := l.submit("#BB persistentbb name=shared\n#BB stage_out source=$BB_PERSISTENT_STRIPED_shared/kept destination=STORE/kept\nBBCTL cat $BB_PERSISTENT_STRIPED_shared/kept\n")
		l.ended(second, "COMPLETED")
		l.stored("kept", "kept\n")
		third := l.submit("#BB destroy_persistent name=shared hurry\ntrue\n")
		l.ended(third, "COMPLETED")
		if strings.Contains(l.buffers(), "shared") {
			l.t.Errorf("it is still there: %s", l.buffers())
		}
	}
}

// draining has a store behind its buffer, and nothing to copy out.
func draining(l *luaCluster) func() {
	l.Run(slurmtest.Alice, "mkdir", l.store+"/backing")
	job := l.submit("#BB jobbb capacity=4MiB backing=STORE/backing\necho flushed >WORK/flushed; BBCTL put WORK/flushed $BB_JOB_STRIPED/a/b\n")
	return func() {
		l.ended(job, "COMPLETED")
		l.stored("backing/a/b", "flushed\n")
	}
}

// hurried cannot be copied out, and is abandoned by its user.
func hurried(l *luaCluster) func() {
	l.Run("root", "mkdir", "-m", "700", l.store+"/locked")
	job := l.submit("#BB jobbb capacity=1MiB\n#BB stage_out source=$BB_JOB_STRIPED/x destination=STORE/locked/x\nBBCTL put STORE/in/a $BB_JOB_STRIPED/x\n")
	return func() {
		l.stage(job, "staging-out")
		l.Until("bbstat says what is in the way", func() bool {
			out, _ := l.Try(slurmtest.Alice, "scontrol", "show", "bbstat", job)
			return strings.Contains(out, "not saved yet") && strings.Contains(out, "permission denied")
		})
		l.Run(slurmtest.Alice, "scancel", "--hurry", job)
		l.ended(job, "COMPLETED")
		l.stored("locked/x", "")
		if out := l.verb("status", "--job", job); !strings.Contains(out, "/x, 14 B: its buffer was destroyed before it was ") {
			l.t.Errorf("what was given up is not in the bill: %s", out)
		}
	}
}

// byFeature has no directives, and its buffer from the prolog.
func byFeature(l *luaCluster) func() {
	job := l.submit("BBCTL put STORE/in/a bb://$FOREBAY_BUFFER/a && BBCTL cat bb://$FOREBAY_BUFFER/a\n", "--constraint=forebay")
	return func() {
		if info := l.Wait(job); info["JobState"] != "COMPLETED" || l.Output(job) != "what was there" {
			l.t.Errorf("%v: %s", info, l.Output(job))
		}
		l.Until("its buffer is gone", func() bool { return !strings.Contains(l.buffers(), "job-"+job+"-") })
	}
}

// reaped checks the remains of a job without a record in Slurm.
func reaped(t *testing.T, l *luaCluster) {
	const key = "job-4000000-0badcafe"
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + l.Nodes[0].Daemon.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = admin.OpenLifetime(t.Context(), c, admin.Lifetime{
		Key: key, Cluster: "test", Job: "4000000", UID: slurmtest.AliceUID, GID: slurmtest.AliceUID, Buffer: key, SchedulerManaged: true,
		Out: []admin.LifetimeStage{{Buffer: key, Path: "out", URL: "file://" + l.store + "/reaped"}},
	}, admin.LifetimeOptions{Create: []admin.BufferSpec{{Name: key}}, Ran: true})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := l.Nodes[0].Bbctl(slurmtest.Alice, "put", l.store+"/in/a", "bb://"+key+"/out/a"); err != nil {
		t.Fatal(out, err)
	}
	if out := l.verb("reap"); !strings.Contains(out, "job 4000000, buffer "+key+": done") {
		t.Errorf("reap: %s", out)
	}
	l.Until("it is copied out, and its buffer is gone", func() bool {
		return l.read("reaped/a") == "what was there" && !strings.Contains(l.buffers(), key)
	})
	if out := l.verb("reap"); out != "" {
		t.Errorf("the second time: %s", out)
	}
}

// TestDocs runs the job scripts of docs/slurm-jobs.md, in order, with the paths and sizes of the
// test, and checks the installation against docs/slurm-lua.md.
func TestDocs(t *testing.T) {
	jobs, err := os.ReadFile("../docs/slurm-jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/slurm-lua.md")
	if err != nil {
		t.Fatal(err)
	}
	c := startLua(t, luaOptions{})
	c.Run(slurmtest.Alice, "mkdir", "-p", c.store+"/alice/ckpt")
	c.write("alice/in/data", "data")
	replace := strings.NewReplacer("/lustre", c.store, "GiB", "MiB", "bbctl ", c.Bbctl+" ", "#!/bin/bash\n", "")
	parts := strings.Split(string(jobs), "```sh job\n")
	if len(parts) < 7 {
		t.Fatalf("%d scripts were found", len(parts)-1)
	}
	last := ""
	for _, part := range parts[1:] {
		script, _, _ := strings.Cut(part, "```")
		script = replace.Replace(script)
		var flags []string
		if last != "" {
			flags = []string{"--dependency=afterburstbuffer:" + last}
		}
		c.write("job.sh", "#!/bin/sh\n"+script)
		// Gossip brings the free memory of nodes that have just started a second late.
		c.Until("there is room for the job\n"+script, func() bool {
			out, err := c.Nodes[0].Bbctl(slurmtest.Alice, "plan", c.store+"/job.sh")
			if err != nil {
				t.Fatalf("plan: %s (%v)\n%s", out, err, script)
			}
			return strings.Contains(out, "fits now")
		})
		last = c.Submit(slurmtest.Alice, script, flags...)
		c.ended(last, "COMPLETED")
		if strings.Contains(script, "stage_out") {
			c.stored("alice/out."+last+"/result", "data")
		}
	}
	c.stored("alice/ckpt/step-1", "ctl\n")
	c.Run(slurmtest.Alice, "scontrol", "show", "bbstat", last)

	// The installation, with folders of the test's own.
	conf, folder := t.TempDir(), t.TempDir()
	var command string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "bbctl slurm install-lua") {
			command = strings.TrimSpace(line)
		}
	}
	args := append(strings.Fields(command)[1:], "--conf-dir", conf, "--folder", folder)
	out := c.Run("root", append([]string{c.Bbctl}, args...)...)
	_, lines, _ := strings.Cut(out, "slurm.conf needs:\n")
	if lines == "" || !strings.Contains(string(page), "```\n"+lines+"```") {
		t.Errorf("slurm.conf needs other lines than the page says: %s", out)
	}
	for _, name := range []string{"burst_buffer.lua", "burst_buffer.conf", "forebay_submit.lua", "job_submit.lua"} {
		if _, err := os.Stat(filepath.Join(conf, name)); err != nil || !strings.Contains(string(page), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
