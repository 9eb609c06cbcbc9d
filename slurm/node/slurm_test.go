package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/slurmtest"
	"forebay/slurm/node"
)

// site is a cluster with the prolog and epilog that bbctl slurm install writes.
type site struct {
	*slurmtest.Cluster
	admin *client.Client
}

// ready is how long its prologs wait for a daemon. One that was killed may have to wait for another
// server of the namespace to lead.
const ready = 20 * time.Second

// mountedBelow is the folder of each node in which jobs find their buffers mounted.
const mountedBelow = "/run/forebay/bb"

func newSite(t *testing.T) *site {
	t.Helper()
	wrappers := node.Wrappers("@BBCTL@", "/usr/sbin:/usr/bin:/sbin:/bin", []string{"--ready=" + ready.String(), "--mount=" + mountedBelow}, nil)
	o := slurmtest.Options{Conf: node.SlurmConf("@DIR@/etc", wrappers, "forebay"), Files: map[string]string{}}
	for _, w := range wrappers {
		o.Files[w.Name] = w.Text
	}
	s := &site{Cluster: slurmtest.Start(t, o)}
	s.admin = s.dial(t, 0)
	for _, n := range s.Nodes {
		s.watch(t, n)
	}
	return s
}

// watch runs the watch, elsewhere a service, until the test ends.
func (s *site) watch(t *testing.T, n *slurmtest.Node) {
	t.Helper()
	out, err := os.Create(filepath.Join(s.Dir, "log", "watch."+n.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := s.Command(context.Background(), n.Name, "root", s.Bbctl, "slurm", "watch", "--every=1s")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func (s *site) dial(t *testing.T, i int) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + s.Nodes[i].Daemon.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// at is the site for a subtest. Failures count for the subtest.
func (s *site) at(t *testing.T) *site {
	return &site{Cluster: s.Cluster.At(t), admin: s.admin}
}

// folder makes a folder of a user's own, with files.
func (s *site) folder(t *testing.T, user string, files map[string]string) string {
	t.Helper()
	dir := strings.TrimSpace(s.Run(user, "mktemp", "-d", "-p", s.Work))
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runs returns the daemons' lifetimes of a job's runs, the newest first.
func (s *site) runs(t *testing.T, job string) []admin.Lifetime {
	t.Helper()
	list, err := admin.Lifetimes(t.Context(), s.admin, job)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// over waits until nothing of a job's runs is left, which are so many, and returns them.
func (s *site) over(t *testing.T, job string, count int) []admin.Lifetime {
	t.Helper()
	var list []admin.Lifetime
	s.Until(fmt.Sprintf("nothing is left of job %s", job), func() bool {
		list = s.runs(t, job)
		for _, l := range list {
			// A node may report the job's leaving after the watch has reported its end.
			attached := slices.ContainsFunc(l.Nodes, func(n admin.Attachment) bool { return n.Attached })
			if l.State != admin.LifetimeGone || attached {
				return false
			}
		}
		return len(list) == count
	})
	for _, l := range list {
		if _, err := admin.BufferInfo(t.Context(), s.admin, l.Key); client.KindOf(err) != client.ErrNotFound {
			t.Errorf("the buffer of job %s is still there (%v)", job, err)
		}
	}
	return list
}

func (s *site) completed(t *testing.T, job string) {
	t.Helper()
	if got := s.Wait(job); got["JobState"] != "COMPLETED" {
		t.Fatalf("job %s is %s: %s\n%s", job, got["JobState"], got["AdminComment"], s.Output(job))
	}
}

func want(t *testing.T, file, text string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || string(got) != text {
		t.Errorf("%s: %q, want %q (%v)", file, got, text, err)
	}
}

func wantNothing(t *testing.T, file string) {
	t.Helper()
	if got, err := os.ReadFile(file); err == nil {
		t.Errorf("%s is there: %q", file, got)
	}
}

// TestSlurm runs jobs of real Slurm, first many at once, and then one fault after the other.
func TestSlurm(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes two minutes, and what it tests are processes of their own")
	}
	s := newSite(t)
	t.Run("jobs", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *site){
			"stages": stages, "array": array, "users": users, "feature": feature, "failing": failing, "requeued": requeued, "figures": figures, "late": late, "stuck": stuck,
			"cancelled": cancelled, "steps": steps, "wrong": wrong, "interactive": interactive, "persistent": persistent, "mount": mountedJob,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, s.at(t))
			})
		}
	})
	s.sound(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *site)
	}{
		{"prolog fails", prologFails},
		{"daemon killed in prolog", killedInProlog},
		{"daemon killed in job", killedInJob},
		{"daemon killed in epilog", killedInEpilog},
		{"slurmctld killed", controllerKilled},
		{"held in prolog and epilog", heldInBoth},
		{"epilog lost", epilogLost},
		{"ids again", idsAgain},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s.at(t)) })
		s.sound(t)
		if t.Failed() {
			return
		}
	}
	// The last one, since nodes stay lost, and empty.
	t.Run("node lost", func(t *testing.T) { nodeLost(t, s.at(t)) })
	t.Run("node emptied", func(t *testing.T) { nodeEmptied(t, s.at(t)) })
}

