package main

import (
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A view is what text is fitted to.
type view struct {
	width  int  // of a line; 0: lines may be as long as they are
	colour bool // styles are shown
}

// plainWidth is what a terminal has that does not say how wide it is.
const plainWidth = 80

// viewOf returns how to print on standard output.
func (a *app) viewOf() view {
	f := a.terminal()
	if f == nil {
		return view{}
	}
	return view{width: widthOf(f), colour: colours(os.Getenv)}
}

// terminal is standard output if it is a terminal, else nil.
func (a *app) terminal() *os.File {
	w := a.out
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok || a.json || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// fitted has what print prints wrapped where it is wider than the terminal.
func (a *app) fitted(print func()) {
	v, out := a.viewOf(), a.out
	var text strings.Builder
	a.out = &text
	print()
	a.out = out
	for line := range strings.Lines(text.String()) {
		a.printLines(v.lines(message{strings.TrimSuffix(line, "\n"), plain}))
	}
}

func widthOf(terminal *os.File) int {
	width, _, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 {
		return plainWidth
	}
	return width
}

// colours reports whether a terminal is to show colours (no-color.org).
func colours(env func(string) string) bool { return env("NO_COLOR") == "" && env("TERM") != "dumb" }

// style is how text stands out.
type style uint8

const (
	plain style = iota
	heading
	good
	warning
	bad
)

// paint returns text in a style.
func (v view) paint(text string, s style) string {
	if !v.colour || text == "" {
		return text
	}
	var as ansi.Style
	switch s {
	case heading:
		as = as.Bold()
	case good:
		as = as.ForegroundColor(ansi.Green)
	case warning:
		as = as.ForegroundColor(ansi.Yellow)
	case bad:
		as = as.ForegroundColor(ansi.Red)
	case plain:
		return text
	}
	return as.Styled(text)
}

// message is a line of text, which may be wrapped.
type message struct {
	text  string
	style style
}

// indent is what the further lines of a wrapped message begin with.
const indent = "  "

// lines returns a message in lines that are no wider than the view.
func (v view) lines(m message) []string {
	if v.width <= 0 || ansi.StringWidth(m.text) <= v.width {
		return []string{v.paint(m.text, m.style)}
	}
	room := v.width - len(indent)
	lead := indent
	if room < len(indent) {
		room, lead = v.width, ""
	}
	lines := strings.Split(ansi.Wrap(m.text, room, ""), "\n")
	for i := range lines {
		if i > 0 {
			lines[i] = lead + lines[i]
		}
		lines[i] = v.paint(lines[i], m.style)
	}
	return lines
}

// column is one of a table. Those with the highest Spare are left out first where the table is
// too wide; those with 0 stay.
type column struct {
	head  string
	spare int
}

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

const gap = 2 // columns of the screen between two of a table

// table returns a table in lines that are no wider than the view.
func (v view) table(columns []column, rows [][]cell) []string {
	head := make([]cell, len(columns))
	for i, c := range columns {
		head[i] = cell{c.head, heading}
	}
	all := append([][]cell{head}, rows...)
	widths := make([]int, len(columns))
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c.text))
		}
	}
	shown := fitColumns(columns, widths, v.width)
	lines := make([]string, 0, len(all))
	for _, row := range all {
		lines = append(lines, v.row(row, widths, shown))
	}
	return lines
}

// row returns one row of a table.
func (v view) row(row []cell, widths, shown []int) string {
	var b strings.Builder
	for n, i := range shown {
		text := ansi.Truncate(row[i].text, widths[i], "…")
		b.WriteString(v.paint(text, row[i].style))
		if n < len(shown)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(text)+gap))
		}
	}
	return b.String()
}

// fitColumns returns the columns that are shown, and lessens their widths, so that a line is no
// wider than width (0: any).
func fitColumns(columns []column, widths []int, width int) (shown []int) {
	for i := range columns {
		shown = append(shown, i)
	}
	total := func() (sum int) {
		for _, i := range shown {
			sum += widths[i] + gap
		}
		return sum - gap
	}
	for width > 0 && total() > width {
		least := slices.MaxFunc(shown, func(a, b int) int { return columns[a].spare - columns[b].spare })
		if columns[least].spare == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == least })
	}
	for width > 0 && total() > width {
		widest := slices.MaxFunc(shown, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] > 1 {
			widths[widest]--
		} else {
			shown = shown[:len(shown)-1]
		}
	}
	return shown
}
