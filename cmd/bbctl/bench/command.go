package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/layout"
	"forebay/internal/measure"
)

// Front is the part of the program around it that the command needs.
type Front struct {
	Buffer func(ctx context.Context, address string) (*client.Buffer, client.Address, error)
	Dial   func(context.Context) (*client.Client, error)
	Size   func(what, text string) (int64, error)
	Step   func(line string)              // shows the progress of the run
	Print  func(v any, text func()) error // v as JSON, or text
	View   func() layout.View             // the view that text is fitted to
	Lines  func([]string)                 // prints them
	Partly func(error) error              // makes an error of one whose command did a part
}

const long = `Measures a buffer of yours for about a minute (--time), and puts this machine's figure
without Forebay beside each result, measured in the same run:

  write        large files         beside a copy of memory with its checksum
  sync         4 KiB appended      beside a round trip on a unix socket
  read         files in memory     beside a copy of memory with its checksum
  drain        until on the store  beside a direct write to the store's folder
  read back    from the store      beside a read of the same files there
  small files  of 4 KiB            beside round trips on a unix socket

A ratio is result / limit: more is better for rates, less for times. If a row cannot be measured,
the reason is printed: a buffer without a store has no drain, and the rate of a store
is measured only where its folder is on this machine and you may write there. No command
evicts a file: read back reads files that were evicted meanwhile, else it stages the
drained ones in.

It writes below the directory that you name, into one of its own, which it removes at the
end, also after ^C. The daemon then removes the files that reached the store. It never has more than
--size in the buffer: by default a tenth of the buffer's limit in this node's memory,
at most half of the memory that is free, and 1 GiB. Figures include the node's other work.

It exits 0 if all was measured that can be measured here, 7 if a row failed.`

// NewCommand returns bbctl bench.
func NewCommand(f Front) *cobra.Command {
	var o Options
	var size string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "bench bb://BUFFER[/DIRECTORY]", Short: "Measure a buffer of yours beside the limits of this machine", Long: long, Args: cobra.ExactArgs(1),
		Example: "  bbctl bench bb://ckpt\n  bbctl bench bb://ckpt/tmp --size 2GiB --time 2m --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if size != "" {
				if o.Size, err = f.Size("--size", size); err != nil {
					return err
				}
			}
			_, at, err := f.Buffer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c, err := f.Dial(cmd.Context())
			if err != nil {
				return err
			}
			run, err := New(cmd.Context(), c, at, o)
			if err != nil {
				return err
			}
			if dryRun {
				return f.plan(run)
			}
			return f.measure(cmd.Context(), run)
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "bytes in the buffer at most (default: a tenth of its limit)")
	cmd.Flags().DurationVar(&o.Time, "time", time.Minute, "how long to measure, about")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only print the measurements, their place and bytes")
	return cmd
}

// plan prints the steps of a run.
func (f Front) plan(r *Run) error {
	v := struct {
		Would string   `json:"would"`
		Path  string   `json:"path"`
		Bytes int64    `json:"bytes"`
		Time  float64  `json:"seconds"`
		Rows  []string `json:"rows"`
	}{Would: "measure", Path: r.Directory(), Bytes: r.Size(), Time: r.time.Seconds()}
	for _, row := range rows {
		v.Rows = append(v.Rows, row.name)
	}
	return f.Print(v, func() {
		f.line(fmt.Sprintf("would measure %s, with at most %s, for about %v", v.Path, measure.Quantity(float64(v.Bytes), measure.Bytes), r.time))
	})
}

// measure measures all rows and prints the report, also when some have failed.
func (f Front) measure(ctx context.Context, r *Run) error {
	report, err := r.Measure(ctx, func(row, rows int, name string) {
		f.Step(fmt.Sprintf("bench: row %d of %d: %s", row, rows, name))
	})
	if err != nil {
		return err
	}
	if err := f.Print(report, func() { f.text(report) }); err != nil {
		return err
	}
	err, part := report.Err()
	if err != nil && part {
		return f.Partly(err)
	}
	return err
}

// columns are those of Cells. On a narrow terminal, the names of the limits go first.
var columns = []layout.Column{
	{Head: "ROW"}, {Head: "RESULT"}, {Head: "LIMIT"}, {Head: "RATIO", Spare: 1}, {Head: "WHAT THE LIMIT IS", Spare: 2},
}

func (f Front) text(report *Report) {
	var cells [][]layout.Cell
	for i := range report.Rows {
		var row []layout.Cell
		for _, text := range report.Rows[i].Cells() {
			row = append(row, layout.Cell{Text: text})
		}
		cells = append(cells, row)
	}
	f.Lines(f.View().Table(columns, cells))
	f.line("")
	for i := range report.Rows {
		for _, line := range report.Rows[i].Lines() {
			f.line(line)
		}
	}
	f.line(fmt.Sprintf("%s, %s in the buffer at most, %.0f s; the directory is removed, and its files on the store follow", report.Directory,
		measure.Quantity(float64(report.Bytes), measure.Bytes), report.Seconds))
}

func (f Front) line(text string) { f.Lines(f.View().Lines(layout.Message{Text: text})) }
