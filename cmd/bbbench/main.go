// Command bbbench measures Forebay against the limits of the machine it runs on, for its
// developers. Each row of docs/performance.md prints a limit, our result and their ratio, from the
// same run. It starts daemons of its own and removes them. It must never be needed at a site, which
// has bbctl bench.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/stores"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/cli"
)

// version is set when a release is built (see the Makefile).
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bbbench:", err)
		os.Exit(cli.CodeOf(err)) // as of bbctl: see its help
	}
}

// options are the command's flags.
type options struct {
	testbed.Place
	rows  []string
	quick bool
	size  string
	json  bool
}

const long = `Measures the rows of docs/performance.md: 1 to 18. Each prints a limit that
is measured in the same run, our result and their ratio.

It starts a daemon of its own in a temporary folder (bbd beside bbbench, or on PATH) and
removes it at the end. With --socket it uses a running one, for the rows that can, and
leaves it as it was; then figures include that daemon's other work.

With --users, rows 11 (POSIX) and 13 (POSIX) are measured with so many users at once, each
with a buffer and a folder of its own: root's daemon then reaches the store by store workers.

--dir is where rows 11, 13, 16 and 17 keep files: choose a folder on the disk or file
system to be measured. Rows 12 and 13 need a bucket: --s3 with credentials in AWS_*, or
--s3-server with the binary of versitygw, which is started on loopback.

The full run needs about 14 GiB of free memory and 10 GiB of disk, and takes some
minutes; --quick is the same with small sizes, and says little about speed.

It exits 0 only if all rows that were asked for were measured; of all rows, those that
can be measured here.`

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "bbbench [ROW…]",
		Version:       version,
		Short:         "Measure Forebay against the limits of this machine",
		Long:          long,
		Args:          cobra.ArbitraryArgs, // rows; choose checks them
		Example:       "  bbbench 1 2 7\n  bbbench --rows 11,13 --dir /lustre/me --json > bench.json",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.rows = append(o.rows, args...)
			return run(cmd, o)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.rows, "rows", nil, "rows to measure (default all)")
	flags.BoolVar(&o.quick, "quick", false, "small sizes, few rounds")
	flags.StringVar(&o.size, "size", "", "size of a file; what others are derived from (default 1GiB, with --quick 64MiB)")
	flags.StringVar(&o.Socket, "socket", "", "socket of a running daemon to use instead of starting one")
	flags.StringVar(&o.Bbd, "bbd", "", "the daemon's binary (default beside bbbench, else on PATH)")
	flags.StringVar(&o.Bbmount, "bbmount", "", "the mount's binary (default beside the daemon's, else on PATH)")
	flags.StringVar(&o.Dir, "dir", "", "folder on the file system to flush to (default a temporary one)")
	flags.IntVar(&o.Users, "users", 0, "measure rows 11 and 13 with so many users at once, of uids without names (default as yourself)")
	flags.StringVar(&o.S3, "s3", "", "s3://bucket/prefix?endpoint=… for rows 12 and 13")
	flags.StringVar(&o.S3Server, "s3-server", "", "binary of an S3 server (versitygw) to start for rows 12 and 13")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(newWorkerCommand())
	cli.FlagErrors(cmd, func(why string) error {
		return bb.E(bb.Invalid, "command line", "", why).WithRemedy("see bbbench --help")
	})
	return cmd
}

// run measures the requested rows and prints the report, also when some failed.
func run(cmd *cobra.Command, o options) (err error) {
	chosen, err := choose(rows(), o.rows)
	if err != nil {
		return err
	}
	sizes := testbed.FullSizes()
	if o.quick {
		sizes = testbed.QuickSizes()
	}
	if o.size != "" {
		if sizes, err = sizes.WithFile(o.size); err != nil {
			return err
		}
	}
	if err := stores.CheckUsers(o.Place); err != nil {
		return err
	}
	e, err := testbed.NewEnv(o.Place, sizes, func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "bbbench: "+format+"\n", args...)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	report := &report.Report{Options: sizes}
	for _, r := range chosen {
		began := time.Now()
		e.Log("row %d: %s", r.number, r.what)
		report.Rows = append(report.Rows, r.run(cmd.Context(), e)...)
		e.Log("row %d took %v", r.number, time.Since(began).Round(time.Millisecond))
		if cmd.Context().Err() != nil {
			return bb.Wrap("bench", "", context.Cause(cmd.Context()))
		}
	}
	report.Machine = describeMachine(e)
	if o.json {
		err = report.WriteJSON(cmd.OutOrStdout())
	} else {
		err = report.WriteTable(cmd.OutOrStdout())
	}
	return errors.Join(err, failures(report.Rows, len(o.rows) > 0))
}

// failures is the error that names the rows without a figure: failed ones, and, where rows were
// requested by number, those that cannot be measured here.
func failures(results []report.Result, named bool) error {
	var errs []error
	for _, r := range results {
		if r.NotMeasured != "" && (r.Failed || named) {
			errs = append(errs, fmt.Errorf("row %d: %s", r.Row, r.NotMeasured))
		}
	}
	return errors.Join(errs...)
}
