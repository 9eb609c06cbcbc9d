package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm/slurmctl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKeys shows that each run of a job has another key, and each of its lifetimes.
func TestKeys(t *testing.T) {
	a := slurmctl.Job{ID: "7", Submitted: "t1"}
	names := map[string]bool{keyOf(&a, "other"): true}
	for _, j := range []slurmctl.Job{a, {ID: "7", Submitted: "t2"}, {ID: "7", Submitted: "t1", Restarts: 1}, {ID: "8", Submitted: "t1"}} {
		names[keyOf(&j, "c")] = true
	}
	if len(names) != 5 {
		t.Errorf("two runs have the same key: %v", names)
	}
	base := keyOf(&a, "c")
	for key, want := range map[string]int{base: 1, base + "-2": 2, base + "-12": 12, base + "-1": 0, base + "2": 0, base + "-": 0, base + "-x": 0, "": 0, keyOf(&a, "d"): 0} {
		if got := attemptOf(key, base); got != want {
			t.Errorf("%s is %d, not %d", key, got, want)
		}
		if want > 0 && attemptKey(base, want) != key {
			t.Errorf("the key of attempt %d is %s, not %s", want, attemptKey(base, want), key)
		}
		if want > 0 && bb.CheckBufferName(key) != nil {
			t.Errorf("%s is no buffer's name", key)
		}
	}
}

// TestAbandoned shows that a job is abandoned that waits for a hook that has not run for so long,
// and no other.
func TestAbandoned(t *testing.T) {
	h := &Hooks{Settings: Settings{Folder: t.TempDir()}}
	hookRuns := func(within time.Duration) bool { return h.hookRuns("1", within) }
	if hookRuns(time.Hour) {
		t.Error("a job that no hook was ever at work for counts as one with a hook")
	}
	leave, again := h.lockHook("1"), h.lockHook("1")
	if key := h.rememberedKey("1"); key != "" {
		t.Errorf("a job that was not set up has key %s", key)
	}
	for _, key := range []string{"job-1-abcdef", "job-1-a"} {
		if err := h.rememberKey("1", key); err != nil || h.rememberedKey("1") != key {
			t.Errorf("%s, not %s (%v)", h.rememberedKey("1"), key, err)
		}
	}
	leave()
	if !hookRuns(0) {
		t.Error("no hook runs for a job whose second hook is at work")
	}
	again()
	if hookRuns(0) || !hookRuns(time.Hour) {
		t.Error("a hook runs for a job for ever, or not between two hooks")
	}
	jobs := []slurmctl.Job{
		{ID: "1", State: "PENDING", Buffers: "staging-in"},
		{ID: "2", State: "PENDING", Buffers: "teardown"},
		{ID: "3", State: "PENDING", Buffers: "staged-in"},
		{ID: "4", State: "RUNNING", Buffers: "running"},
		{ID: "5", State: "PENDING"},
		{ID: "6", State: "COMPLETED", Buffers: "staging-out"},
		{ID: "7", State: "PENDING", Buffers: "staging-in"},
	}
	at := func(job string) bool { return job == "7" }
	now := time.Now()
	list, since := abandoned(jobs, at, nil, now, time.Minute)
	if len(list) != 0 || len(since) != 2 {
		t.Errorf("at first sight: %v, %v", list, since)
	}
	jobs[1].Buffers = "complete"
	list, since = abandoned(jobs, at, since, now.Add(time.Minute), time.Minute)
	if len(list) != 1 || list[0].ID != "1" || len(since) != 1 {
		t.Errorf("after a minute: %v, %v", list, since)
	}
	if err := h.dropFiles(map[string]*slurmctl.Job{"1": nil}, now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.lockFile("1")); err == nil {
		t.Error("the lock of a job that Slurm does not know is kept")
	}
}