// sound fails the test if something was left behind.
func (s *site) sound(t *testing.T) {
	t.Helper()
	if drained := s.Drained(); len(drained) > 0 {
		t.Errorf("nodes are out of service: %v", drained)
	}
	for _, n := range s.Nodes {
		out := n.Run("root", "sh", "-c", "ls "+node.DefaultDir+" 2>/dev/null || true")
		if out != "" {
			t.Errorf("%s keeps %s", n.Name, out)
		}
		if out = n.Run("root", "sh", "-c", "ls "+mountedBelow+" 2>/dev/null || true"); out != "" {
			t.Errorf("%s keeps mounts: %s", n.Name, out)
		}
	}
	out, err := s.Nodes[0].Bbctl("root", "orphans")
	if err != nil || strings.Contains(out, "job-") {
		t.Errorf("orphans: %s (%v)", out, err)
	}
}

// stages: staged-in files are there on each node, and the nodes' files are staged out.
func stages(t *testing.T, s *site) {
	in := s.folder(t, slurmtest.Alice, map[string]string{"word": "hello\n"})
	out := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch capacity=64MiB access_mode=striped pool=memory
#BB stage_in type=directory source=%s destination=$BB_JOB_STRIPED/in
#BB stage_out type=directory source=$BB_JOB_STRIPED/out destination=%s/%%j
set -e
srun sh -c 'bbctl cat $BB_JOB_STRIPED/in/word | tr a-z A-Z | bbctl put - $BB_JOB_STRIPED/out/$SLURMD_NODENAME'
bbctl ls $BB_JOB_STRIPED/out
`, in, out), "-N3")
	s.completed(t, job)
	l := s.over(t, job, 1)[0]
	for _, n := range s.Nodes {
		want(t, filepath.Join(out, job, n.Name), "HELLO\n")
	}
	if len(l.Nodes) != 3 || l.UID != slurmtest.AliceUID || l.Total().Absorbed < 18 || !l.Succeeded || l.Losses.Total != 0 {
		t.Errorf("what is known of it: %+v", l)
	}
	if text, err := s.Nodes[1].Bbctl(slurmtest.Alice, "status", "--job", job); err != nil || !strings.Contains(text, "everything is saved") || strings.Count(text, "detached") != 3 {
		t.Errorf("what its user is told: %s (%v)", text, err)
	}
	if text, err := s.Nodes[1].Bbctl(slurmtest.Bob, "status", "--job", job); err == nil {
		t.Errorf("what another user is told: %s", text)
	}
	if text := s.Run(slurmtest.Alice, "stat", "-c", "%U", filepath.Join(out, job), filepath.Join(out, job, "n1")); text != "alice\nalice\n" {
		t.Errorf("what was staged out is %s's", text)
	}
}

// mountedJob: programs without the library find the job's buffer in a directory of each node, other users do not enter
// it, and the epilog takes it away.
func mountedJob(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=directory source=$FOREBAY_DIR/out destination=%s/%%j
set -e
[ "$BB_JOB_STRIPED" = "$FOREBAY_DIR" ] # which is a directory for the programs of DataWarp's users, and an address for bbctl
mkdir "$BB_JOB_STRIPED/out"
srun sh -c 'hostname >/dev/null; echo $SLURMD_NODENAME >"$FOREBAY_DIR/out/$SLURMD_NODENAME"; chmod 640 "$FOREBAY_DIR/out/$SLURMD_NODENAME"'
until [ "$(ls "$FOREBAY_DIR/out" | wc -l)" = 3 ]; do sleep 0.1; done
[ "$(bbctl ls bb://$FOREBAY_BUFFER/out | wc -l)" = 3 ]
[ "$(cd "$FOREBAY_DIR/out" && bbctl ls . | wc -l)" = 3 ]
[ "$(bbctl address $BB_JOB_STRIPED)" = bb://$FOREBAY_BUFFER/ ]
stat -f -c %%T "$FOREBAY_DIR" >>"$FOREBAY_DIR/out/n1"
stat -c %%U "$FOREBAY_DIR" >>"$FOREBAY_DIR/out/n1"
echo "$FOREBAY_DIR" >%[1]s/dir
until [ -e %[1]s/seen ]; do sleep 0.1; done
`, out), "-N3")
	s.Until("the job has its directory", func() bool {
		_, err := os.Stat(filepath.Join(out, "dir"))
		return err == nil
	})
	dir, err := os.ReadFile(filepath.Join(out, "dir"))
	if err != nil || !strings.HasPrefix(string(dir), mountedBelow+"/") {
		t.Errorf("FOREBAY_DIR is %q (%v)", dir, err)
	}
	if text, err := s.Nodes[0].Try(slurmtest.Bob, "ls", strings.TrimSpace(string(dir))); err == nil {
		t.Errorf("another user lists the job's directory: %s", text)
	}
	s.Run(slurmtest.Alice, "touch", filepath.Join(out, "seen"))
	s.completed(t, job)
	s.over(t, job, 1)
	want(t, filepath.Join(out, job, "n1"), "n1\nfuseblk\nalice\n")
	for _, n := range s.Nodes[1:] {
		want(t, filepath.Join(out, job, n.Name), n.Name+"\n")
	}
	info, err := os.Stat(filepath.Join(out, job, "n1"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode of a file from the mount: %v (%v)", info, err)
	}
}

