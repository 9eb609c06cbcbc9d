package jobs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func TestOrphans(t *testing.T) {
	ended := time.Unix(1000, 0)
	lives := []admin.Lifetime{
		{Key: "job-1-a", Job: "1", Buffer: "job-1-a", State: admin.LifetimeOrphan, Reason: "the store is away", Ended: ended},
		{Key: "job-2-a", Job: "2", State: admin.LifetimeOrphan, Reason: "it is still used"},
		{Key: "job-3-a", Job: "3", Buffer: "job-3-a", State: admin.LifetimeOpen},
		{Key: "job-4-a", Job: "4", Buffer: "job-4-a", State: admin.LifetimeGone},
	}
	buffers := []admin.BufferSpec{
		{Name: "job-1-a", State: admin.BufferOrphan},
		{Name: "job-3-a", State: admin.BufferActive},
		{Name: "other", State: admin.BufferOrphan, Job: "9"},
	}
	list := Orphans(lives, buffers)
	if len(list) != 3 || list[0].Buffer != "job-1-a" || list[0].Reason != "the store is away" || !list[0].Since.Equal(ended) || list[1].Job != "2" || list[2].Buffer != "other" {
		t.Errorf("%+v", list)
	}
	if none := Orphans(lives[2:], buffers[1:2]); none == nil || len(none) != 0 {
		t.Errorf("none: %v", none)
	}
}

func TestPrintLifetime(t *testing.T) {
	var out bytes.Buffer
	a := &app.App{Out: &out}
	PrintLifetime(a, &admin.Lifetime{
		Key: "job-12-a", Job: "12", Cluster: "lab", User: "alice", Buffer: "job-12-a", Uses: []string{"shared"}, State: admin.LifetimeOrphan,
		Reason: "the store is away", Attempt: 3,
		Out: []admin.LifetimeStage{{Buffer: "job-12-a", Path: "r", URL: "file:///r", OnSuccess: true}},
		In:  []admin.LifetimeStage{{Buffer: "job-12-a", Path: "i", URL: "file:///i", Note: "it is away"}},
		Nodes: []admin.Attachment{
			{Node: "n1", Since: time.Unix(1, 0), Usage: admin.Usage{Dropped: 4, DroppedBytes: 1024, Absorbed: 1 << 30, Blocked: 1.5, Failures: 2, Flushed: 64 << 20, Flushing: 2}}, {Node: "n2", Attached: true},
		},
		Losses: admin.LossReport{Total: 2, Bytes: 10},
		Superseded: []bb.SupersededSteps{{
			Buffer: "job-12-a", Total: 3, Files: 9, Bytes: 4096, Steps: []bb.SupersededStep{{Step: "step-4", By: "step-6", Files: 3, Bytes: 2048}},
		}},
	})
	for _, want := range []string{
		"job 12 of alice (lab)", "orphan", "after 3 attempts: the store is away", "bb://job-12-a, bb://shared (outlives it)",
		"not staged out, as the job failed: bb://job-12-a/r to file:///r", "1.0 GiB", "1.5s", "detached", "attached", "all", "2 files were not saved, of 10 B",
		"stage-in: file:///i to bb://job-12-a/i, failed: it is away", "saved at least 30.5 s", "32 MiB/s",
		"4 files of 1.0 KiB dropped from memory: newer steps have superseded them",
		"superseded: bb://job-12-a/step-4, 3 files of 2.0 KiB: bb://job-12-a/step-6 is complete",
		"3 steps of bb://job-12-a were superseded and not flushed, 4.0 KiB in all",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