func TestFinishable(t *testing.T) {
	now := time.Now()
	job := slurmctl.Job{ID: "7", Submitted: "a", State: "STAGE_OUT"}
	key := keyOf(&job, "c")
	gone := admin.Lifetime{Key: key, Job: "7", Cluster: "c", SchedulerManaged: true, State: admin.LifetimeGone, Gone: now.Add(-time.Minute)}
	open, other := gone, gone
	open.Key, open.State = key+"-2", admin.LifetimeOpen
	other.Key = "job-7-0badcafe"
	completing := job
	completing.State = "COMPLETING"
	at := func(yes bool) func(string) bool { return func(string) bool { return yes } }
	for name, c := range map[string]struct {
		job      slurmctl.Job
		lives    []admin.Lifetime
		hookRuns bool
		quiet    time.Duration
		want     int
	}{
		"over":                 {job, []admin.Lifetime{gone}, false, time.Minute, 1},
		"just over":            {job, []admin.Lifetime{gone}, false, time.Hour, 0},
		"a hook is at work":    {job, []admin.Lifetime{gone}, true, time.Minute, 0},
		"its epilogs run":      {completing, []admin.Lifetime{gone}, false, time.Minute, 0},
		"a later one is open":  {job, []admin.Lifetime{open, gone}, false, time.Minute, 0},
		"that of another run":  {job, []admin.Lifetime{other}, false, time.Minute, 0},
		"nothing is known yet": {job, nil, false, time.Minute, 0},
	} {
		if got := finishable([]slurmctl.Job{c.job}, c.lives, "c", at(c.hookRuns), now, c.quiet); len(got) != c.want || c.want == 1 && got[key] != "7" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestGranted(t *testing.T) {
	got := grantedOf([]admin.Lifetime{
		{SchedulerManaged: true, Pool: "memory", Granted: 5, State: admin.LifetimeOpen},
		{SchedulerManaged: true, Pool: "memory", Granted: 7, State: admin.LifetimeOrphan},
		{SchedulerManaged: true, Pool: "disk", Granted: 1, State: admin.LifetimeDraining},
		{SchedulerManaged: true, Pool: "disk", Granted: 100, State: admin.LifetimeGone},
		{Pool: "disk", Granted: 100, State: admin.LifetimeOpen},
	})
	if want := map[string]int64{"memory": 12, "disk": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// TestUsageInComments shows that figures replace figures alone, and no other words.
func TestUsageInComments(t *testing.T) {
	l := admin.Lifetime{Nodes: []admin.Attachment{{Usage: admin.Usage{Absorbed: 4 << 20, Blocked: 0.25, PeakDirty: 3, Failures: 2}}}}
	line := UsageLine(&l)
	if want := "absorbed=4194304 peak_dirty=3 blocked_seconds=0.2 flush_failures=2 saved_seconds=unknown"; line != want {
		t.Errorf("%s", line)
	}
	l.Nodes[0].Usage.Flushed, l.Nodes[0].Usage.Flushing = 1<<20, 1
	if got := UsageLine(&l); !strings.HasSuffix(got, " saved_seconds=3.8") {
		t.Errorf("%s", got)
	}
	for comment, want := range map[string]string{
		"":                                       "forebay: " + line,
		"forebay: absorbed=1 saved_seconds=0":    "forebay: " + line,
		"forebay: setup: private is ignored; so": "forebay: " + line + "; setup: private is ignored; so",
		"forebay: absorbed=1; setup: x":          "forebay: " + line + "; setup: x",
		"the site's own":                         "",
	} {
		if got, ours := WithUsage(comment, line); ours != (want != "") || ours && got != want {
			t.Errorf("%q became %q", comment, got)
		}
	}
}

func TestPools(t *testing.T) {
	s := &Settings{Pools: []string{"memory", "disk"}, Granule: 10}
	nodes := []admin.Node{
		{State: "ready", Memory: admin.TierUsage{Capacity: 100, Dirty: 25}, Disk: admin.TierUsage{Capacity: 1005}},
		{State: "ready", Memory: admin.TierUsage{Capacity: 100}},
		{State: "dead", Memory: admin.TierUsage{Capacity: 1000}},
		{State: "ready", Refused: "too old", Memory: admin.TierUsage{Capacity: 1000}},
	}
	for _, c := range []struct {
		granted int64
		want    []Pool
	}{
		{0, []Pool{{"memory", "bytes", 10, 20, 17}, {"disk", "bytes", 10, 100, 100}}},
		{90, []Pool{{"memory", "bytes", 10, 20, 11}, {"disk", "bytes", 10, 100, 100}}},
		{900, []Pool{{"memory", "bytes", 10, 20, 0}, {"disk", "bytes", 10, 100, 100}}},
	} {
		if got := poolsOf(nodes, map[string]int64{"memory": c.granted}, s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d granted: %+v", c.granted, got)
		}
	}
}

func TestSettings(t *testing.T) {
	s := testSettings(t.TempDir())
	s.Profiles = map[string]string{"fast": "backing=/x replicas=2"}
	s.Env = []string{"A=b c"}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSettings(s.Folder)
	if err != nil || !reflect.DeepEqual(got, *s) {
		t.Errorf("%+v %v", got, err)
	}
	bad := Settings{
		Folder: "x", Prefixes: []string{"BB", "DW"}, Pools: []string{"tape"}, Default: "disk", Profiles: map[string]string{"p": "replicas=3"}, Env: []string{"A"}, StageInLimit: -1,
	}
	err = bad.Validate()
	for _, what := range []string{"absolute", "no name", "BB or DW", "tape", "disk", "bbctl", "granularity", "stage_in_limit", "NAME=value", "profile p"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s is not named: %v", what, err)
		}
	}
	if _, err := ReadSettings(t.TempDir()); bb.KindOf(err) != bb.NotFound || !strings.Contains(err.Error(), "install-lua") {
		t.Errorf("%v", err)
	}
}

func TestInstall(t *testing.T) {
	conf := t.TempDir()
	s := testSettings(filepath.Join(t.TempDir(), "new"))
	for range 2 {
		said, err := s.Install(conf)
		if err != nil || len(said) < 4 {
			t.Fatal(said, err)
		}
	}
	own := []byte("-- the site's own\n")
	if err := os.WriteFile(filepath.Join(conf, "job_submit.lua"), own, 0o644); err != nil {
		t.Fatal(err)
	}
	said, err := s.Install(conf)
	if err != nil || !strings.Contains(said[len(said)-1], "dofile") {
		t.Errorf("%v %v", said, err)
	}
	if text, _ := os.ReadFile(filepath.Join(conf, "job_submit.lua")); string(text) != string(own) {
		t.Errorf("the site's job_submit.lua was replaced by %q", text)
	}
}

// TestFailedSaysWhyFirst shows that the reason stands where Slurm cuts.
func TestFailedSaysWhyFirst(t *testing.T) {
	err := bb.Wrap("stage-in", "bb://job-7/in", bb.E(bb.NotFound, "list", "/lustre/in", "there is nothing under this name").WithRemedy("look"))
	if a := failed(err); a.State != stateFailed || a.Message != "not found: there is nothing under this name: stage-in bb://job-7/in (look)" {
		t.Errorf("%+v", a)
	}
	if a := failed(errors.New("a\nb\x00" + strings.Repeat("x", 1000))); strings.ContainsAny(a.Message, "\n\x00") || len(a.Message) > 400 {
		t.Errorf("%+v", a)
	}
}
