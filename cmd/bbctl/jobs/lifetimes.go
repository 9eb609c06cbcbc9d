package jobs

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

// orphan is a buffer whose job is gone and which is not saved yet, or other remaining work of a job
// that is gone.
type orphan struct {
	Buffer string    `json:"buffer,omitempty"`
	Job    string    `json:"job,omitempty"`
	Key    string    `json:"key,omitempty"`
	UID    uint32    `json:"uid"`
	Since  time.Time `json:"since"` // its job left its last node
	Reason string    `json:"reason,omitempty"`
}

func newOrphansCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "orphans", Short: "List data of finished jobs that cannot be saved yet, with the reasons", Args: cobra.NoArgs,
		Long: `Lists buffers whose job is gone and that could not be drained and destroyed, or whose
stage-outs failed. Nothing of them is dropped, and saving them is retried for ever. To
give one up with its data: bbctl buffer destroy NAME --discard.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			lives, err := admin.Lifetimes(ctx, c, "")
			if err != nil {
				return err
			}
			buffers, err := admin.Buffers(ctx, c)
			if err != nil {
				return err
			}
			list := Orphans(lives, buffers)
			return a.Print(list, func() {
				rows := [][]string{{"BUFFER", "JOB", "UID", "SINCE", "REASON"}}
				for _, o := range list {
					rows = append(rows, []string{cmp.Or(o.Buffer, "-"), cmp.Or(o.Job, "-"), fmt.Sprint(o.UID), o.Since.Format(time.DateTime), o.Reason})
				}
				a.Table(rows)
			})
		}),
	}
}

// Orphans joins the two lists. A lifetime has the reason, and a buffer may be an orphan without
// one.
func Orphans(lives []admin.Lifetime, buffers []admin.BufferSpec) []orphan {
	list, known := []orphan{}, map[string]bool{}
	for i := range lives {
		l := &lives[i]
		if l.State == admin.LifetimeOrphan {
			known[l.Buffer] = true
			list = append(list, orphan{Buffer: l.Buffer, Job: l.Job, Key: l.Key, UID: l.UID, Since: l.Ended, Reason: l.Reason})
		}
	}
	for i := range buffers {
		if b := &buffers[i]; b.State == admin.BufferOrphan && !known[b.Name] {
			list = append(list, orphan{Buffer: b.Name, Job: b.Job, UID: b.UID, Since: b.Created})
		}
	}
	return list
}

// JobStatus shows the runs of a job.
func JobStatus(a *app.App, cmd *cobra.Command, job string) error {
	c, err := a.Dial(cmd.Context())
	if err != nil {
		return err
	}
	list, err := admin.Lifetimes(cmd.Context(), c, job)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return NoRuns(job)
	}
	return a.Print(lifetimesJSON(list), func() {
		a.Fitted(func() {
			for i := range list {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				PrintLifetime(a, &list[i])
			}
		})
	})
}

// lifetimeJSON is a batch job's record as it is printed: with the fields that it has beside its JSON.
type lifetimeJSON struct {
	*admin.Lifetime
	Dropped      int64                   `json:"dropped,omitempty"`
	DroppedBytes int64                   `json:"dropped_bytes,omitempty"`
	Superseded   []admin.SupersededSteps `json:"superseded,omitempty"`
}

func lifetimesJSON(list []admin.Lifetime) []lifetimeJSON {
	all := make([]lifetimeJSON, len(list))
	for i := range list {
		f := list[i].Total()
		all[i] = lifetimeJSON{&list[i], f.Dropped, f.DroppedBytes, list[i].Superseded}
	}
	return all
}

func NoRuns(job string) error {
	return &client.Error{
		Kind: client.ErrNotFound, Op: "status", Path: "job " + job, Err: fmt.Errorf("no such job of this user has, or had, a buffer"),
		Remedy: "the record of a job is removed a week after its buffers",
	}
}

// PrintProgress prints the daemons' present copies for a job.
func PrintProgress(ctx context.Context, a *app.App, c *client.Client, l *admin.Lifetime) error {
	if l.State == admin.LifetimeGone {
		return nil
	}
	all, err := admin.Operations(ctx, c)
	if err != nil {
		return err
	}
	for i := range all {
		if j := &all[i]; l.Buffer != "" && j.Buffer == l.Buffer && j.State == "running" {
			fmt.Fprintf(a.Out, "%s: %d of %d files, %s of %s", j.Kind, j.FilesDone, j.Files, app.Size(j.BytesDone), app.Size(j.Bytes))
			if j.LastError != "" {
				fmt.Fprintf(a.Out, ", %s", j.LastError)
			}
			fmt.Fprintln(a.Out)
		}
	}
	return nil
}

func PrintLifetime(a *app.App, l *admin.Lifetime) {
	fmt.Fprintf(a.Out, "job %s of %s (%s), since %s: %s\n", l.Job, cmp.Or(l.User, fmt.Sprint("uid ", l.UID)), cmp.Or(l.Cluster, "-"), l.Created.Format(time.DateTime), standing(l))
	if l.Reason != "" {
		attempts := ""
		if l.Attempt > 0 {
			attempts = ", after " + bb.Count(l.Attempt, "attempt")
		}
		fmt.Fprintf(a.Out, "not saved yet%s: %s\n", attempts, l.Reason)
	}
	if l.State == admin.LifetimeOpen && !l.Due.IsZero() {
		fmt.Fprintf(a.Out, "to be saved by %s", l.Due.Local().Format(time.DateTime))
		if late := l.MissesDeadline(); !late.IsZero() {
			fmt.Fprintf(a.Out, ", but at the present pace it will be at %s", late.Local().Format(time.DateTime))
		}
		fmt.Fprintln(a.Out)
	}
	var buffers []string
	if l.Buffer != "" {
		buffers = append(buffers, "bb://"+l.Buffer)
	}
	for _, u := range l.Uses {
		buffers = append(buffers, "bb://"+u+" (outlives it)")
	}
	fmt.Fprintln(a.Out, "buffers:", strings.Join(buffers, ", "))
	for _, s := range l.In {
		fmt.Fprintf(a.Out, "stage-in: %s to bb://%s/%s", s.URL, s.Buffer, s.Path)
		if s.Note != "" {
			fmt.Fprintf(a.Out, ", failed: %s", s.Note)
		}
		fmt.Fprintln(a.Out)
	}
	for _, s := range l.Out {
		word := "to stage out"
		switch {
		case s.Done:
			word = "staged out"
		case s.OnSuccess && !l.Succeeded:
			word = "not staged out, as the job failed"
		}
		fmt.Fprintf(a.Out, "%s: bb://%s/%s to %s", word, s.Buffer, s.Path, s.URL)
		if s.Bytes > 0 {
			fmt.Fprintf(a.Out, ", %s in %s", app.Size(s.Bytes), app.Age(s.Seconds))
		}
		if s.Note != "" {
			fmt.Fprintf(a.Out, ": %s", s.Note)
		}
		fmt.Fprintln(a.Out)
	}
	rows := [][]string{{"NODE", "JOB", "SINCE", "ABSORBED", "BLOCKED", "PEAK DIRTY", "FLUSH FAILURES"}}
	row := func(name, state, since string, f admin.Usage) {
		rows = append(rows, []string{name, state, since, app.Size(f.Absorbed), app.Age(f.Blocked), app.Size(f.PeakDirty), fmt.Sprint(f.Failures)})
	}
	for _, n := range l.Nodes {
		state, since := "detached", n.Since.Format(time.DateTime)
		switch {
		case n.Attached:
			state = "attached"
		case n.Since.IsZero():
			state, since = "-", "-"
		}
		row(string(n.Node), state, since, n.Usage)
	}
	if len(l.Nodes) > 1 {
		row("all", "", "", l.Total())
	}
	a.Table(rows)
	if saved, measured := l.Saved(); measured {
		fmt.Fprintf(a.Out, "saved at least %.1f s against writing straight to the store, which took %s/s\n", saved, app.Size(int64(l.StoreRate())))
	}
	printSuperseded(a, l)
	for _, f := range l.Losses.Files {
		fmt.Fprintf(a.Out, "not saved: %s, %s: %s\n", bb.Printable(f.Path), app.Size(f.Bytes), f.Reason)
	}
	if l.Losses.Total > 0 {
		fmt.Fprintf(a.Out, "%s not saved, of %s\n", bb.Count(l.Losses.Total, "file was", "files were"), app.Size(l.Losses.Bytes))
	}
}

// printSuperseded prints the steps that were not flushed, since newer ones were complete. They are no loss.
func printSuperseded(a *app.App, l *admin.Lifetime) {
	if f := l.Total(); f.Dropped > 0 {
		fmt.Fprintf(a.Out, "%s of %s dropped from memory: newer steps have superseded them\n", bb.Count(f.Dropped, "file"), app.Size(f.DroppedBytes))
	}
	for i := range l.Superseded {
		of := &l.Superseded[i]
		address := func(path string) string { return bb.Printable(bb.Address{Buffer: of.Buffer, Path: path}.String()) }
		for _, s := range of.Steps {
			fmt.Fprintf(a.Out, "superseded: %s, %s of %s: %s is complete\n", address(s.Step), bb.Count(s.Files, "file"), app.Size(s.Bytes), address(s.By))
		}
		were := "were"
		if of.Total == 1 {
			were = "was"
		}
		fmt.Fprintf(a.Out, "%s of bb://%s %s superseded and not flushed, %s in all\n", bb.Count(of.Total, "step"), of.Buffer, were, app.Size(of.Bytes))
	}
}

// standing is how a lifetime stands, for people.
func standing(l *admin.Lifetime) string {
	switch l.State {
	case admin.LifetimeOpen:
		switch {
		case !l.Over.IsZero():
			return "it is over, and has not left all its nodes"
		case l.SchedulerManaged && !l.Ran:
			return "it waits"
		}
		return "it runs, or is about to"
	case admin.LifetimeDraining:
		return "it is over, and its files are being saved"
	case admin.LifetimeOrphan:
		return "it is over, and its buffer is an orphan"
	case admin.LifetimeGone:
		if l.Losses.Total > 0 {
			return "it is over, and its buffers are gone"
		}
		return "it is over, everything is saved, and its buffers are gone"
	}
	return string(l.State)
}
