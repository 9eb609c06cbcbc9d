package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
)

// Report is what a run of the benchmark says.
type Report struct {
	Machine Machine  `json:"machine"`
	Options Sizes    `json:"sizes"`
	Rows    []Result `json:"rows"`
}

func (r *Report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// writeTable writes a line for each result, what it was compared with, and below the
// table further figures and notes.
func (r *Report) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tWHAT\tLIMIT\tRESULT\tRATIO\tREACH\t")
	for _, l := range r.Rows {
		if l.NotMeasured != "" {
			fmt.Fprintf(t, "%d\t%s\t-\t-\t-\t%s\tnot measured\n", l.Row, l.What, dash(l.Goal.Text))
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Row, l.What,
			l.Limit.text(), l.Result.text(), ratioText(l.Ratio), dash(l.Goal.Text), verdict(l.Reached))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.explanations())
	return err
}

// explanations says what each limit and result is, and why what was not measured was not.
func (r *Report) explanations() string {
	var b strings.Builder
	for _, l := range r.Rows {
		fmt.Fprintf(&b, "\nrow %d: %s\n", l.Row, l.What)
		if l.NotMeasured != "" {
			fmt.Fprintf(&b, "  not measured: %s\n", l.NotMeasured)
		}
		if l.Limit != nil {
			fmt.Fprintf(&b, "  limit:  %s\n", l.Limit.sentence())
		}
		if l.Result != nil {
			fmt.Fprintf(&b, "  result: %s\n", l.Result.sentence())
		}
		for _, f := range l.Details {
			fmt.Fprintf(&b, "  also:   %s\n", f.sentence())
		}
		for _, note := range l.Notes {
			fmt.Fprintf(&b, "  note:   %s\n", note)
		}
	}
	return b.String()
}

func (f *Figure) text() string {
	if f == nil {
		return "-"
	}
	return quantity(f.Value, f.Unit)
}

func (f *Figure) sentence() string {
	s := f.What + ": " + f.text()
	if f.Samples > 1 {
		s += fmt.Sprintf(" (best %s", quantity(f.Best, f.Unit))
		if f.P99 != 0 {
			s += ", p99 " + quantity(f.P99, f.Unit)
		}
		s += fmt.Sprintf(", of %s)", humanize.Comma(int64(f.Samples)))
	}
	return s
}

// quantity writes a value with three digits that count, in a unit that people read.
func quantity(v float64, u Unit) string {
	switch u {
	case BytesPerSecond:
		return scaled(v, 1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s")
	case Bytes:
		return scaled(v, 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case PerSecond:
		return scaled(v, 1000, "/s", "thousand/s", "million/s")
	case Seconds:
		return scaled(v*1e9, 1000, "ns", "µs", "ms", "s")
	case Times:
		return digits(v) + " ×"
	default:
		return digits(v) + " " + string(u)
	}
}

func scaled(v, step float64, units ...string) string {
	i := 0
	for math.Abs(v) >= step*0.9995 && i < len(units)-1 {
		v /= step
		i++
	}
	return digits(v) + " " + units[i]
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.9995 || a == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func ratioText(r *float64) string {
	if r == nil {
		return "-"
	}
	if *r < 0.9995 {
		return fmt.Sprintf("%.2f", *r)
	}
	return digits(*r)
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
