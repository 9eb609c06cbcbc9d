package status

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forebay/bbd/access"
	"forebay/bbd/fate"
	"forebay/bbd/flushrule"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

// TestOfBuffer: ages are seconds, and 0 where nothing is old. The time to go follows from the rate. A
// store is described if the buffer has one that was used, and its targets while it is silent.
func TestOfBuffer(t *testing.T) {
	t.Parallel()
	used := health.Status{Condition: health.Failing, Since: ago(9), Op: "put", Name: "f", Reason: "full", Attempts: 3}
	silent := health.Status{Condition: health.Silent, Since: ago(8), Waiting: 2}
	for name, c := range map[string]struct {
		facts Facts
		want  Buffer
	}{
		"idle, no store": {Facts{Spec: bb.Buffer{Name: "b", State: bb.BufferActive}, Health: used}, Buffer{Name: "b", State: "active"}},
		"not used yet":   {Facts{Spec: bb.Buffer{Backing: "s3://x"}, Health: health.Status{Condition: health.Unused}}, Buffer{Backing: "s3://x"}},
		"busy": {
			Facts{
				Stored: store.BufferStats{Resident: 10, Dirty: 4}, Open: 2, Lacking: 1,
				Flushes: flusher.BufferStats{
					Queued: 3, QueuedBytes: 300, InFlight: 2, Rate: 100, Stalled: 1, StalledAt: ago(5), OldestDirty: ago(60), OldestAttempt: ago(6), StoreOps: 7, Conflicts: 1, Ruled: 6,
					LastError: bb.E(bb.NoSpace, "put", "f", "full"), LastErrorPath: "f", LastErrorAt: ago(1), LastErrorAttempts: 2,
				},
				Ruled:       flushrule.Stats{Superseded: 5, SupersededBytes: 50, Dropped: 4, DroppedBytes: 40},
				Conflicts:   []flusher.Conflict{{Path: "c", Bytes: 8, Err: errors.New("changed")}},
				Unexplained: []fate.Unexplained{{File: 1, Generation: 2, Path: "u", Bytes: 9, Reason: "no name"}},
			},
			Buffer{
				Resident: 10, Dirty: 4, OpenFiles: 2, Lacking: 1,
				Queued: 3, QueuedBytes: 300, Flushing: 2, Rate: 100, ETA: 3, Stalls: Stalls{1, 5, 6}, Ruled: Ruled{6, 5, 50, 4, 40}, OldestDirty: 60, StoreOps: 7, Conflicts: 1,
				LastError:   &FlushError{Kind: bb.NoSpace.String(), Reason: bb.E(bb.NoSpace, "put", "f", "full").Error(), Path: "f", At: ago(1), Attempts: 2},
				InConflict:  []InConflict{{"c", 8, "changed"}},
				Unexplained: []NoEntry{{bb.FileID(1).String(), 2, "u", 9, "no name"}},
			},
		},
		"failing": {
			Facts{Spec: bb.Buffer{Backing: "s3://x"}, Health: used, Silent: []string{"OST1"}},
			Buffer{Backing: "s3://x", Store: &StoreHealth{State: "failing", Since: ago(9), For: 9, Op: "put", Path: "f", Reason: "full", Attempts: 3}},
		},
		"silent": {
			Facts{Spec: bb.Buffer{Backing: "file:///l"}, Health: silent, Silent: []string{"OST1"}},
			Buffer{Backing: "file:///l", Store: &StoreHealth{State: "silent", Since: ago(8), For: 8, Waiting: 2, Targets: []string{"OST1"}}},
		},
	} {
		if diff := cmp.Diff(c.want, OfBuffer(&c.facts, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOfWorkers: a user is shown their own store workers, the administrator all.
func TestOfWorkers(t *testing.T) {
	t.Parallel()
	all := []asuser.Process{
		{UID: 1, State: asuser.Serving},
		{UID: 1, State: asuser.Hanging, Root: "/l", Since: ago(4)},
		{UID: 2, State: asuser.Idle},
		{UID: 2, State: asuser.Ending},
	}
	counts := asuser.Counts{Restarts: 5, Kills: 6}
	hung := []HungWorker{{UID: 1, Root: "/l", Since: ago(4), For: 4}}
	for _, c := range []struct {
		caller access.Caller
		want   Workers
	}{
		{access.Caller{System: true}, Workers{Serving: 1, Idle: 1, Ending: 1, Hanging: hung, Restarts: 5, Kills: 6}},
		{access.Caller{UID: 1}, Workers{Serving: 1, Hanging: hung, Restarts: 5, Kills: 6}},
		{access.Caller{UID: 3}, Workers{Restarts: 5, Kills: 6}},
	} {
		if diff := cmp.Diff(&c.want, OfWorkers(counts, all, c.caller, now)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.caller, diff)
		}
	}
}

// TestOfForeign: the remedy for memory of another owner names the difference.
func TestOfForeign(t *testing.T) {
	t.Parallel()
	regions := []store.ForeignRegion{{Path: "/shm/r", Owner: store.Owner{Node: "n2", Namespace: 0xab}}}
	for _, c := range []struct {
		own  store.Owner
		want []string
		not  string
	}{
		{store.Owner{Node: "n1", Namespace: 0xab}, []string{"as node n2"}, "identity"},
		{store.Owner{Node: "n1", Namespace: 0xcd}, []string{"as node n2", "identity is 00000000000000ab"}, "no part"},
		{store.Owner{Node: "n1", AnyNode: true, Namespace: 0xcd}, []string{"identity is 00000000000000ab"}, "as node"},
	} {
		list := OfForeign(regions, c.own)
		if len(list) != 1 || strings.Contains(list[0].Remedy, c.not) ||
			slices.ContainsFunc(c.want, func(s string) bool { return !strings.Contains(list[0].Remedy, s) }) {
			t.Errorf("%+v: %+v, want %q, not %q", c.own, list, c.want, c.not)
		}
	}
	files := map[string][]fate.Unexplained{"y": {{Bytes: 1}}, "x": {{Bytes: 2}, {Bytes: 3}}}
	if list := OfBufferless(files); len(list) != 2 || list[0].Buffer != "x" || list[0].Files != 2 || list[0].Bytes != 5 || list[1].Bytes != 1 {
		t.Errorf("files without a buffer: %+v", list)
	}
}
