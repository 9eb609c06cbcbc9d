package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// row is one row of the budgets: a limit and our result, measured in the same run.
type row struct {
	number  int
	what    string
	measure func(context.Context, *env) ([]Result, error)
}

// Result is a line of the report. A row gives more than one where it asks for more
// than one: a median and a 99th percentile, or several stores.
type Result struct {
	Row         int       `json:"row"`
	What        string    `json:"what"`
	Goal        Goal      `json:"goal"`
	Limit       *Figure   `json:"limit,omitempty"`
	Result      *Figure   `json:"result,omitempty"`
	Ratio       *float64  `json:"ratio,omitempty"` // result / limit
	Reached     *bool     `json:"reached,omitempty"`
	Details     []*Figure `json:"details,omitempty"` // further figures of the same run
	Notes       []string  `json:"notes,omitempty"`
	NotMeasured string    `json:"not_measured,omitempty"` // why there is no result
	Failed      bool      `json:"failed,omitempty"`       // it should have been possible
}

// unmeasured is the error of a row that cannot be measured here.
type unmeasured struct{ reason string }

func (u unmeasured) Error() string { return u.reason }

// cannot says why a row cannot be measured here.
func cannot(format string, args ...any) error { return unmeasured{fmt.Sprintf(format, args...)} }

// rows are all rows, in order.
func rows() []row {
	return []row{
		{1, "local write, checksummed and committed", localWrite},
		{2, "local read, copied out and verified", localRead},
		{3, "local read, mapped", mappedRead},
		{4, "local write, 4 clients", manyWriters},
		{5, "remote write and read, tcp, 1 MiB", remote},
		{6, "remote write and read, ofi over tcp", overLibfabric},
		{7, "sync of 4 KiB appended", syncAppended},
		{8, "create + write 4 KiB + close, one client", createOne},
		{9, "create + write 4 KiB + close, 64 in flight", createMany},
		{10, "stat, warm", statWarm},
		{11, "flush to POSIX", flushPOSIX},
		{12, "flush to S3", flushS3},
		{13, "stage-in", stageIn},
		{14, "restart with files resident", restart},
		{15, "processor time of a local write", processorTime},
		{16, "burst: time until the application goes on", burst},
		{17, "time to durable", timeToDurable},
		{18, "N-to-1: one shared file against a file each", sharedFile},
	}
}

// choose returns the rows that were asked for; all for none.
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
			return nil, invalid("row", word, "is not a number")
		case at < 0:
			return nil, invalid("row", word, "there is no such row; there are 1 to 18")
		}
		chosen = append(chosen, all[at])
	}
	slices.SortFunc(chosen, func(a, b row) int { return a.number - b.number })
	return slices.CompactFunc(chosen, func(a, b row) bool { return a.number == b.number }), nil
}

// run measures a row and completes its lines. A row that fails, or that cannot be
// measured, gives a line that says so.
func (r row) run(ctx context.Context, e *env) []Result {
	results, err := r.measure(ctx, e)
	if err != nil {
		var reason unmeasured
		missing := Result{What: r.what, NotMeasured: err.Error(), Failed: !errors.As(err, &reason)}
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
		line.Ratio = ratio(line.Result, line.Limit)
		if line.Reached == nil { // a row whose goal is no bound has said so itself
			line.Reached = line.Goal.met(line.Result, line.Ratio)
		}
	}
	return results
}