// figures: if TaskEpilog had the time for it, the work of a job's buffer is in its record, even of
// a short job.
func figures(t *testing.T, s *site) {
	s.Until("a job's record has figures", func() bool {
		job := s.Submit(slurmtest.Bob, "#BB jobbb type=scratch\necho x | bbctl put - $BB_JOB_STRIPED/f\n")
		s.completed(t, job)
		s.over(t, job, 1)
		return strings.Contains(s.Run(slurmtest.Bob, "scontrol", "show", "job", job), "\n   Comment=forebay: absorbed=2 ")
	})
	s.Until("the record of a job without a script has figures", func() bool {
		out, err := s.Try(slurmtest.Bob, "srun", "--bb=#BB jobbb type=scratch", "sh", "-c", "echo x | bbctl put - $BB_JOB_STRIPED/f; echo job=$SLURM_JOB_ID")
		_, job, _ := strings.Cut(strings.TrimSpace(out), "job=")
		if err != nil || job == "" {
			t.Fatalf("%s (%v)", out, err)
		}
		s.over(t, job, 1)
		return strings.Contains(s.Run(slurmtest.Bob, "scontrol", "show", "job", job), "\n   Comment=forebay: absorbed=2 ")
	})
}

// array: each task has a buffer of its own.
func array(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Bob, nil)
	job := s.Submit(slurmtest.Bob, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=file source=$BB_JOB_STRIPED/r destination=%s/r.%%A.%%a
echo $SLURM_ARRAY_TASK_ID | bbctl put - $BB_JOB_STRIPED/r
`, out), "--array=1-3")
	for task := range 3 {
		file := filepath.Join(out, fmt.Sprintf("r.%s.%d", job, task+1))
		s.Until(file+" is there", func() bool { _, err := os.Stat(file); return err == nil })
		want(t, file, fmt.Sprintln(task+1))
	}
}

// users: neither can access the other's buffer, variables or token.
func users(t *testing.T, s *site) {
	const script = `#BB jobbb type=scratch
set -e
echo mine | bbctl put - $BB_JOB_STRIPED/f
echo $BB_JOB_STRIPED >buffer.$(id -un)
stat -c '%a %U' $FOREBAY_TOKEN_FILE
while [ ! -s buffer.alice ] || [ ! -s buffer.bob ]; do sleep 0.1; done
other=alice
[ $(id -un) = bob ] || other=bob
! bbctl ls $(cat buffer.$other)
! bbctl cat $(cat buffer.$other)/f
! bbctl status --json | grep -q $(basename $(cat buffer.$other))
! cat ` + node.DefaultDir + `/*.token
! ls ` + node.DefaultDir + `
bbctl cat $BB_JOB_STRIPED/f
sleep 1
`
	var jobs []string
	for _, user := range []string{slurmtest.Alice, slurmtest.Bob} {
		jobs = append(jobs, s.Submit(user, script, "-w", "n2"))
	}
	for i, job := range jobs {
		s.completed(t, job)
		user := []string{slurmtest.Alice, slurmtest.Bob}[i]
		if got := s.Output(job); !strings.Contains(got, "600 "+user) || !strings.Contains(got, "\nmine\n") || !strings.Contains(got, "permission") {
			t.Errorf("%s's job: %s", user, got)
		}
		s.over(t, job, 1)
	}
}

// feature: without directives, the feature gives a buffer. Without both, there is none.
func feature(t *testing.T, s *site) {
	with := s.Submit(slurmtest.Alice, "echo $BB_JOB_STRIPED $FOREBAY_BUFFER\nbbctl ls $BB_JOB_STRIPED\n", "--constraint=forebay")
	without := s.Submit(slurmtest.Alice, "echo =$BB_JOB_STRIPED=\n")
	s.completed(t, with)
	s.completed(t, without)
	l := s.over(t, with, 1)[0]
	if got := s.Output(with); got != fmt.Sprintf("%s/%[2]s %[2]s\n", mountedBelow, l.Key) {
		t.Errorf("the one with the feature: %s", got)
	}
	if got := s.Output(without); got != "==\n" || len(s.runs(t, without)) != 0 {
		t.Errorf("the one without: %s", got)
	}
}

// failing: if a job fails, only stage-outs for any outcome are carried out.
func failing(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Bob, nil)
	job := s.Submit(slurmtest.Bob, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=file source=$BB_JOB_STRIPED/f destination=%[1]s/any on=any
#BB stage_out type=file source=$BB_JOB_STRIPED/f destination=%[1]s/success on=success
echo x | bbctl put - $BB_JOB_STRIPED/f
exit 3
`, out), "--comment=the user's own")
	if got := s.Wait(job); got["JobState"] != "FAILED" {
		t.Errorf("%v", got)
	}
	if l := s.over(t, job, 1)[0]; l.Succeeded {
		t.Errorf("it is taken for a success: %+v", l)
	}
	if text := s.Run(slurmtest.Bob, "scontrol", "show", "job", job); !strings.Contains(text, "\n   Comment=the user's own") {
		t.Errorf("the user's comment is gone: %s", text)
	}
	want(t, filepath.Join(out, "any"), "x\n")
	wantNothing(t, filepath.Join(out, "success"))
}

// requeued: the second run has a buffer of its own, and the first one's files are not lost.
func requeued(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%s
set -e
bbctl ls $BB_JOB_STRIPED
echo $SLURM_RESTART_COUNT | bbctl put - $BB_JOB_STRIPED/run.${SLURM_RESTART_COUNT:-0}
[ -n "$SLURM_RESTART_COUNT" ] || sleep 60
`, store), "-N2", "--requeue")
	s.Until("the first run has written", func() bool {
		list := s.runs(t, job)
		return len(list) == 1 && list[0].Buffer != "" && fileThere(t, s.admin, list[0].Key, "run.0")
	})
	s.Run(slurmtest.Alice, "scontrol", "requeue", job)
	s.Until("it runs again", func() bool { return len(s.runs(t, job)) == 2 })
	s.completed(t, job)
	s.over(t, job, 2)
	want(t, filepath.Join(store, "run.0"), "\n")
	want(t, filepath.Join(store, "run.1"), "1\n")
}

// stuck: a buffer that cannot be staged out is an orphan, which holds no node, until its store is
// there.
func stuck(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=file source=$BB_JOB_STRIPED/f destination=%s/store/f
echo x | bbctl put - $BB_JOB_STRIPED/f
`, out))
	s.completed(t, job)
	s.Until("what it has left is an orphan, that was tried again", func() bool {
		list := s.runs(t, job)
		return len(list) == 1 && list[0].State == admin.LifetimeOrphan && list[0].Attempt > 1 && strings.Contains(list[0].Reason, "store")
	})
	if text, err := s.Nodes[2].Bbctl("root", "orphans"); err != nil || !strings.Contains(text, "job-"+job+"-") {
		t.Errorf("orphans: %s (%v)", text, err)
	}
	s.Run(slurmtest.Alice, "mkdir", filepath.Join(out, "store"))
	s.over(t, job, 1)
	want(t, filepath.Join(out, "store", "f"), "x\n")
}

// late: if a job's buffer will not be on its slow store when its time is up, the job is warned,
// once. With more time it is not late any more.
func late(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	told := make(chan admin.Event, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	listening.Go(func() {
		for e, err := range admin.Events(ctx, s.admin, "") {
			if err == nil && e.Kind == admin.EventLate {
				told <- e
				return
			}
		}
	})
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%[1]s flush_limit=200KB warn=B:USR1@5
trap 'date >>%[1]s/.warned; srun -n1 true' USR1
mkdir %[1]s/.data
for i in $(seq 60); do head -c 1000000 /dev/zero >%[1]s/.data/f$i; done
bbctl put -r %[1]s/.data $BB_JOB_STRIPED/data || exit
while :; do sleep 0.2; done
`, store), "--time=2")
	warned := func() int {
		text, _ := os.ReadFile(filepath.Join(store, ".warned"))
		return strings.Count(string(text), "\n")
	}
	s.Until("it is warned", func() bool { return warned() > 0 })
	l := s.runs(t, job)[0]
	if limit := l.Due.Sub(l.Created); l.Warned.IsZero() || !l.MissesDeadline().After(l.Due) || limit < 90*time.Second || limit > 120*time.Second {
		t.Errorf("what is known of it: %+v", l)
	}
	select {
	case e := <-told:
		if e.Buffer != l.Key || e.Bytes == 0 || !strings.Contains(e.Reason, "time ends in") {
			t.Errorf("the event: %+v", e)
		}
	case <-time.After(30 * time.Second):
		t.Error("no event told of it")
	}
	s.Until("its output says so after a step", func() bool { return strings.Contains(s.Output(job), "forebay: the data of bb://"+l.Key) })
	s.Run("root", "scontrol", "update", "JobId="+job, "TimeLimit=60")
	s.Until("it is late no more", func() bool {
		l := s.runs(t, job)[0]
		return l.Due.Sub(l.Created) > 50*time.Minute && l.MissesDeadline().IsZero()
	})
	if n := warned(); n != 1 {
		t.Errorf("it was warned %d times", n)
	}
	s.Run(slurmtest.Alice, "scancel", "--full", job)
	if _, err := admin.EndLifetime(t.Context(), s.admin, l.Key, admin.EndOptions{Hurry: true}); err != nil {
		t.Error(err)
	}
	if l := s.over(t, job, 1)[0]; l.Losses.Total == 0 {
		t.Errorf("it had time to save everything: %+v", l)
	}
}

// steps: of a job with a flush rule, every fifth step and the newest one reach the store. The
// others are named, and are no loss.
func steps(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%s flush=step-*/=every-5,complete-with-done
set -e
for i in $(seq 7); do for f in rank-0 done; do echo state $i | bbctl put - $BB_JOB_STRIPED/step-$i/$f; done; done
`, store))
	s.completed(t, job)
	l := s.over(t, job, 1)[0]
	for i := 1; i <= 7; i++ {
		file := filepath.Join(store, fmt.Sprintf("step-%d", i), "rank-0")
		if i == 5 || i == 7 {
			want(t, file, fmt.Sprintf("state %d\n", i))
		} else {
			wantNothing(t, file)
		}
	}
	if l.Losses.Total != 0 || !l.Succeeded {
		t.Errorf("steps that a newer one superseded count as losses: %+v", l)
	}
	text, err := s.Nodes[0].Bbctl(slurmtest.Alice, "status", "--job", job)
	if err != nil || !strings.Contains(text, "/step-6, 2 files of 16 B: bb://"+l.Key+"/step-7 is complete") || !strings.Contains(text, "5 steps of bb://") {
		t.Errorf("the job's report: %s (%v)", text, err)
	}
}

func fileThere(t *testing.T, c *client.Client, buffer, name string) bool {
	t.Helper()
	_, err := c.Buffer(buffer).Stat(t.Context(), name)
	return err == nil
}

// cancelled: commits of a task that ignores TERM are staged out, up to the moment when it is
// killed.
func cancelled(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Bob, nil)
	job := s.Submit(slurmtest.Bob, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=directory source=$BB_JOB_STRIPED destination=%s/all
trap '' TERM
i=0
while :; do
	i=$((i+1))
	echo $i | bbctl put - $BB_JOB_STRIPED/f$i && echo $i >%[1]s/last.new && mv %[1]s/last.new %[1]s/last
	sleep 0.2
done
`, out))
	last := func() string {
		text, _ := os.ReadFile(filepath.Join(out, "last"))
		return strings.TrimSpace(string(text))
	}
	s.Until("it has written", func() bool { return last() != "" })
	s.Run(slurmtest.Bob, "scancel", "--full", job)
	s.Wait(job, "CANCELLED")
	s.over(t, job, 1)
	want(t, filepath.Join(out, "all", "f"+last()), last()+"\n")
}

