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

	"forebay/client"
	"forebay/internal/bb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shown = `JobId=12 ArrayJobId=10 ArrayTaskId=2 JobName=my job = x
   UserId=ann(1000) GroupId=staff(50) MCS_label=N/A
   JobState=STAGE_OUT Reason=burst_buffer/lua:_Stage-out_in_progress Dependency=(null)
   Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=1-00:00:05 TimeLimit=2-00:00:00 TimeMin=N/A
   SubmitTime=2026-11-21T17:46:58 EligibleTime=2026-11-21T17:46:58
   WorkDir=/home/ann/a b
   BurstBuffer=#BB jobbb capacity=1G pool=memory
   BurstBufferState=staging-out

JobId=13 JobName=x
   UserId=bob(1001) GroupId=bob(1001) MCS_label=N/A
   RunTime=00:01:00 TimeLimit=00:01:00 TimeMin=N/A
   JobState=COMPLETING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
`

func TestParseJobs(t *testing.T) {
	jobs := ParseJobs(shown)
	want := []JobInfo{
		{
			ID: "12", ArrayJob: "10", ArrayTask: "2", Name: "my job = x", User: "ann", UID: 1000, GID: 50, WorkDir: "/home/ann/a b",
			State: "STAGE_OUT", Submitted: "2026-11-21T17:46:58", Restarts: 3, ExitCode: "0:0",
			RunTime: 24*time.Hour + 5*time.Second, TimeLimit: 48 * time.Hour, Buffers: "staging-out",
		},
		{
			ID: "13", Name: "x", User: "bob", UID: 1001, GID: 1001, State: "COMPLETING", ExitCode: "0:0", RunTime: time.Minute, TimeLimit: time.Minute,
		},
	}
	if !reflect.DeepEqual(jobs, want) {
		t.Errorf("%+v", jobs)
	}
	if !jobs[0].endedWell() || jobs[1].endedWell() {
		t.Error("who ended well? one whose time was up did not")
	}
	if none := ParseJobs("No jobs in the system\n"); len(none) != 0 {
		t.Errorf("%+v", none)
	}
}

// TestBufferNames shows that each life of a job has another buffer.
func TestBufferNames(t *testing.T) {
	a := JobInfo{ID: "7", Submitted: "t1"}
	names := map[string]bool{}
	for _, j := range []JobInfo{a, {ID: "7", Submitted: "t2"}, {ID: "7", Submitted: "t1", Restarts: 1}, {ID: "8", Submitted: "t1"}} {
		name := j.bufferName("c")
		if err := bb.CheckBufferName(name); err != nil || !strings.HasPrefix(name, JobBufferPrefix) {
			t.Errorf("%s: %v", name, err)
		}
		names[name] = true
	}
	names[a.bufferName("other")] = true
	if len(names) != 5 {
		t.Errorf("two lives have the same buffer: %v", names)
	}
}

func TestCheckJobID(t *testing.T) {
	for _, id := range []string{"", "0", "07", "-1", "1_2", "../1", "1 ", "99999999999"} {
		if CheckJobID(id) == nil {
			t.Errorf("%q was taken", id)
		}
	}
	if err := CheckJobID("4294967295"); err != nil {
		t.Error(err)
	}
}

// TestRecords shows that the lives of a job do not overwrite each other.
func TestRecords(t *testing.T) {
	rs := records{t.TempDir()}
	life := func(submitted string) *record {
		return &record{
			Job: JobInfo{ID: "7", Submitted: submitted}, Buffer: "job-7-" + submitted, Stages: map[string]stage{}, Created: time.Now().Round(0).UTC(),
		}
	}
	first := life("a")
	if err := rs.begin(first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rs.env("7"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := life("a")
	if err := rs.begin(again); err != nil || !again.Created.Equal(first.Created) {
		t.Errorf("setup done again: %v, made %v and %v", err, first.Created, again.Created)
	}
	// Two verbs of a life write at the same time.
	other, err := rs.load("7")
	if err != nil {
		t.Fatal(err)
	}
	h := &Hooks{Settings: Settings{Folder: rs.dir}}
	if err := errors.Join(h.mark(other, "teardown", stateDone, ""), h.mark(again, "data-out", stateFailed, "x")); err != nil {
		t.Fatal(err)
	}
	if now, err := rs.load("7"); err != nil || !now.over() || now.Stages["data-out"].Message != "x" {
		t.Errorf("one verb has overwritten another: %+v %v", now, err)
	}
	delete(again.Stages, "teardown")
	if err := rs.save(again); err != nil {
		t.Fatal(err)
	}
	second := life("b")
	if err := rs.begin(second); err != nil {
		t.Fatal(err)
	}
	// A verb of the first life still runs.
	first.Stages["data-out"] = stage{State: stateDone}
	if err := errors.Join(rs.save(first), rs.dropEnv(first)); err != nil {
		t.Fatal(err)
	}
	if now, err := rs.load("7"); err != nil || now.Buffer != "job-7-b" {
		t.Errorf("%+v %v", now, err)
	}
	if _, err := os.Stat(rs.env("7")); err != nil {
		t.Errorf("the second life's variables: %v", err)
	}
	live, err := rs.live()
	if err != nil || len(live) != 2 {
		t.Errorf("%d live: %v", len(live), err)
	}
	old, _ := rs.all("old")
	for file, r := range old {
		if !r.done("data-out") {
			t.Errorf("%s has not seen it", file)
		}
		r.Stages["teardown"] = stage{State: stateDone}
		if err := rs.save(r); err != nil {
			t.Fatal(err)
		}
	}
	if live, err = rs.live(); err != nil || len(live) != 1 || len(old) != 1 {
		t.Errorf("%d live, %d put aside: %v", len(live), len(old), err)
	}
	// A damaged record is named, and in nobody's way.
	if err := os.WriteFile(filepath.Join(rs.dir, "9.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := rs.all(""); err == nil || !strings.Contains(err.Error(), "9.json") || len(list) != 1 {
		t.Errorf("%d, %v", len(list), err)
	}
	if _, err := rs.load("../7"); bb.KindOf(err) != bb.Invalid {
		t.Errorf("%v", err)
	}
}

func TestVerdict(t *testing.T) {
	now := time.Now()
	long := now.Add(-2 * Quiet)
	of := func(stages map[string]stage, seen time.Time) *record {
		return &record{Job: JobInfo{ID: "7", Submitted: "a"}, Stages: stages, Created: long, seen: seen}
	}
	job := func(submitted, state string) *JobInfo { return &JobInfo{ID: "7", Submitted: submitted, State: state} }
	for name, c := range map[string]struct {
		r    *record
		j    *JobInfo
		old  bool
		want fate
	}{
		"waits":              {of(nil, long), job("a", "PENDING"), false, leave},
		"runs":               {of(nil, long), job("a", "RUNNING"), false, leave},
		"epilogs run":        {of(nil, long), job("a", "COMPLETING"), false, leave},
		"gone":               {of(nil, long), nil, false, end},
		"worked for":         {of(nil, now), nil, false, leave},
		"just set up":        {of(map[string]stage{"setup": {Since: now}}, long), nil, false, leave},
		"another one":        {of(nil, long), job("b", "RUNNING"), false, end},
		"put aside":          {of(nil, long), job("a", "RUNNING"), true, end},
		"cancelled":          {of(nil, long), job("a", "CANCELLED"), false, end},
		"lost stage-out":     {of(nil, long), job("a", "STAGE_OUT"), false, end},
		"copied out":         {of(nil, now), job("a", "STAGE_OUT"), false, leave},
		"torn down":          {of(map[string]stage{"teardown": {State: stateDone, Since: long}}, long), nil, false, leave},
		"torn down long ago": {of(map[string]stage{"teardown": {State: stateDone, Since: now.Add(-2 * keepRecords)}}, long), nil, false, forget},
	} {
		if got := verdict(c.r, c.j, c.old, now, Quiet); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

func TestPools(t *testing.T) {
	s := &Settings{Pools: []string{"memory", "disk"}, Granule: 10}
	nodes := []client.Node{
		{State: "ready", Memory: client.TierUsage{Capacity: 100, Dirty: 25}, Disk: client.TierUsage{Capacity: 1005}},
		{State: "ready", Memory: client.TierUsage{Capacity: 100}},
		{State: "dead", Memory: client.TierUsage{Capacity: 1000}},
		{State: "ready", Refused: "too old", Memory: client.TierUsage{Capacity: 1000}},
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
		Folder: "x", Words: []string{"BB", "DW"}, Pools: []string{"tape"}, Default: "disk", Profiles: map[string]string{"p": "replicas=3"}, Env: []string{"A"}, StageInLimit: -1,
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

func FuzzParseJobs(f *testing.F) {
	f.Add(shown)
	f.Add("JobId=1 RunTime=-1-00:00:00 TimeLimit=9999999999-1:1:1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, j := range ParseJobs(text) {
			if j.ID == "" {
				t.Fatal("a job without an id")
			}
			_ = j.endedWell()
		}
	})
}
