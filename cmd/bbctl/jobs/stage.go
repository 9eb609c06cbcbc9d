package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// reportJSON is how long work is reported with --json. Sizes are bytes.
type reportJSON struct {
	Files         int64         `json:"files"`
	FilesDone     int64         `json:"files_done"`
	Skipped       int64         `json:"skipped"`
	Bytes         int64         `json:"bytes"`
	BytesDone     int64         `json:"bytes_done"`
	BytesCopied   int64         `json:"bytes_copied"` // without those of files that were skipped or have failed
	Seconds       float64       `json:"seconds"`
	Names         []string      `json:"names,omitempty"`
	Failed        []failureJSON `json:"failed,omitempty"`
	FailedTotal   int64         `json:"failed_total"`
	Excluded      []string      `json:"held,omitempty"`
	ExcludedTotal int64         `json:"held_total"`
	Open          []string      `json:"open,omitempty"`
	OpenTotal     int64         `json:"open_total"`

	Superseded      []string `json:"superseded,omitempty"`
	SupersededTotal int64    `json:"superseded_total,omitempty"`
	NodeLocalTotal  int64    `json:"node_local_total,omitempty"` // FIFOs and sockets
}

type failureJSON struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Bytes  int64  `json:"bytes"`
}

// Report runs long work and prints its result. Failures are listed, and make the exit code
// cli.ExitPartly.
func Report(a *app.App, what string, work func(func(admin.Progress)) (admin.Report, error)) error {
	began, bar := time.Now(), a.Progress(what)
	r, err := work(func(p admin.Progress) {
		a.Job = p.Job
		bar.Update(p)
	})
	bar.End()
	left := r.FailedTotal > 0 || len(r.Failed) > 0 || r.ExcludedTotal > 0 || r.OpenTotal > 0
	if err != nil && !left {
		return err
	}
	j := reportJSON{
		Files: r.FilesTotal, FilesDone: r.FilesDone, Skipped: r.FilesSkipped, Bytes: r.BytesTotal, BytesDone: r.BytesDone, BytesCopied: r.BytesDone - r.BytesNotCopied,
		Seconds: time.Since(began).Seconds(), Names: r.Names, FailedTotal: r.FailedTotal,
		Excluded: r.Excluded, ExcludedTotal: r.ExcludedTotal, Open: r.Open, OpenTotal: r.OpenTotal,
		Superseded: r.Superseded, SupersededTotal: r.SupersededTotal, NodeLocalTotal: r.NodeLocalTotal,
	}
	for _, f := range r.Failed {
		j.Failed = append(j.Failed, failureJSON{f.Path, f.Kind.String(), f.Reason, f.Bytes})
	}
	if printed := a.Print(j, func() { reportText(a, what, &j) }); printed != nil {
		return printed
	}
	switch {
	case err == nil:
		return nil
	case r.TimedOut:
		return &client.Error{Kind: client.ErrCancelled, Err: fmt.Errorf("the timeout passed: %w", err), Remedy: "the daemon goes on flushing: drain again"}
	}
	if !a.JSON && len(r.Failed) > 0 {
		err = withoutReasons(err, max(r.FailedTotal, int64(len(r.Failed))))
	}
	return app.Partly(err)
}

// withoutReasons is the error of files that failed, whose reasons have been printed.
func withoutReasons(err error, files int64) error {
	var e *client.Error
	if !errors.As(err, &e) {
		return err
	}
	_, remedy := e.Why()
	return &client.Error{Kind: e.Kind, Op: e.Op, Path: e.Path, Node: e.Node, Err: errors.New(bb.Count(files, "file") + " failed: see the list"), Remedy: remedy}
}

// printFailure prints a line about a failure.
func printFailure(a *app.App, f failureJSON) {
	reason := f.Reason
	if !strings.Contains(reason, f.Kind) {
		reason = f.Kind + ": " + reason
	}
	fmt.Fprintf(a.Out, "not done: %s: %s\n", cmp.Or(bb.Printable(f.Path), "all of it"), reason)
}