// wrong: a job with a wrong directive, or without its input, is held with the reason. No
// node is taken out of service for that.
func wrong(t *testing.T, s *site) {
	for directives, reason := range map[string]string{
		"#BB jobbb type=scratch capacity=2N pool=memory\n":                                                     "capacity",
		"#BB jobbb type=scratch\n#BB stage_in type=file source=/nonexistent/x destination=$BB_JOB_STRIPED/x\n": "nonexistent",
		"#BB persistentbb name=nobodys\n":                                                                      "nobodys",
		"#BB jobbb type=scratch backing=/root/x\n":                                                             "/root",
	} {
		job := s.Submit(slurmtest.Alice, directives+"echo ran\n", "-N2")
		var now map[string]string
		s.Until("job "+job+" is held", func() bool {
			now = s.Job(job)
			return now["JobState"] == "PENDING" && now["Priority"] == "0"
		})
		text := s.Run(slurmtest.Alice, "scontrol", "show", "job", job)
		if !strings.Contains(text, "AdminComment=forebay: ") || !strings.Contains(text, reason) || strings.Contains(s.Output(job), "ran") {
			t.Errorf("%s: %s\n%s", directives, text, s.Output(job))
		}
		s.Run(slurmtest.Alice, "scancel", job)
		s.Until("nothing is left of job "+job, func() bool {
			for _, l := range s.runs(t, job) {
				if l.State != admin.LifetimeGone {
					return false
				}
			}
			return true
		})
	}
}

