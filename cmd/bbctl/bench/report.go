package bench

import (
	"errors"
	"fmt"
	"strings"

	"forebay/internal/measure"
)

// Report is the result of a run.
type Report struct {
	Buffer    string  `json:"buffer"`
	Directory string  `json:"directory"` // that it has removed
	Bytes     int64   `json:"bytes"`     // that it had in the buffer at most
	Seconds   float64 `json:"seconds"`
	Daemon    string  `json:"daemon"`
	Rows      []Row   `json:"rows"`
}

// Row is one line: a result, and this machine's figure without Forebay.
type Row struct {
	Name        string          `json:"row"`
	Result      *measure.Figure `json:"result,omitempty"`
	Limit       *measure.Figure `json:"limit,omitempty"`
	Ratio       *float64        `json:"ratio,omitempty"` // result / limit
	Notes       []string        `json:"notes,omitempty"`
	NotMeasured string          `json:"not_measured,omitempty"` // the reason why there is no result
	Failed      bool            `json:"failed,omitempty"`       // there should be one

	err error
}

// Cells returns the line of a table: the name, the result, the limit, their ratio, the limit's description.
func (r *Row) Cells() []string {
	cells := []string{r.Name, "-", "-", "-", ""}
	if r.Result != nil {
		cells[1] = measure.Quantity(r.Result.Value, r.Result.Unit)
	}
	if r.Limit != nil {
		cells[2], cells[4] = measure.Quantity(r.Limit.Value, r.Limit.Unit), r.Limit.What
	}
	if r.Ratio != nil {
		cells[3] = measure.Digits(*r.Ratio)
	}
	return cells
}

// Lines returns the explanations of a row, for below the table.
func (r *Row) Lines() []string {
	var lines []string
	if r.Result != nil {
		line := r.Name + ": " + r.Result.What
		if r.Result.Samples > 1 {
			line += fmt.Sprintf("; the median of %d, the best %s", r.Result.Samples, measure.Quantity(r.Result.Best, r.Result.Unit))
		}
		lines = append(lines, line)
	}
	if r.NotMeasured != "" {
		lines = append(lines, r.Name+": not measured: "+strings.ReplaceAll(r.NotMeasured, "\n", "; "))
	}
	for _, note := range r.Notes {
		lines = append(lines, r.Name+": "+note)
	}
	return lines
}

// Err is the error of rows that failed, or nil if none has. part means that other rows were measured.
func (r *Report) Err() (err error, part bool) {
	var errs []error
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Failed {
			errs = append(errs, fmt.Errorf("%s: %w", row.Name, row.err))
		}
		part = part || row.Result != nil
	}
	return errors.Join(errs...), part
}
