package slurm

import (
	"strings"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm/slurmctl"
)

// TestEndings holds which lifetimes end at the first comparison, and how.
func TestEndings(t *testing.T) {
	now := time.Now()
	job := func(submitted, state string) *slurmctl.Job {
		return &slurmctl.Job{ID: "7", Submitted: submitted, State: state, ExitCode: "0:0"}
	}
	key := keyOf(job("a", ""), "c")
	never, long := time.Time{}, now.Add(-2*stayed)
	const leave, end, endLeft, failed, failedLeft = "leave", "end", "end when left", "end as failed", "end as failed when left"
	for name, c := range map[string]struct {
		governed bool
		state    bb.LifetimeState
		over     time.Time
		j        *slurmctl.Job
		want     string
	}{
		"waits":                   {true, admin.LifetimeOpen, never, job("a", "PENDING"), leave},
		"runs":                    {true, admin.LifetimeOpen, never, job("a", "RUNNING"), leave},
		"epilogs run":             {true, admin.LifetimeOpen, never, job("a", "COMPLETING"), leave},
		"another's epilogs run":   {true, admin.LifetimeOpen, never, job("b", "COMPLETING"), leave},
		"gone":                    {true, admin.LifetimeOpen, never, nil, endLeft},
		"another one":             {true, admin.LifetimeOpen, never, job("b", "RUNNING"), endLeft},
		"cancelled":               {true, admin.LifetimeOpen, never, &slurmctl.Job{ID: "7", Submitted: "a", State: "CANCELLED", ExitCode: "0:15"}, failedLeft},
		"lost stage-out":          {true, admin.LifetimeOpen, never, job("a", "STAGE_OUT"), endLeft},
		"leaves its nodes":        {true, admin.LifetimeOpen, now, job("a", "STAGE_OUT"), leave},
		"never leaves its nodes":  {true, admin.LifetimeOpen, long, job("a", "STAGE_OUT"), end},
		"runs, said to be over":   {true, admin.LifetimeOpen, long, job("a", "RUNNING"), leave},
		"is being saved":          {true, admin.LifetimeDraining, long, nil, leave},
		"cannot be saved":         {true, admin.LifetimeOrphan, long, nil, leave},
		"is gone with everything": {true, admin.LifetimeGone, now, nil, leave},

		"prolog's, runs":         {false, admin.LifetimeOpen, never, job("a", "RUNNING"), leave},
		"prolog's, epilogs run":  {false, admin.LifetimeOpen, never, job("a", "COMPLETING"), leave},
		"prolog's, gone":         {false, admin.LifetimeOpen, never, nil, end},
		"prolog's, another one":  {false, admin.LifetimeOpen, never, job("b", "RUNNING"), end},
		"prolog's, completed":    {false, admin.LifetimeOpen, never, job("a", "COMPLETED"), end},
		"prolog's, failed":       {false, admin.LifetimeOpen, never, job("a", "NODE_FAIL"), failed},
		"prolog's, was requeued": {false, admin.LifetimeOpen, never, job("a", "PENDING"), failed},
		"prolog's, being saved":  {false, admin.LifetimeDraining, never, nil, leave},
	} {
		lives := []admin.Lifetime{
			{Key: key, Job: "7", Cluster: "c", SchedulerManaged: c.governed, State: c.state, Over: c.over},
			{Key: key, Job: "7", Cluster: "other", SchedulerManaged: c.governed, State: admin.LifetimeOpen},
			{Key: key, Job: "7", Cluster: "c", SchedulerManaged: !c.governed, State: admin.LifetimeOpen},
		}
		var jobs []slurmctl.Job
		if c.j != nil {
			jobs = append(jobs, *c.j)
		}
		r := Reconciler{Cluster: "c", SchedulerManaged: c.governed}
		got := leave
		if endings := r.Compare(lives, jobs, now, 0); len(endings) > 0 {
			e := endings[0]
			if len(endings) > 1 || e.Lifetime != &lives[0] {
				t.Errorf("%s: others' end: %v", name, endings)
			}
			got = map[admin.EndOptions]string{{}: end, {WhenLeft: true}: endLeft, {Failed: true}: failed, {WhenLeft: true, Failed: true}: failedLeft}[e.EndOptions]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestQuiet: a lifetime ends when Slurm was done with it in each comparison for the required time.
func TestQuiet(t *testing.T) {
	now := time.Now()
	running := []slurmctl.Job{{ID: "7", Submitted: "a", State: "RUNNING"}}
	l := []admin.Lifetime{{Key: keyOf(&running[0], "c"), Job: "7", Cluster: "c", State: admin.LifetimeOpen}}
	r := Reconciler{Cluster: "c"}
	var got strings.Builder
	for i, jobs := range [][]slurmctl.Job{nil, nil, running, nil, nil, nil, nil} {
		if len(r.Compare(l, jobs, now.Add(time.Duration(i)*time.Second), 2*time.Second)) > 0 {
			got.WriteString("e")
		} else {
			got.WriteString("-")
		}
	}
	if got.String() != "-----ee" {
		t.Errorf("%s", &got)
	}
}

func TestRuns(t *testing.T) {
	jobs := []slurmctl.Job{{ID: "12", Submitted: "a", State: "COMPLETING", Restarts: 1}, {ID: "13", Submitted: "b", State: "PENDING"}}
	runs := Runs("lab", jobs)
	if len(runs) != 3 || !runs[RunKey("lab", "12", 0, "a")].Active() || !runs[RunKey("lab", "12", 1, "a")].Active() {
		t.Errorf("a job that is being requeued has not both runs: %v", runs)
	}
	if j := runs[RunKey("lab", "13", 0, "b")]; j == nil || j.Active() || runs[RunKey("lab", "14", 0, "b")].Active() {
		t.Errorf("a job that waits, or none, is active: %v", runs)
	}
}
