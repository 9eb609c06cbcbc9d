package slurmctl

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
)

const shown = `JobId=12 ArrayJobId=10 ArrayTaskId=2 JobName=my job = x SubmitTime=no
   UserId=ann(1000) GroupId=staff(50) MCS_label=N/A
   JobState=STAGE_OUT Reason=burst_buffer/lua:_Stage-out_in_progress Dependency=(null)
   Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=1-00:00:05 TimeLimit=2-00:00:00 TimeMin=N/A
   SubmitTime=2026-11-21T17:46:58 EligibleTime=2026-11-21T17:46:58
   Command=/home/ann/run ExitCode=1:0
   WorkDir=/home/ann/a b Restarts=9
   Comment=BatchFlag=0 JobState=FAILED 
   BurstBuffer=#BB jobbb capacity=1G pool=memory
#BB stage_in type=file source=/a destination=$BB_JOB_STRIPED/a
   BurstBufferState=staging-out

JobId=13 JobName=x
   UserId=bob(1001) GroupId=bob(1001) MCS_label=N/A
   RunTime=00:01:00 TimeLimit=00:01:00 TimeMin=N/A
   JobState=COMPLETING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0
   AdminComment=forebay: a note 
   Power=
`

func TestParseJobs(t *testing.T) {
	jobs := ParseJobs(shown)
	want := []Job{
		{
			ID: "12", ArrayJob: "10", ArrayTask: "2", Name: "my job = x SubmitTime=no", User: "ann", UID: 1000, GID: 50, WorkDir: "/home/ann/a b Restarts=9",
			State: "STAGE_OUT", Submitted: "2026-11-21T17:46:58", Restarts: 3, Batch: true, ExitCode: "0:0",
			RunTime: 24*time.Hour + 5*time.Second, TimeLimit: 48 * time.Hour,
			Request: "#BB jobbb capacity=1G pool=memory\n#BB stage_in type=file source=/a destination=$BB_JOB_STRIPED/a", Buffers: "staging-out",
			Comment: "BatchFlag=0 JobState=FAILED",
		},
		{
			ID: "13", Name: "x", User: "bob", UID: 1001, GID: 1001, State: "COMPLETING", ExitCode: "0:0", RunTime: time.Minute, TimeLimit: time.Minute,
			AdminComment: "forebay: a note",
		},
	}
	if !reflect.DeepEqual(jobs, want) {
		t.Errorf("%+v", jobs)
	}
	if !jobs[0].Succeeded() || jobs[1].Succeeded() {
		t.Error("a job whose time was up has not succeeded, the other has")
	}
	if !jobs[0].Over() || jobs[1].Over() || !jobs[0].Active() || !jobs[1].Active() {
		t.Error("the first is over and staged out, the second ends")
	}
	if jobs[0].Ref() != "10_2" || jobs[1].Ref() != "13" {
		t.Errorf("%s, %s", jobs[0].Ref(), jobs[1].Ref())
	}
	if none := ParseJobs("No jobs in the system\n"); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	if j, err := Find(shown, "13"); err != nil || j.ID != "13" {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := Find(shown, "1"); bb.KindOf(err) != bb.NotFound {
		t.Errorf("a job that is not there: %v", err)
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"01:00:00": time.Hour, "1-00:00:01": 24*time.Hour + time.Second, "365-00:00:00": 365 * 24 * time.Hour,
		"UNLIMITED": 0, "": 0, "-1-00:00:00": 0, "00:00:61": 0, "99999999999-00:00:00": 0,
	} {
		if got := parseTime(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestClusterName(t *testing.T) {
	if got := ClusterName("Configuration data as of x\nClusterName             = lab\nOther = x\n"); got != "lab" {
		t.Errorf("%q", got)
	}
}

// TestRun runs commands that are not Slurm's, with its words.
func TestRun(t *testing.T) {
	for text, want := range map[string]bb.Kind{
		"slurm_load_jobs error: Invalid job id specified":             bb.NotFound,
		"Job has already finished":                                    bb.NotFound,
		"Job is pending execution for job 7":                          bb.Busy,
		"Requested operation is disabled":                             bb.Unsupported,
		"Unable to contact slurm controller (connect failure)\nagain": bb.Unavailable,
	} {
		out, err := Run(t.Context(), "sh", "-c", "echo out; echo \"$0\" >&2; exit 1", text)
		if out != "" || bb.KindOf(err) != want || strings.Contains(err.Error(), "out\n") {
			t.Errorf("%q: %q, %v; want the kind %v", text, out, err, want)
		}
	}
	if out, err := Run(t.Context(), "echo", "JobId=1"); out != "JobId=1\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Run(t.Context(), "no-such-command-of-slurm"); bb.KindOf(err) != bb.Unsupported {
		t.Errorf("a command that is not there: %v", err)
	}
}

// TestRetry: only the request to a controller that is away for a moment is repeated.
func TestRetry(t *testing.T) {
	counter := t.TempDir() + "/calls"
	const twice = `echo x >>"$0"; [ "$(wc -l <"$0")" -gt 2 ] && echo there && exit; echo "connect failure" >&2; exit 1`
	if out, err := Retry(t.Context(), time.Minute, "sh", "-c", twice, counter); out != "there\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Retry(t.Context(), time.Minute, "sh", "-c", "echo Invalid job id >&2; exit 1"); bb.KindOf(err) != bb.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := Retry(t.Context(), 300*time.Millisecond, "sh", "-c", "exit 1"); bb.KindOf(err) != bb.Unavailable {
		t.Errorf("of one that stays away: %v", err)
	}
}

func TestOneLine(t *testing.T) {
	if got := OneLine("a\nb\x00" + strings.Repeat("x", 1000)); strings.ContainsAny(got, "\n\x00") || len(got) != 400 {
		t.Errorf("%q", got)
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"", "0", "07", "-1", "1_2", "../1", "1 ", "99999999999"} {
		if CheckID(id) == nil {
			t.Errorf("%q was taken", id)
		}
	}
	if err := CheckID("4294967295"); err != nil {
		t.Error(err)
	}
}

func FuzzParseJobs(f *testing.F) {
	f.Add(shown)
	f.Add("JobId=1 RunTime=-1-00:00:00 TimeLimit=9999999999-1:1:1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, j := range ParseJobs(text) {
			if j.ID == "" || j.RunTime < 0 || j.TimeLimit < 0 {
				t.Fatalf("%+v", j)
			}
		}
	})
}