// interactive: --bb is understood. A job that cannot be held is cancelled.
func interactive(t *testing.T, s *site) {
	out, err := s.Try(slurmtest.Alice, "srun", "-N2", "--bb=#BB jobbb type=scratch", "sh", "-c", "bbctl ls $BB_JOB_STRIPED && echo $BB_JOB_STRIPED")
	if err != nil || strings.Count(out, mountedBelow+"/job-") != 2 {
		t.Errorf("%s (%v)", out, err)
	}
	out, err = s.Try(slurmtest.Alice, "srun", "--bb=#BB jobbb type=scratch capacity=1.5GiB pool=memory", "true")
	if err == nil {
		t.Errorf("a wrong one ran: %s", out)
	}
}

// persistent: a buffer outlives the job that makes it, and ends with the one that destroys it.
func persistent(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	first := s.Submit(slurmtest.Alice, fmt.Sprintf("#BB create_persistent name=kept capacity=64MiB access_mode=striped type=scratch pool=memory backing=%s\necho x | bbctl put - $BB_PERSISTENT_STRIPED_kept/f\n", store))
	s.completed(t, first)
	second := s.Submit(slurmtest.Alice, "#BB persistentbb name=kept\nbbctl cat $BB_PERSISTENT_STRIPED_kept/f\n", "--dependency=afterok:"+first)
	s.completed(t, second)
	if got := s.Output(second); got != "x\n" {
		t.Errorf("the second job: %s", got)
	}
	last := s.Submit(slurmtest.Alice, "#BB persistentbb name=kept\n#BB destroy_persistent name=kept\nbbctl cat $BB_PERSISTENT_STRIPED_kept/f\n")
	s.completed(t, last)
	s.over(t, last, 1)
	if _, err := admin.BufferInfo(t.Context(), s.admin, "kept"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("it is still there: %v", err)
	}
	want(t, filepath.Join(store, "f"), "x\n")
}

