package slurm

import (
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/slurm/directive"
)

func TestPlan(t *testing.T) {
	const script = `#BB jobbb capacity=100 pool=memory backing=/lustre/ann
#BB stage_in source=/lustre/in destination=$BB_JOB_STRIPED/a
#BB stage_in source=s3://b/in?endpoint=http://h destination=$BB_JOB_STRIPED/b
#BB stage_out source=$BB_JOB_STRIPED destination=/other/out
`
	r, problems := directive.Parse([]byte(script), directive.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	w, err := r.Resolve(&directive.Vars{Buffer: "job-7-x", Job: "7", User: "ann", UID: 1000, GID: 100})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	job := func(kind, url, buffer string, mib int64, took time.Duration) admin.Operation {
		return admin.Operation{Kind: kind, URL: url, Buffer: buffer, State: "done", BytesDone: mib << 20, Created: now.Add(-took), Ended: now}
	}
	in := &PlanInput{
		Work: w, Pool: "memory", Sizes: []int64{10 << 20, -1},
		Nodes: []admin.Node{
			{State: "ready", Memory: admin.TierUsage{Capacity: 150, Free: 60}},
			{State: "ready", Memory: admin.TierUsage{Capacity: 50, Free: 30}},
			{State: "dead", Memory: admin.TierUsage{Capacity: 5000, Free: 5000}},
		},
		Jobs: []admin.Operation{
			job("stage-in", "file:///lustre/x", "", 10, time.Second), job("stage-in", "file:///lustre/y", "", 20, time.Second),
			job("stage-in", "file:///lustre/z", "", 90, time.Second), job("stage-in", "file:///other/z", "", 500, time.Second),
			job("stage-in", "s3://b/x?endpoint=http://another", "", 500, time.Second), job("stage-in", "s3://b/x?endpoint=http://h", "", 0, time.Second),
			job("drain", "", "d", 50, 10*time.Second),
		},
		Flows: []Flow{{"d", "file:///lustre/d", 0}, {"e", "file:///other/e", 25}, {"f", "file:///other/f", 25}},
	}
	p := MakePlan(in)
	if p.Nodes != 2 || p.Total != 200 || p.Free != 90 || p.Fits != FitsLater {
		t.Errorf("%+v", p)
	}
	if c := p.In[0]; c.Rate == nil || *c.Rate != 20<<20 || *c.Seconds != 0.5 || c.AtMost {
		t.Errorf("first stage-in: %+v", c)
	}
	if c := p.In[1]; c.Bytes != nil || c.Rate != nil || c.Seconds != nil {
		t.Errorf("what was not measured has a figure: %+v", c)
	}
	if c := p.Out[0]; c.Rate == nil || *c.Rate != 50 || *c.Seconds != 2 || !c.AtMost {
		t.Errorf("stage-out: %+v", c)
	}
	if c := p.Drain; c == nil || c.Rate == nil || *c.Rate != 5<<20 || !c.AtMost {
		t.Errorf("drain: %+v", c)
	}
	for capacity, want := range map[int64]Fit{0: FitsNow, 90: FitsNow, 91: FitsLater, 201: FitsNever} {
		w.Job.Capacity = capacity
		if got := MakePlan(in); got.Fits != want {
			t.Errorf("%d bytes: %s", capacity, got.Fits)
		}
	}
}
