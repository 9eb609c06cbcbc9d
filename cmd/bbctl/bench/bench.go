// Package bench measures Forebay against the limits of the machine it runs on: every
// row prints a limit, our result and their ratio, from the same run. It starts daemons
// of its own and removes them. It knows the client and plain files; it must never know
// a figure that it did not measure.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"forebay/internal/bb"
)

// options are the command's flags.
type options struct {
	rows     []string
	quick    bool
	size     string
	socket   string
	bbd      string
	dir      string
	users    int
	s3       string
	s3Server string
	json     bool
}

const long = `Measures the rows of docs/performance.md: 1 to 5 and 7 to 17. Each prints a limit that
is measured in the same run, our result and their ratio.

It starts a daemon of its own in a temporary folder (bbd beside bbctl, or on PATH) and
removes it at the end. With --socket it uses a running one, for the rows that can, and
leaves it as it was; then figures include what else that daemon does.

With --users, rows 11 (POSIX) and 13 (POSIX) are measured with so many users at once, each
with a buffer and a folder of its own: root's daemon then reaches the store by store workers.

--dir is where rows 11, 13, 16 and 17 keep files: choose a folder on the disk or file
system to be measured. Rows 12 and 13 need a bucket: --s3 with credentials in AWS_*, or
--s3-server with the binary of versitygw, which is started on loopback.

The full run needs about 14 GiB of free memory and 10 GiB of disk, and takes some
minutes; --quick is the same with small sizes, and says little about speed.

It exits 0 only if all rows that were asked for were measured; of all rows, those that
can be measured here.`

// NewCommand returns `bbctl bench`.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "bench [ROW…]",
		Short:         "Measure against the limits of this machine",
		Long:          long,
		Args:          cobra.ArbitraryArgs, // rows; choose checks them
		Example:       "  bbctl bench 1 2 7\n  bbctl bench --rows 11,13 --dir /lustre/me --json > bench.json",
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
	flags.StringVar(&o.socket, "socket", "", "socket of a running daemon to use instead of starting one")
	flags.StringVar(&o.bbd, "bbd", "", "the daemon's binary (default beside bbctl, else on PATH)")
	flags.StringVar(&o.dir, "dir", "", "folder on the file system to flush to (default a temporary one)")
	flags.IntVar(&o.users, "users", 0, "measure rows 11 and 13 with so many users at once, of uids without names (default as yourself)")
	flags.StringVar(&o.s3, "s3", "", "s3://bucket/prefix?endpoint=… for rows 12 and 13")
	flags.StringVar(&o.s3Server, "s3-server", "", "binary of an S3 server (versitygw) to start for rows 12 and 13")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	cmd.AddCommand(newWorkerCommand())
	return cmd
}

// run measures the rows that were asked for and prints the report, also when some failed.
func run(cmd *cobra.Command, o options) (err error) {
	chosen, err := choose(rows(), o.rows)
	if err != nil {
		return err
	}
	sizes, err := newSizes(o.quick, o.size)
	if err != nil {
		return err
	}
	if err := checkUsers(o); err != nil {
		return err
	}
	e, err := newEnv(o, sizes, func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "bench: "+format+"\n", args...)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	report := &Report{Options: sizes}
	for _, r := range chosen {
		began := time.Now()
		e.log("row %d: %s", r.number, r.what)
		report.Rows = append(report.Rows, r.run(cmd.Context(), e)...)
		e.log("row %d took %v", r.number, time.Since(began).Round(time.Millisecond))
		if cmd.Context().Err() != nil {
			return bb.Wrap("bench", "", context.Cause(cmd.Context()))
		}
	}
	report.Machine = describeMachine(e)
	if o.json {
		err = report.writeJSON(cmd.OutOrStdout())
	} else {
		err = report.writeTable(cmd.OutOrStdout())
	}
	return errors.Join(err, failures(report.Rows, len(o.rows) > 0))
}

// failures is the error that names what was not measured: what failed, and, where
// rows were asked for by number, what cannot be measured here.
func failures(results []Result, named bool) error {
	var errs []error
	for _, r := range results {
		if r.NotMeasured != "" && (r.Failed || named) {
			errs = append(errs, fmt.Errorf("row %d: %s", r.Row, r.NotMeasured))
		}
	}
	return errors.Join(errs...)
}

func invalid(what, value, reason string) error {
	return bb.E(bb.Invalid, "bench", fmt.Sprintf("%s %q", what, value), reason)
}

// Sizes say how much is measured. All follow from the size of a file.
type Sizes struct {
	Quick  bool  `json:"quick"`
	File   int64 `json:"file"`   // bytes of the file of rows 1 to 6 and 15
	Flush  int64 `json:"flush"`  // bytes of rows 11 and 13
	S3     int64 `json:"s3"`     // bytes of rows 12 and 13
	Burst  int64 `json:"burst"`  // bytes of row 16
	Files  int   `json:"files"`  // files that are resident in row 14
	Rounds int   `json:"rounds"` // times that limit and result are measured, one after the other
	Small  int   `json:"small"`  // operations of one round of rows 6 to 10

	DurableTime time.Duration `json:"durable_time_ns"` // of each load of row 17
}

const (
	minFile = 16 << 20
	maxFile = 64 << 30
)

func newSizes(quick bool, file string) (Sizes, error) {
	s := Sizes{File: 1 << 30, Files: 10_000, Rounds: 5, Small: 2000, DurableTime: 20 * time.Second}
	if quick {
		s = Sizes{Quick: true, File: 64 << 20, Files: 500, Rounds: 2, Small: 200, DurableTime: time.Second}
	}
	if file != "" {
		n, err := humanize.ParseBytes(file)
		if err != nil || n < minFile || n > maxFile {
			return s, invalid("size", file, "is not a size from 16MiB to 64GiB")
		}
		s.File = int64(n) / step * step
	}
	s.Flush, s.S3, s.Burst = 2*s.File, s.File/2, 8*s.File
	return s, nil
}

// memory returns how much of it the daemon of most rows gets: room for the resident
// files of row 14 and what the daemon keeps beside, in whole regions.
func (s Sizes) memory() int64 { return wholeRegions(6 * s.File) }

const region = 1 << 30 // the default size of a region

func wholeRegions(n int64) int64 { return max(1, (n+region-1)/region) * region }

func temporary(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "forebay-bench-")
	return dir, bb.Wrap("bench", in, err)
}