// prologFails: when its daemon is down, a node goes out of service with the reason, and its job is
// held. When both are repaired, the job runs.
func prologFails(t *testing.T, s *site) {
	prolog := filepath.Join(s.Dir, "etc", "prolog")
	text, err := os.ReadFile(prolog)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(prolog, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	defer write(string(text))
	write(strings.Replace(string(text), "--ready="+ready.String(), "--ready=1s", 1))
	s.Nodes[2].Daemon.Stop()
	job := s.Submit(slurmtest.Alice, "#BB jobbb type=scratch\nbbctl ls $BB_JOB_STRIPED && echo ran\n", "-w", "n3", "-N2")
	s.Until("the node is out of service", func() bool { return s.Drained()["n3"] != "" })
	s.Until("the job is held", func() bool { return s.Job(job)["Priority"] == "0" })
	s.Nodes[2].Daemon.Start()
	s.Run("root", "scontrol", "update", "NodeName=n3", "State=resume")
	s.Run("root", "scontrol", "release", job)
	s.completed(t, job)
	if got := s.Output(job); !strings.HasSuffix(got, "ran\n") {
		t.Errorf("it printed %q", got)
	}
	s.Until("nothing is left of it", func() bool {
		for _, l := range s.runs(t, job) {
			if l.State != admin.LifetimeGone {
				return false
			}
		}
		return true
	})
}

// killedInProlog: while a daemon does not answer, dies and comes back, a prolog waits for it.
func killedInProlog(t *testing.T, s *site) {
	d := s.Nodes[1].Daemon
	d.Pause()
	job := s.Submit(slurmtest.Alice, "#BB jobbb type=scratch\nbbctl ls $BB_JOB_STRIPED && echo ran\n", "-w", "n2")
	s.Until("the prolog waits", func() bool { return s.Job(job)["Reason"] == "Prolog" })
	time.Sleep(time.Second)
	d.Kill()
	d.Start()
	s.completed(t, job)
	if got := s.Output(job); !strings.HasSuffix(got, "ran\n") {
		t.Errorf("it printed %q", got)
	}
	s.over(t, job, 1)
}

// killedInJob: a job continues when the daemon is back, and nothing that it committed is lost.
func killedInJob(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%s
set -e
echo before | bbctl put - $BB_JOB_STRIPED/before
touch %[1]s/.written
while [ ! -e %[1]s/.back ]; do sleep 0.1; done
bbctl cat $BB_JOB_STRIPED/before
echo after | bbctl put - $BB_JOB_STRIPED/after
`, store), "-w", "n1")
	s.Until("it has written", func() bool { _, err := os.Stat(filepath.Join(store, ".written")); return err == nil })
	s.Nodes[0].Daemon.Kill()
	s.Nodes[0].Daemon.Start()
	s.Run(slurmtest.Alice, "touch", filepath.Join(store, ".back"))
	s.completed(t, job)
	s.over(t, job, 1)
	want(t, filepath.Join(store, "before"), "before\n")
	want(t, filepath.Join(store, "after"), "after\n")
}

// killedInEpilog: an epilog does not wait for an absent daemon, which gets its report when it is
// back.
func killedInEpilog(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%s
set -e
echo x | bbctl put - $BB_JOB_STRIPED/f
touch %[1]s/.written
while [ ! -e %[1]s/.go ]; do sleep 0.1; done
`, store), "-w", "n3")
	s.Until("it has written", func() bool { _, err := os.Stat(filepath.Join(store, ".written")); return err == nil })
	s.Nodes[2].Daemon.Kill()
	began := time.Now()
	s.Run(slurmtest.Alice, "touch", filepath.Join(store, ".go"))
	s.completed(t, job)
	s.Until("the node is idle", func() bool {
		return strings.TrimSpace(s.Run("root", "sinfo", "-h", "-n", "n3", "-o", "%T")) == "idle"
	})
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("the epilog held the node for %v", took)
	}
	s.Nodes[2].Daemon.Start()
	s.over(t, job, 1)
	want(t, filepath.Join(store, "f"), "x\n")
	s.Until("the note is gone", func() bool {
		return s.Nodes[2].Run("root", "sh", "-c", "ls "+node.DefaultDir+"/*.left 2>/dev/null || true") == ""
	})
}

// controllerKilled: slurmctld dies and comes back while a job runs.
func controllerKilled(t *testing.T, s *site) {
	out := s.folder(t, slurmtest.Bob, nil)
	job := s.Submit(slurmtest.Bob, fmt.Sprintf(`#BB jobbb type=scratch
#BB stage_out type=file source=$BB_JOB_STRIPED/f destination=%[1]s/f
set -e
touch %[1]s/runs
while [ ! -e %[1]s/go ]; do sleep 0.1; done
echo x | bbctl put - $BB_JOB_STRIPED/f
`, out), "-N2")
	s.Until("it runs", func() bool { _, err := os.Stat(filepath.Join(out, "runs")); return err == nil })
	s.saved(job)
	s.StopController(true)
	s.Run(slurmtest.Bob, "touch", filepath.Join(out, "go"))
	s.StartController()
	s.completed(t, job)
	s.over(t, job, 1)
	want(t, filepath.Join(out, "f"), "x\n")
}

// saved waits until slurmctld has saved its present state. Killed before that, it would start again
// a job that runs. It saves when something changes, and not again within 5 s.
func (s *site) saved(job string) {
	now := time.Now()
	s.Until("slurmctld has saved its state", func() bool {
		s.Run("root", "scontrol", "update", "JobId="+job, "Comment="+fmt.Sprint(time.Now().Unix()))
		time.Sleep(500 * time.Millisecond)
		state, err := os.Stat(filepath.Join(s.Dir, "state", "job_state"))
		return err == nil && state.ModTime().After(now)
	})
}