func reportText(a *app.App, what string, j *reportJSON) {
	for _, name := range j.Names {
		fmt.Fprintln(a.Out, bb.Printable(name))
	}
	for _, f := range j.Failed {
		printFailure(a, f)
	}
	for _, name := range j.Excluded {
		fmt.Fprintln(a.Out, "held back by a keep pattern:", bb.Printable(name))
	}
	for _, name := range j.Open {
		fmt.Fprintln(a.Out, "still open for writing:", bb.Printable(name))
	}
	for _, name := range j.Superseded {
		fmt.Fprintln(a.Out, "not flushed, since a newer step is complete:", bb.Printable(name))
	}
	if more := j.SupersededTotal - int64(len(j.Superseded)); more > 0 {
		fmt.Fprintln(a.Out, "not flushed, for the same reason:", bb.Count(more, "other step"))
	}
	if n := j.NodeLocalTotal; n > 0 {
		fmt.Fprintln(a.Out, "not flushed, since it is a name in the buffer alone:", bb.Count(n, "FIFO or socket", "FIFOs and sockets"))
	}
	fmt.Fprintf(a.Out, "%s: %s, %s in %s", what, bb.Count(j.FilesDone, "file"), app.Size(j.BytesCopied), app.Age(j.Seconds))
	if j.Skipped > 0 {
		fmt.Fprintf(a.Out, ", %d of them already there", j.Skipped)
	}
	fmt.Fprintln(a.Out)
}

