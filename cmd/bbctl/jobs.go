package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

func newJobsCommand(a *app) *cobra.Command {
	list := newJobsListCommand(a)
	cmd := &cobra.Command{
		Use: "jobs", Short: "List, watch and cancel stage-ins, stage-outs and drains of a cluster", Args: cobra.NoArgs,
		Long: `In a cluster, stage-in, stage-out and drain are jobs that all daemons do together. A job
goes on when who asked for it is interrupted, or any daemon dies; asked of any daemon,
these commands tell of all. Jobs that have ended are listed for a day.`,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, newJobsShowCommand(a), newJobsWatchCommand(a), newJobsCancelCommand(a))
	return cmd
}

func newJobsListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the jobs, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			jobs, err := admin.Jobs(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.print(jobs, func() {
				rows := [][]string{{"ID", "KIND", "BUFFER", "STATE", "FILES", "BYTES", "FAILED", "BEGUN"}}
				for i := range jobs {
					j := &jobs[i]
					rows = append(rows, []string{
						j.ID, j.Kind, j.Buffer, j.State, fmt.Sprintf("%d/%d", j.FilesDone, j.Files),
						size(j.BytesDone) + "/" + size(j.Bytes), fmt.Sprint(j.FailedTotal), age(time.Since(j.Created).Seconds()) + " ago",
					})
				}
				a.table(rows)
			})
		},
	}
}

func newJobsShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a job: how far it is, what failed, who does it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			j, err := admin.JobByID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return a.print(j, func() { a.printJob(&j) })
		},
	}
}

func (a *app) printJob(j *admin.Job) {
	fmt.Fprintf(a.out, "%s: %s of bb://%s/%s", j.ID, j.Kind, j.Buffer, j.Path)
	if j.URL != "" {
		fmt.Fprintf(a.out, ", %s", j.URL)
	}
	fmt.Fprintf(a.out, ", asked for by uid %d\n%s", j.UID, j.State)
	if j.Ended.IsZero() {
		fmt.Fprintf(a.out, " for %s", age(time.Since(j.Created).Seconds()))
	} else {
		fmt.Fprintf(a.out, " after %s", age(j.Ended.Sub(j.Created).Seconds()))
	}
	fmt.Fprintf(a.out, ": %d of %d files, %s of %s; %d of %d tasks are done, %d under way\n",
		j.FilesDone, j.Files, size(j.BytesDone), size(j.Bytes), j.TasksDone, j.Tasks, j.Running)
	if j.Skipped > 0 {
		fmt.Fprintf(a.out, "%s there already\n", bb.Count(j.Skipped, "file was", "files were"))
	}
	if j.BytesNotCopied > 0 {
		fmt.Fprintf(a.out, "%s of what is done needed no copying or failed\n", size(j.BytesNotCopied))
	}
	for _, node := range slices.Sorted(maps.Keys(j.Nodes)) {
		fmt.Fprintf(a.out, "node %s: %s, %s\n", node, bb.Count(j.Nodes[node].Files, "file"), size(j.Nodes[node].Bytes))
	}
	for _, f := range j.Failed {
		a.printFailure(failureJSON{f.Path, f.Kind, f.Reason, f.Bytes})
	}
	a.printSome(j.FailedTotal-int64(len(j.Failed)), "more were not done")
	a.printSome(j.HeldTotal, "names are held back by a keep pattern")
	a.printSome(j.OpenTotal, "files are open for writing")
	if j.LastError != "" {
		fmt.Fprintln(a.out, "the store failed last with:", j.LastError)
	}
}

func (a *app) printSome(n int64, what string) {
	if n > 0 {
		fmt.Fprintln(a.out, n, what)
	}
}

func newJobsWatchCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show how far a job is until it has ended", Args: cobra.ExactArgs(1),
		Long: `Shows how far a job is until it has ended, and then what came of it; with --json a line
for each change. The exit code is that of the job: 7 if something was not done, 8 if it
was cancelled.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			bar := a.progress("job " + args[0])
			lines := json.NewEncoder(a.out)
			j, err := admin.WatchJob(cmd.Context(), c, args[0], func(j admin.Job) {
				bar.set(figures{j.FilesDone, j.Files, j.BytesDone, j.Bytes})
				if a.json {
					lines.Encode(j)
				}
			})
			bar.end()
			if err != nil {
				return err
			}
			if !a.json {
				a.printJob(&j)
			}
			switch {
			case j.State == "cancelled":
				return &client.Error{Kind: client.ErrCancelled, Op: "watch job", Path: j.ID, Err: errors.New("the job was cancelled")}
			case j.FailedTotal+j.HeldTotal+j.OpenTotal > 0:
				return partly{errors.New("the job has left out " + bb.Count(j.FailedTotal+j.HeldTotal+j.OpenTotal, "file"))}
			}
			return nil
		},
	}
}

func newJobsCancelCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID", Short: "End a job: what it has done stays", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			j, err := admin.JobByID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if j.State != "running" && j.State != "cancelled" {
				return &client.Error{Kind: client.ErrBusy, Op: "cancel job", Path: j.ID, Err: errors.New("it has ended already: " + j.State)}
			}
			if err := admin.CancelJob(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			return a.print(map[string]string{"cancelled": j.ID}, func() { fmt.Fprintln(a.out, "cancelled", j.ID) })
		},
	}
}