// held blocks a script of Slurm's at its beginning, for each job until there is a file, and returns
// functions that report the block, make that file, and end it all.
func (s *site) held(t *testing.T, script string) (at func(job string), release func(job string), end func()) {
	t.Helper()
	dir, path := t.TempDir(), filepath.Join(s.Dir, "etc", script)
	s.Run("root", "mv", path, path+".away")
	text := fmt.Sprintf("#!/bin/sh\n: >%[1]s/at.$SLURM_JOB_ID\nwhile [ ! -e %[1]s/go.$SLURM_JOB_ID ]; do sleep 0.1; done\nexec %[2]s.away\n", dir, path)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	at = func(job string) {
		t.Helper()
		s.Until("job "+job+" is in its "+script, func() bool { _, err := os.Stat(filepath.Join(dir, "at."+job)); return err == nil })
	}
	release = func(job string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "go."+job), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return at, release, func() { s.Run("root", "mv", path+".away", path) }
}

// heldInBoth: a job is cancelled while its prolog runs. slurmctld dies while the prolog of another
// runs, which requests its job from it, and the epilog of a third.
func heldInBoth(t *testing.T, s *site) {
	inProlog, prolog, end := s.held(t, "prolog")
	defer end()
	inEpilog, epilog, end2 := s.held(t, "epilog")
	defer end2()
	store := s.folder(t, slurmtest.Alice, nil)
	script := func(name string) string {
		return fmt.Sprintf("#BB jobbb type=scratch backing=%s\necho %[2]s | bbctl put - $BB_JOB_STRIPED/%[2]s\n", store, name)
	}
	cancelled := s.Submit(slurmtest.Alice, script("cancelled"), "-N2")
	starts := s.Submit(slurmtest.Alice, script("starts"), "-N2")
	ends := s.Submit(slurmtest.Alice, script("ends"), "-N2")
	for _, job := range []string{cancelled, starts, ends} {
		inProlog(job)
	}
	prolog(ends)
	s.Run(slurmtest.Alice, "scancel", cancelled)
	prolog(cancelled)
	epilog(cancelled)
	s.Wait(cancelled, "CANCELLED")
	inEpilog(ends)
	s.saved(starts)
	s.StopController(true)
	prolog(starts)
	epilog(ends)
	s.Until("the daemons know that the third job has left", func() bool {
		list := s.runs(t, ends)
		return len(list) == 1 && list[0].State != admin.LifetimeOpen
	})
	s.StartController()
	epilog(starts)
	for _, job := range []string{starts, ends} {
		s.completed(t, job)
		s.over(t, job, 1)
	}
	want(t, filepath.Join(store, "starts"), "starts\n")
	want(t, filepath.Join(store, "ends"), "ends\n")
	wantNothing(t, filepath.Join(store, "cancelled"))
	s.Until("nothing is left of the first job", func() bool {
		list := s.runs(t, cancelled)
		return len(list) == 0 || list[0].State == admin.LifetimeGone
	})
	s.Until("the nodes are idle", func() bool {
		return strings.Count(s.Run("root", "sinfo", "-h", "-N", "-o", "%N %T"), " idle") == 3
	})
}

