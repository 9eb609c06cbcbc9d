// Package report has the results of rows, their goals, and the table of them. It must never depend on
// the measurement of a row.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"forebay/internal/measure"
)

// Report is the result of a run.
type Report struct {
	Machine Machine  `json:"machine"`
	Options any      `json:"sizes"` // how much was measured
	Rows    []Result `json:"rows"`
}

// WriteJSON writes the report as one JSON value.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// WriteTable writes a line for each result and its limit, and below the
// table further figures and notes.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tWHAT\tLIMIT\tRESULT\tRATIO\tREACH\t")
	for _, l := range r.Rows {
		if l.NotMeasured != "" {
			fmt.Fprintf(t, "%d\t%s\t-\t-\t-\t%s\tnot measured\n", l.Row, l.What, dash(l.Goal.Text))
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Row, l.What,
			text(l.Limit), text(l.Result), ratioText(l.Ratio), dash(l.Goal.Text), verdict(l.Reached))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.explanations())
	return err
}

// explanations describes each limit and result, and the reasons of missing ones.
func (r *Report) explanations() string {
	var b strings.Builder
	for _, l := range r.Rows {
		fmt.Fprintf(&b, "\nrow %d: %s\n", l.Row, l.What)
		if l.NotMeasured != "" {
			fmt.Fprintf(&b, "  not measured: %s\n", l.NotMeasured)
		}
		if l.Limit != nil {
			fmt.Fprintf(&b, "  limit:  %s\n", sentence(l.Limit))
		}
		if l.Result != nil {
			fmt.Fprintf(&b, "  result: %s\n", sentence(l.Result))
		}
		for _, f := range l.Details {
			fmt.Fprintf(&b, "  also:   %s\n", sentence(f))
		}
		for _, note := range l.Notes {
			fmt.Fprintf(&b, "  note:   %s\n", note)
		}
	}
	return b.String()
}

func text(f *measure.Figure) string {
	if f == nil {
		return "-"
	}
	return measure.Quantity(f.Value, f.Unit)
}

func sentence(f *measure.Figure) string {
	s := f.What + ": " + text(f)
	if f.Samples > 1 {
		s += fmt.Sprintf(" (best %s", measure.Quantity(f.Best, f.Unit))
		if f.P99 != 0 {
			s += ", p99 " + measure.Quantity(f.P99, f.Unit)
		}
		s += fmt.Sprintf(", of %s)", humanize.Comma(int64(f.Samples)))
	}
	return s
}

func ratioText(r *float64) string {
	if r == nil {
		return "-"
	}
	if *r < 0.9995 {
		return fmt.Sprintf("%.2f", *r)
	}
	return measure.Digits(*r)
}

func verdict(reached *bool) string {
	switch {
	case reached == nil:
		return ""
	case *reached:
		return "reached"
	default:
		return "not reached"
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Machine describes where a report was made.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	Memory     int64  `json:"memory"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Daemon     string `json:"daemon"`
	Regions    string `json:"regions"` // the memory that limits were measured with
	Store      string `json:"store"`   // the file system that was flushed to
	When       string `json:"when"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d processors, %s of memory, Linux %s, %s, %s; regions: %s; --dir on %s",
		m.Processor, m.Processors, measure.Quantity(float64(m.Memory), measure.Bytes), m.Kernel, m.Go, m.Daemon, dash(m.Regions), m.Store)
}
