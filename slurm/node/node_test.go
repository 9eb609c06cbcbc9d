package node

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/slurm"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJoined(t *testing.T) {
	if got := joined("#BB a", "#!/bin/sh\n#BB b\n"); got != "#!/bin/sh\n#BB a\n#BB b\n" {
		t.Errorf("with what --bb says: %q", got)
	}
}

func env(t *testing.T, more map[string]string) Env {
	t.Helper()
	values := map[string]string{
		"SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_ID": "12", "SLURM_JOB_USER": "alice", "SLURM_JOB_UID": "20001", "SLURM_JOB_GID": "20001",
		"SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_RESTART_COUNT": "1",
	}
	maps.Copy(values, more)
	e, err := ReadEnv(func(name string) string { return values[name] })
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestReadEnv(t *testing.T) {
	e := env(t, map[string]string{"SLURM_JOB_EXIT_CODE": "256"})
	if want := (Env{Cluster: "lab", Job: "12", User: "alice", UID: 20001, GID: 20001, Nodes: 3, Restarts: 1, Failed: true}); e != want {
		t.Errorf("%+v", e)
	}
	for expression, want := range map[string]bool{
		"forebay": true, "gpu&forebay": true, "[forebay|rack1]*2": true, "forebay2": false, "noforebay": false, "": false, "(gpu&(forebay))": true,
	} {
		if e := env(t, map[string]string{"SLURM_JOB_CONSTRAINTS": expression}); e.wants("forebay") != want {
			t.Errorf("%q wants the feature: %v", expression, !want)
		}
	}
	if e := env(t, map[string]string{"SLURM_JOB_CONSTRAINTS": "x"}); e.wants("") {
		t.Error("no feature is wanted")
	}
	if _, err := ReadEnv(func(string) string { return "" }); bb.KindOf(err) != bb.Invalid {
		t.Errorf("outside of Slurm: %v", err)
	}
}

func TestDue(t *testing.T) {
	now := time.Now().Round(0)
	for _, x := range []struct {
		limit, ran time.Duration
		warn       string
		want       time.Duration // 0: none
	}{
		{time.Hour, 10 * time.Minute, "", 50 * time.Minute},
		{time.Hour, 10 * time.Minute, "B:USR1@60", 49 * time.Minute},
		{time.Minute, 2 * time.Minute, "", -time.Minute},
		{0, 10 * time.Minute, "USR1@60", 0},
	} {
		want := time.Time{}
		if x.want != 0 {
			want = now.Add(x.want)
		}
		if got := due(&slurmctl.Job{TimeLimit: x.limit, RunTime: x.ran}, x.warn, now); !got.Equal(want) {
			t.Errorf("%+v: %v", x, got.Sub(now))
		}
	}
}

// TestKey: runs that share a job's id differ, and all nodes of one agree.
func TestKey(t *testing.T) {
	keys := map[string]bool{}
	for _, cluster := range []string{"a", "b"} {
		for _, submitted := range []string{"2026-11-21T17:42:42", "2026-11-21T17:42:43"} {
			for restarts := range 2 {
				k := slurm.RunKey(cluster, "4294967295", restarts, submitted)
				if keys[k] || slurm.RunKey(cluster, "4294967295", restarts, submitted) != k || bb.CheckBufferName(k) != nil {
					t.Errorf("%s", k)
				}
				keys[k] = true
			}
		}
	}
}

func TestLifetime(t *testing.T) {
	e, j := env(t, nil), slurmctl.Job{Submitted: "now", Name: "run"}
	const script = `#!/bin/sh
#BB jobbb type=scratch capacity=1GiB pool=memory backing=/lustre/%u
#BB create_persistent name=made type=scratch
#BB persistentbb name=used
#BB destroy_persistent name=old hurry
#BB stage_in type=file source=/a destination=$BB_JOB_STRIPED/a on_error=continue
#BB stage_out type=file source=$BB_PERSISTENT_STRIPED_used/b destination=/b.%j on=success
`
	r, problems := directive.Parse([]byte(script), directive.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	v := vars(&e, &j)
	l, create, err := lifetime(&e, &j, r, v)
	if err != nil {
		t.Fatal(err)
	}
	if l.Key != l.Buffer || l.ExpectedNodes != 3 || l.UID != 20001 || l.Job != "12" || l.Cluster != "lab" || strings.Join(l.Uses, " ") != "used made" {
		t.Errorf("%+v", l)
	}
	if len(create) != 2 || create[0].Name != l.Key || create[0].Backing != "file:///lustre/alice" || create[0].Capacity != 1<<30 || create[1].Name != "made" {
		t.Errorf("to create: %+v", create)
	}
	if len(l.In) != 1 || l.In[0] != (admin.LifetimeStage{Buffer: l.Key, Path: "a", URL: "file:///a", ContinueOnError: true}) {
		t.Errorf("in: %+v", l.In)
	}
	if len(l.Out) != 1 || l.Out[0] != (admin.LifetimeStage{Buffer: "used", Path: "b", URL: "file:///b.12", OnSuccess: true}) {
		t.Errorf("out: %+v", l.Out)
	}
	if len(l.Destroys) != 1 || l.Destroys[0] != (admin.LifetimeEnd{Buffer: "old", Discard: true}) {
		t.Errorf("to destroy: %+v", l.Destroys)
	}
}

func TestTokenLife(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{
		time.Hour: time.Hour + afterTheEnd, 30 * 24 * time.Hour: longestToken, 365 * 24 * time.Hour: longestToken, 0: longestToken,
	} {
		if got := tokenLife(limit); got != want {
			t.Errorf("%v: %v, want %v", limit, got, want)
		}
	}
}

func testConfig(t *testing.T) *Config {
	t.Helper()
	c := DefaultConfig()
	c.Dir = filepath.Join(t.TempDir(), "slurm")
	c.Log = t.Logf
	return &c
}

// TestNotes: a node's notes of runs survive. When another run comes, a run that left without an
// epilog is put aside.
func TestNotes(t *testing.T) {
	c := testConfig(t)
	if err := c.makeDir(); err != nil {
		t.Fatal(err)
	}
	e := env(t, nil)
	for _, k := range []string{"job-12-a", "job-12-a", "job-12-b"} {
		if err := c.noteRun(&e, k); err != nil {
			t.Fatal(err)
		}
	}
	n, err := readNote(c.file("12", noteSuffix))
	if err != nil || n.Key != "job-12-b" {
		t.Errorf("%+v (%v)", n, err)
	}
	if left := c.left(); len(left) != 1 || left[0].Key != "job-12-a" {
		t.Errorf("put aside: %+v", left)
	}
	if err := os.WriteFile(c.file("job-x", leftSuffix), []byte(`{"key":"../../x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file("job-y", leftSuffix), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if left := c.left(); len(left) != 1 {
		t.Errorf("with garbage: %+v", left)
	}
	if err := os.Chmod(c.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := c.makeDir(); bb.KindOf(err) != bb.Permission {
		t.Errorf("a folder that anybody may write: %v", err)
	}
}

// TestEpilogWithoutDaemon: it ends in time, well, and leaves a note. The tasks' files are gone.
func TestEpilogWithoutDaemon(t *testing.T) {
	c := testConfig(t)
	e := env(t, map[string]string{"SLURM_JOB_EXIT_CODE": "9"})
	if err := c.makeDir(); err != nil {
		t.Fatal(err)
	}
	if err := c.noteRun(&e, "job-12-a"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{envSuffix, tokenSuffix} {
		if err := os.WriteFile(c.file("12", suffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	away := func(ctx context.Context, _ time.Duration) (*client.Client, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if later := Epilog(t.Context(), c, &e, away); !later {
			t.Error("nobody is to tell the daemon later")
		}
		if took := time.Since(began); took > c.Epilog {
			t.Errorf("it took %v", took)
		}
	})
	left := c.left()
	if len(left) != 1 || left[0].Key != "job-12-a" || !left[0].Failed {
		t.Errorf("the note: %+v", left)
	}
	for _, suffix := range []string{envSuffix, tokenSuffix, noteSuffix} {
		if _, err := os.Stat(c.file("12", suffix)); err == nil {
			t.Errorf("%s is still there", suffix)
		}
	}
	if Epilog(t.Context(), c, &e, away) {
		t.Error("a second epilog has something to say")
	}
}

// TestEpilogOfRequeued: the epilog of a run that Slurm will start again lasts until slurmd has
// dropped the run. No other one waits.
func TestEpilogOfRequeued(t *testing.T) {
	c := testConfig(t)
	if err := c.makeDir(); err != nil {
		t.Fatal(err)
	}
	away := func(context.Context, time.Duration) (*client.Client, error) { panic("nobody is to be asked") }
	for _, x := range []struct {
		run   string // note of the prolog
		now   string // SLURM_JOB_RESTART_COUNT in the epilog
		waits bool
	}{{"0\n", "0", false}, {"1\n", "1", false}, {"0\n", "1", true}, {"", "1", false}} {
		if err := os.WriteFile(c.file("12", runSuffix), []byte(x.run), 0o600); err != nil {
			t.Fatal(err)
		}
		e := env(t, map[string]string{"SLURM_JOB_RESTART_COUNT": x.now})
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			Epilog(t.Context(), c, &e, away)
			if took := time.Since(began); x.waits != (took >= requeueSettles) || took > c.Epilog {
				t.Errorf("%+v: it took %v", x, took)
			}
		})
		if _, err := os.Stat(c.file("12", runSuffix)); err == nil {
			t.Error("what the prolog left is still there")
		}
	}
}

func TestTaskProlog(t *testing.T) {
	c := testConfig(t)
	if err := c.makeDir(); err != nil {
		t.Fatal(err)
	}
	if _, err := TaskProlog(t.Context(), c, "../12", nil); bb.KindOf(err) != bb.Invalid {
		t.Errorf("no job: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(5 * time.Second)
			writeFile(c.file("12", openingSuffix), nil, os.Geteuid(), os.Getegid())
			time.Sleep(time.Hour)
			writeFile(c.file("12", envSuffix), []byte("A=b c\nD=$(x)\n"), os.Geteuid(), os.Getegid())
		}()
		text, err := TaskProlog(t.Context(), c, "12", nil)
		if err != nil || text != "export A=b c\nexport D=$(x)\n" {
			t.Errorf("%q (%v)", text, err)
		}
		began := time.Now()
		if text, err := TaskProlog(t.Context(), c, "13", nil); err != nil || text != "" || time.Since(began) < prologBegins {
			t.Errorf("without a prolog: %q (%v)", text, err)
		}
	})
}

// TestDirectories: a job whose buffer is mounted gets its directory in the variables of DataWarp, whether the site or the job has set them.
func TestDirectories(t *testing.T) {
	address := []string{"BB_JOB_STRIPED=bb://job-1-a", "BB_JOB_ckpt=bb://job-1-a", "DW_JOB_STRIPED=bb://job-1-a", "BB_PERSISTENT_STRIPED_x=bb://x", "FOREBAY_BUFFER=job-1-a"}
	others := []string{"MINE=bb://job-1-a", "BB_JOB_other=bb://job-2-b", "FOREBAY_DIR=/of/a/parent"}
	directory := []string{"BB_JOB_STRIPED=/bb/job-1-a", "BB_JOB_ckpt=/bb/job-1-a", "DW_JOB_STRIPED=/bb/job-1-a"}
	dir := "FOREBAY_DIR=/bb/job-1-a"
	for name, of := range map[string]struct{ left, environ, want []string }{
		"none":             {[]string{""}, others, []string{""}},
		"not mounted":      {address, others, address},
		"by a prolog":      {slices.Concat(address, []string{dir}), others, slices.Concat(address[3:], []string{dir}, directory)},
		"by both":          {[]string{dir}, slices.Concat(others, address), slices.Concat([]string{dir}, directory)},
		"in a step":        {[]string{dir}, slices.Concat(directory, address[4:]), []string{dir}},
		"no job's buffer":  {[]string{dir}, others, []string{dir}},
		"lua, not mounted": {[]string{""}, slices.Concat(others, address), []string{""}},
	} {
		if got := directories(of.left, of.environ); !slices.Equal(got, of.want) {
			t.Errorf("%s: %q, not %q", name, got, of.want)
		}
	}
}

func TestTroubles(t *testing.T) {
	l := admin.Lifetime{Job: "7", Buffer: "job-7-x", Due: time.Now(), Nodes: []admin.Attachment{{Node: "a", Attached: true}, {Node: "b", Attached: true}}}
	if lines := troubles(&l, 0); len(lines) != 0 {
		t.Errorf("nothing is wrong: %q", lines)
	}
	l.Nodes[1].MissesDeadline = l.Due.Add(time.Hour)
	l.Nodes[0].Usage = admin.Usage{Failures: 3, Blocked: 11}
	lines := troubles(&l, 2)
	for i, want := range []string{"bb://job-7-x: 2 files are lost", "will be on its store at", "3 attempts", "waited 11 s"} {
		if len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Errorf("%q is not said: %q", want, lines)
		}
	}
}

func TestWrappers(t *testing.T) {
	w := Wrappers("/opt/it's/bbctl", "/usr/bin:/bin", []string{"--default=type=scratch capacity=1GiB", "--dir=/x"}, []string{"--dir=/x"})
	if len(w) != 4 || !strings.Contains(w[0].Text, `exec '/opt/it'\''s/bbctl' slurm prolog '--default=type=scratch capacity=1GiB' --dir=/x`) {
		t.Errorf("%+v", w)
	}
	if !strings.HasSuffix(w[1].Text, "exit 0\n") || !strings.Contains(w[2].Text, "task-prolog --dir=/x\n") {
		t.Errorf("%s%s", w[1].Text, w[2].Text)
	}
	conf := SlurmConf("/etc/slurm/forebay", w, "forebay")
	for _, line := range []string{"Prolog=/etc/slurm/forebay/prolog\n", "TaskProlog=/etc/slurm/forebay/task-prolog\n", "PrologFlags=Alloc\n"} {
		if !strings.Contains(conf, line) {
			t.Errorf("%q is not in\n%s", line, conf)
		}
	}
	dir := t.TempDir()
	if _, err := Install(dir, w); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "epilog")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("%v (%v)", info, err)
	}
}

// TestDocs follows docs/slurm.md's installation, in a folder of the test's own.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	const folder = "/etc/slurm/forebay"
	to, commands := t.TempDir(), 0
	for line := range strings.Lines(string(page)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "bbctl slurm install") {
			continue
		}
		commands++
		out, err := exec.CommandContext(t.Context(), bbdtest.Bbctl(t), append(words[1:], "--to", to)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		_, conf, _ := strings.Cut(strings.ReplaceAll(string(out), to, folder), "# for slurm.conf:\n")
		conf, unit, _ := strings.Cut(conf, "# and at each NodeName: Features=forebay\n# and on the nodes: ")
		if indented := strings.ReplaceAll(conf, "\n", "\n   "); conf == "" || !strings.Contains(string(page), "   "+strings.TrimSuffix(indented, "   ")) {
			t.Errorf("slurm.conf needs other lines than the page says: %s", conf)
		}
		if unit == "" || !strings.Contains(string(page), unit) {
			t.Errorf("the page does not say %q", unit)
		}
	}
	if commands != 2 {
		t.Errorf("the page has %d commands", commands)
	}
	for _, name := range []string{"prolog", "epilog", "task-prolog", "task-epilog", UnitName} {
		if _, err := os.Stat(filepath.Join(to, name)); err != nil {
			t.Error(err)
		}
	}
}