// epilogLost: if a job's epilog never ran, the watch saves its files. As a sweep by hand, it leaves
// running jobs alone.
func epilogLost(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	epilog := filepath.Join(s.Dir, "etc", "epilog")
	if err := os.Rename(epilog, epilog+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(epilog, []byte("#!/bin/sh\nrm -f "+node.DefaultDir+"/*\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#BB jobbb type=scratch backing=%s\necho x | bbctl put - $BB_JOB_STRIPED/f\n", store)
	lost := s.Submit(slurmtest.Alice, script)
	s.completed(t, lost)
	if err := os.Rename(epilog+".away", epilog); err != nil {
		t.Fatal(err)
	}
	runs := s.Submit(slurmtest.Bob, fmt.Sprintf("#BB jobbb type=scratch\ntouch %[1]s/runs\nwhile [ ! -e %[1]s/go ]; do sleep 0.1; done\nbbctl ls $BB_JOB_STRIPED\n", s.folder(t, slurmtest.Bob, nil)), "-w", s.Job(lost)["BatchHost"])
	s.Until("it runs", func() bool { list := s.runs(t, runs); return len(list) == 1 && s.Job(runs)["Reason"] == "None" })
	s.Until("nothing is left of job "+lost, func() bool { return s.runs(t, lost)[0].State == admin.LifetimeGone })
	want(t, filepath.Join(store, "f"), "x\n")
	if out, err := s.Nodes[1].Bbctl("root", "slurm", "sweep"); err != nil || !strings.HasSuffix(out, "0 jobs ended\n") {
		t.Errorf("the sweep: %s (%v)", out, err)
	}
	if l := s.runs(t, runs)[0]; l.State != admin.LifetimeOpen {
		t.Errorf("a job that runs is %s", l.State)
	}
	s.Run(slurmtest.Bob, "scancel", runs)
	s.over(t, runs, 1)
}

// idsAgain: a slurmctld that has lost its state uses ids again. The jobs are not mistaken for the
// former ones.
func idsAgain(t *testing.T, s *site) {
	used := map[string]int{}
	for _, l := range s.runs(t, "") {
		used[l.Job]++
	}
	s.StopController(false)
	s.Run("root", "sh", "-c", "rm -rf "+s.Dir+"/state/*")
	s.StartController()
	s.Until("the nodes are back", func() bool {
		return strings.Count(s.Run("root", "sinfo", "-h", "-N", "-o", "%N %T"), " idle") == 3
	})
	for next := 1; used[fmt.Sprint(next)] == 0; next++ {
		s.Submit(slurmtest.Bob, "true\n")
	}
	// The output of the id's earlier job is another user's, perhaps.
	job := s.Submit(slurmtest.Bob, "#BB jobbb type=scratch\nbbctl ls $BB_JOB_STRIPED && echo ran\n", "-N3", "--output="+s.Work+"/again.%j")
	old := used[job]
	if old == 0 {
		t.Fatalf("id %s is new", job)
	}
	s.completed(t, job)
	want(t, filepath.Join(s.Work, "again."+job), "ran\n")
	s.Until("it is over", func() bool {
		list := s.runs(t, job)
		return len(list) == old+1 && list[0].State == admin.LifetimeGone && list[0].UID == slurmtest.BobUID
	})
}

// nodeLost: until a node that was lost with a job is declared gone, its dirty files are an orphan.
// Then they are in the bill, and the rest is saved.
func nodeLost(t *testing.T, s *site) {
	store := s.folder(t, slurmtest.Alice, nil)
	job := s.Submit(slurmtest.Alice, fmt.Sprintf(`#BB jobbb type=scratch backing=%[1]s flush_limit=10KB
set -e
echo here | bbctl put - $BB_JOB_STRIPED/here
srun -N1 -n1 -w n3 sh -c 'head -c 1000000 /dev/zero | bbctl put - $BB_JOB_STRIPED/there'
touch %[1]s/.written
sleep 600
`, store), "-w", "n1,n3", "-N2", "--no-requeue", "--output="+store+"/.out") // ids have begun again
	s.Until("it has written", func() bool {
		if state := s.Job(job)["JobState"]; state == "FAILED" {
			text, _ := os.ReadFile(filepath.Join(store, ".out"))
			t.Fatalf("the job failed: %s", text)
		}
		_, err := os.Stat(filepath.Join(store, ".written"))
		return err == nil
	})
	s.Nodes[2].Lose()
	s.Run("root", "scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=lost")
	if got := s.Wait(job); got["JobState"] != "NODE_FAIL" {
		t.Errorf("the job is %s", got["JobState"])
	}
	s.Until("what it has left is an orphan", func() bool {
		list := s.runs(t, job)
		return list[0].State == admin.LifetimeOrphan && strings.Contains(list[0].Reason, "n3")
	})
	if out, err := s.Nodes[0].Bbctl("root", "orphans"); err != nil || !strings.Contains(out, "job-"+job+"-") || !strings.Contains(out, "n3") {
		t.Errorf("orphans: %s (%v)", out, err)
	}
	if out, err := s.Nodes[0].Bbctl("root", "node", "forget", "n3", "--yes"); err == nil || !strings.Contains(out+err.Error(), "1 file is lost, of 977 KiB") {
		t.Fatalf("%s (%v)", out, err)
	}
	s.Until("nothing is left", func() bool { return s.runs(t, job)[0].State == admin.LifetimeGone })
	l := s.runs(t, job)[0]
	if l.Succeeded || l.Losses.Total != 1 || l.Losses.Bytes != 1000000 || !strings.HasSuffix(l.Losses.Files[0].Path, "/there") || !strings.Contains(l.Losses.Files[0].Reason, "n3") {
		t.Errorf("what is known of it: %+v", l)
	}
	want(t, filepath.Join(store, "here"), "here\n")
	wantNothing(t, filepath.Join(store, "there"))
	if out, err := s.Nodes[0].Bbctl("root", "orphans"); err != nil || strings.Contains(out, "job-") {
		t.Errorf("orphans: %s (%v)", out, err)
	}
}

// nodeEmptied: files of a node that is to be suspended move to another node, and only then is it
// handed to the site's program.
func nodeEmptied(t *testing.T, s *site) {
	there := s.dial(t, 1)
	if _, err := admin.CreateBuffer(t.Context(), there, admin.BufferSpec{Name: "left"}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Nodes[1].Try("root", "sh", "-c", "hostname | "+s.Bbctl+" put - bb://left/f"); err != nil {
		t.Fatal(out, err)
	}
	program, said, key := filepath.Join(s.Dir, "suspend"), filepath.Join(s.Work, "suspended"), filepath.Join(s.Work, "slurm.key")
	s.Run("root", "install", "-m", "0600", "-o", "slurm", filepath.Join(s.Nodes[0].Daemon.Dir, "key"), key)
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" >"+said+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// As SuspendProgram is called, by Slurm's user, where slurmctld is.
	out, err := s.Try("slurm", s.Bbctl, "--socket=tcp://127.0.0.11:7481", "--key-file="+key, "slurm", "empty", "--to=n1", "--then="+program, "n[2-3]")
	if err == nil || !strings.Contains(out, "n3 is not to go yet") {
		t.Errorf("a node that does not answer is taken for empty: %s (%v)", out, err)
	}
	want(t, said, "n2\n")
	e, err := s.admin.Buffer("left").Stat(t.Context(), "f")
	if err != nil || len(e.Holders) == 0 || e.Holders[0] != "n1" {
		t.Errorf("what was on n2: %+v (%v)", e, err)
	}
}
