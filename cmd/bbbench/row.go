package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"forebay/cmd/bbbench/datapath"
	"forebay/cmd/bbbench/latency"
	"forebay/cmd/bbbench/mounted"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/restart"
	"forebay/cmd/bbbench/stores"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/measure"
)

// row is one row of the budgets: a limit and our result, measured in the same run.
type row struct {
	number  int
	what    string
	measure func(context.Context, *testbed.Env) ([]report.Result, error)
}

// rows are all rows, in order.
func rows() []row {
	return []row{
		{1, "local write, checksummed and committed", datapath.Write},
		{2, "local read, copied out and verified", datapath.Read},
		{3, "local read, mapped", datapath.Mapped},
		{4, "local write, 4 clients", datapath.Writers},
		{5, "remote write and read, tcp, 1 MiB", datapath.Remote},
		{6, "remote write and read, ofi over tcp", datapath.Libfabric},
		{7, "sync of 4 KiB appended", latency.Sync},
		{8, "create + write 4 KiB + close, one client", latency.CreateOne},
		{9, "create + write 4 KiB + close, 64 in flight", latency.CreateMany},
		{10, "stat, warm", latency.Stat},
		{11, "flush to POSIX", stores.FlushPOSIX},
		{12, "flush to S3", stores.FlushS3},
		{13, "stage-in", stores.StageIn},
		{14, "restart with files resident", restart.Measure},
		{15, "processor time of a local write", datapath.ProcessorTime},
		{16, "burst: time until the application goes on", stores.Burst},
		{17, "time to durable", stores.TimeToDurable},
		{18, "N-to-1: one shared file against a file each", datapath.Shared},
		{20, "mount: dd", mounted.Copy},
		{21, "mount: small files", mounted.Small},
	}
}

// choose returns the requested rows, or all if none were.
func choose(all []row, args []string) ([]row, error) {
	if len(args) == 0 {
		return all, nil
	}
	var chosen []row
	for _, word := range strings.FieldsFunc(strings.Join(args, ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		number, err := strconv.Atoi(word)
		at := slices.IndexFunc(all, func(r row) bool { return r.number == number })
		switch {
		case err != nil:
			return nil, testbed.Invalid("row", word, "is not a number")
		case at < 0:
			return nil, testbed.Invalid("row", word, "there is no such row; there are 1 to 18, 20 and 21")
		}
		chosen = append(chosen, all[at])
	}
	slices.SortFunc(chosen, func(a, b row) int { return a.number - b.number })
	return slices.CompactFunc(chosen, func(a, b row) bool { return a.number == b.number }), nil
}

// run measures a row and completes its lines. A row that fails, or that cannot be
// measured, has a line with the reason.
func (r row) run(ctx context.Context, e *testbed.Env) []report.Result {
	results, err := r.measure(ctx, e)
	if err != nil {
		var reason measure.Unmeasured
		missing := report.Result{What: r.what, NotMeasured: err.Error(), Failed: !errors.As(err, &reason)}
		results = append(results, missing)
	}
	for i := range results {
		line := &results[i]
		line.Row = r.number
		if line.What == "" {
			line.What = r.what
		}
		if line.Result == nil {
			continue
		}
		line.Ratio = measure.Ratio(line.Result, line.Limit)
		if line.Reached == nil { // a row whose goal is no bound has set it itself
			line.Reached = line.Goal.Met(line.Result, line.Ratio)
		}
	}
	return results
}
