package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func newJobsCommand(a *app.App) *cobra.Command {
	list := newJobsListCommand(a)
	cmd := &cobra.Command{
		Use: "jobs", Short: "List, watch and cancel stage-ins, stage-outs and drains of a cluster", Args: cobra.NoArgs,
		Long: `In a cluster, stage-in, stage-out and drain are jobs that all daemons do together. A job
goes on when its bbctl is interrupted, or when any daemon dies. Every daemon lists all
jobs. Jobs that have ended are listed for a day.`,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, newJobsShowCommand(a), newJobsWatchCommand(a), newJobsCancelCommand(a))
	return cmd
}

func newJobsListCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the jobs, the newest first", Args: cobra.NoArgs,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			jobs, err := admin.Operations(ctx, c)
			if err != nil {
				return err
			}
			return a.Print(jobs, func() {
				rows := [][]string{{"ID", "KIND", "BUFFER", "STATE", "FILES", "BYTES", "FAILED", "BEGUN"}}
				for i := range jobs {
					j := &jobs[i]
					rows = append(rows, []string{
						j.ID, j.Kind, j.Buffer, j.State, fmt.Sprintf("%d/%d", j.FilesDone, j.Files),
						app.Size(j.BytesDone) + "/" + app.Size(j.Bytes), fmt.Sprint(j.FailedTotal), app.Age(time.Since(j.Created).Seconds()) + " ago",
					})
				}
				a.Table(rows)
			})
		}),
	}
}

func newJobsShowCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a job: its progress, failures and nodes", Args: cobra.ExactArgs(1),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			j, err := admin.OperationByID(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.Print(jsonOf(&j), func() { printJob(a, &j) })
		}),
	}
}

// jobJSON is a job as it is printed: with the fields that it has beside its JSON.
type jobJSON struct {
	*admin.Operation
	Superseded      []string `json:"superseded,omitempty"`
	SupersededTotal int64    `json:"superseded_total,omitempty"`
}

func jsonOf(j *admin.Operation) jobJSON { return jobJSON{j, j.Superseded, j.SupersededTotal} }

func printJob(a *app.App, j *admin.Operation) {
	fmt.Fprintf(a.Out, "%s: %s of bb://%s/%s", j.ID, j.Kind, j.Buffer, j.Path)
	if j.URL != "" {
		fmt.Fprintf(a.Out, ", %s", j.URL)
	}
	fmt.Fprintf(a.Out, ", asked for by uid %d\n%s", j.UID, j.State)
	if j.Ended.IsZero() {
		fmt.Fprintf(a.Out, " for %s", app.Age(time.Since(j.Created).Seconds()))
	} else {
		fmt.Fprintf(a.Out, " after %s", app.Age(j.Ended.Sub(j.Created).Seconds()))
	}
	fmt.Fprintf(a.Out, ": %d of %d files, %s of %s; %d of %d tasks are done, %d under way\n",
		j.FilesDone, j.Files, app.Size(j.BytesDone), app.Size(j.Bytes), j.TasksDone, j.Tasks, j.Running)
	if j.Skipped > 0 {
		fmt.Fprintf(a.Out, "%s there already\n", bb.Count(j.Skipped, "file was", "files were"))
	}
	if j.BytesNotCopied > 0 {
		fmt.Fprintf(a.Out, "%s of the finished part needed no copying or failed\n", app.Size(j.BytesNotCopied))
	}
	for _, node := range slices.Sorted(maps.Keys(j.Nodes)) {
		fmt.Fprintf(a.Out, "node %s: %s, %s\n", node, bb.Count(j.Nodes[node].Files, "file"), app.Size(j.Nodes[node].Bytes))
	}
	for _, f := range j.Failed {
		printFailure(a, failureJSON{f.Path, f.Kind, f.Reason, f.Bytes})
	}
	printSome(a, j.FailedTotal-int64(len(j.Failed)), "more were not done")
	printSome(a, j.ExcludedTotal, "names are held back by a keep pattern")
	printSome(a, j.OpenTotal, "files are open for writing")
	for _, step := range j.Superseded {
		fmt.Fprintf(a.Out, "%s: superseded, and not flushed: a newer step is complete\n", bb.Printable(bb.Address{Buffer: j.Buffer, Path: step}.String()))
	}
	printSome(a, j.SupersededTotal-int64(len(j.Superseded)), "more steps are superseded")
	if j.LastError != "" {
		fmt.Fprintln(a.Out, "the store failed last with:", j.LastError)
	}
}

func printSome(a *app.App, n int64, what string) {
	if n > 0 {
		fmt.Fprintln(a.Out, n, what)
	}
}

func newJobsWatchCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show the progress of a job until it has ended", Args: cobra.ExactArgs(1),
		Long: `Shows the progress of a job until it has ended, and then its result, with --json a line
for each change. The exit code is that of the job: 7 if something was not done, 8 if it
was cancelled.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			bar := a.Progress("job " + args[0])
			lines := json.NewEncoder(a.Out)
			j, err := admin.WatchOperation(ctx, c, args[0], func(j admin.Operation) {
				bar.Set(app.Figures{Files: j.FilesDone, FilesTotal: j.Files, Bytes: j.BytesDone, BytesTotal: j.Bytes})
				if a.JSON {
					lines.Encode(jsonOf(&j))
				}
			})
			bar.End()
			if err != nil {
				return err
			}
			if !a.JSON {
				printJob(a, &j)
			}
			switch {
			case j.State == "cancelled":
				return &client.Error{Kind: client.ErrCancelled, Op: "watch job", Path: j.ID, Err: errors.New("the job was cancelled")}
			case j.FailedTotal+j.ExcludedTotal+j.OpenTotal > 0:
				return app.Partly(errors.New("the job has left out " + bb.Count(j.FailedTotal+j.ExcludedTotal+j.OpenTotal, "file")))
			}
			return nil
		}),
	}
}

func newJobsCancelCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID", Short: "Cancel a job; its finished work stays", Args: cobra.ExactArgs(1),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			j, err := admin.OperationByID(ctx, c, args[0])
			if err != nil {
				return err
			}
			if j.State != "running" && j.State != "cancelled" {
				return &client.Error{Kind: client.ErrBusy, Op: "cancel job", Path: j.ID, Err: errors.New("it has ended already: " + j.State)}
			}
			if err := admin.CancelOperation(ctx, c, args[0]); err != nil {
				return err
			}
			return a.Print(map[string]string{"cancelled": j.ID}, func() { fmt.Fprintln(a.Out, "cancelled", j.ID) })
		}),
	}
}