func newDrainCommand(a *app.App) *cobra.Command {
	var timeout time.Duration
	var dryRun, overwrite bool
	cmd := &cobra.Command{
		Use: "drain BUFFER | bb://BUFFER/PATH", Short: "Flush a buffer and wait until all of it is on the store", Args: cobra.ExactArgs(1),
		Long: `Flushes everything in a buffer, or what lies at a path and below it, and waits. Exit code 0
means that all of it is on the store, and would survive the loss of this node. What could
not be saved is listed. Files that are lost count as not saved until they are removed or
written again.

A file is in conflict if the store has one under its name that the buffer did not write, and
the buffer was made with --existing=keep or refuse. It is listed, and stays in the buffer. Then
--overwrite replaces the store's file with the buffer's; bbctl stage-in URL bb://BUFFER/PATH takes
the store's instead; bbctl mv gives the buffer's another name, so that both are kept.

` + app.ExitCodesHelp,
		Example: "  bbctl drain ckpt --timeout 10m\n  bbctl drain bb://ckpt/step-7\n  bbctl drain --overwrite bb://ckpt/results.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			at, err := a.BufferAt(ctx, args[0])
			if err != nil {
				return err
			}
			c, err := a.Dial(ctx)
			if err != nil {
				return err
			}
			if dryRun {
				return wouldFlush(ctx, a, app.Found{Buffer: c.Buffer(at.Buffer), At: at})
			}
			return Report(a, "drain", func(show func(admin.Progress)) (admin.Report, error) {
				if overwrite {
					return admin.Overwrite(ctx, c, at.Buffer, at.Path, timeout, show)
				}
				return admin.DrainBelow(ctx, c, at.Buffer, at.Path, timeout, show)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after so long; the daemon goes on flushing (default: wait)")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list the files that are not on the store")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace files of the store that the buffer did not write, too")
	return cmd
}

// wouldFlush lists the files that a drain would flush.
func wouldFlush(ctx context.Context, a *app.App, at app.Found) error {
	c, err := a.Dial(ctx)
	if err != nil {
		return err
	}
	spec, err := admin.BufferInfo(ctx, c, at.At.Buffer)
	if err != nil {
		return err
	}
	return app.Unsaved(ctx, at, func(e *client.Entry) error {
		if _, excluded := plan.Excluded(spec.NoFlush, e.Path); excluded {
			return nil
		}
		return a.Would("flush", client.Address{Buffer: at.At.Buffer, Path: e.Path}.String(), "", e.Size)
	})
}

func newStageInCommand(a *app.App) *cobra.Command {
	return newStageCommand(a, &cobra.Command{
		Use: "stage-in URL bb://BUFFER[/PATH]", Short: "Copy a file or a tree from a store into a buffer",
		Long: `Copies a file, or everything below a directory or prefix, from a store into a buffer.
URL is file:///path, /path or s3://bucket/prefix?endpoint=…&region=…&path_style=true.
Files that are there already and equal are skipped, so that it can be repeated. Files and
directories get the mode and time that they have on a POSIX store, or that S3 keeps with an
object (see docs/durability.md), equal ones too. Empty directories are made. Symbolic links
become links, and are not followed, unless URL is one that leads to a directory. Pipes,
sockets and devices are listed, and make the exit code 7. A file with several names (hard
links) is copied for each, as with cp -r.`,
		Example: "  bbctl stage-in file:///lustre/me/in bb://job/in\n  bbctl stage-in s3://bucket/data bb://job/ --dry-run",
	}, 0, admin.StageIn)
}

func newStageOutCommand(a *app.App) *cobra.Command {
	return newStageCommand(a, &cobra.Command{
		Use: "stage-out bb://BUFFER[/PATH] URL", Short: "Copy a file or a tree of a buffer to a store",
		Long: `Copies a file or a tree of a buffer to a store. URL is file:///path, /path or
s3://bucket/prefix?endpoint=…&region=…&path_style=true. Files that are there already and
equal are skipped, and nothing at the destination is deleted. Files and directories keep their mode and
time, links are made as links, and so are empty directories (S3: see docs/durability.md). On a
POSIX store, equal files that are there get the mode too. Directories of other users stay as
they are. Pipes and sockets are listed, and make the exit code 7.`,
		Example: "  bbctl stage-out bb://job/out s3://bucket/run1",
	}, 1, admin.StageOut)
}

type stageFunc func(context.Context, *client.Client, admin.StageRequest, func(admin.Progress)) (admin.Report, error)

func newStageCommand(a *app.App, cmd *cobra.Command, store int, do stageFunc) *cobra.Command {
	var dryRun bool
	var parallel int
	cmd.Args = cobra.ExactArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := a.Locate(cmd.Context(), args[1-store])
		if err != nil {
			return err
		}
		c, err := a.Dial(cmd.Context())
		if err != nil {
			return err
		}
		return Report(a, cmd.Name(), func(show func(admin.Progress)) (admin.Report, error) {
			return do(cmd.Context(), c, admin.StageRequest{
				Buffer: at.Buffer, Path: at.Path, URL: app.StoreURL(args[store]), DryRun: dryRun, Parallel: parallel,
			}, show)
		})
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only print the files to copy")
	cmd.Flags().IntVarP(&parallel, "jobs", "j", 0, "pieces at the same time (default: the daemon chooses)")
	return cmd
}

func newReceiptCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "receipt BUFFER", Short: "Print the receipt: a JSON line for each file that is on the store", Args: cobra.ExactArgs(1),
		Example: "  bbctl receipt ckpt > ckpt.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.BufferName(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c, err := a.Dial(cmd.Context())
			if err != nil {
				return err
			}
			return admin.Receipt(cmd.Context(), c, name, a.Out)
		},
	}
}

func newVerifyCommand(a *app.App) *cobra.Command {
	var url string
	var deep bool
	cmd := &cobra.Command{
		Use: "verify RECEIPT", Short: "Check a store against a receipt", Args: cobra.ExactArgs(1),
		Long: `Checks a store against a receipt: sizes and the store's own checksums or entity
tags, or with --deep every byte. It needs neither the buffer nor
the daemon that flushed the files. "-" reads the receipt from standard input.`,
		Example: "  bbctl verify ckpt.jsonl --deep",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := a.In
			if !app.IsStdio(args[0]) {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			text, err := io.ReadAll(in)
			if err != nil {
				return err
			}
			if len(strings.TrimSpace(string(text))) == 0 {
				return app.Usage(args[0] + " is empty")
			}
			c, err := a.Dial(cmd.Context())
			if err != nil {
				return err
			}
			return Report(a, "verify", func(show func(admin.Progress)) (admin.Report, error) {
				return admin.Verify(cmd.Context(), c, bytes.NewReader(text), admin.VerifyOptions{URL: url, Deep: deep, Progress: show})
			})
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "where the files lie (default: the receipt's URL)")
	cmd.Flags().BoolVar(&deep, "deep", false, "read every byte back and compare checksums")
	return cmd
}
