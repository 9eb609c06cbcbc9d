// Package layout fits text and tables to the width of a terminal. It must never depend on their subject,
// nor the place of the output.
package layout

import (
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// View is the screen that text is fitted to.
type View struct {
	Width  int  // of a line; 0: lines may be as long as they are
	Colour bool // styles are shown
}

// plainWidth is the width of a terminal that does not report it.
const plainWidth = 80

// WidthOf returns how wide a terminal is.
func WidthOf(terminal *os.File) int {
	width, _, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 {
		return plainWidth
	}
	return width
}

// Colours reports whether a terminal is to show colours (no-color.org).
func Colours(env func(string) string) bool { return env("NO_COLOR") == "" && env("TERM") != "dumb" }

// Style is how text stands out.
type Style uint8

// The styles.
const (
	Plain Style = iota
	Heading
	Good
	Warning
	Bad
)

// paint returns text in a style.
func (v View) paint(text string, s Style) string {
	if !v.Colour || text == "" {
		return text
	}
	var as ansi.Style
	switch s {
	case Heading:
		as = as.Bold()
	case Good:
		as = as.ForegroundColor(ansi.Green)
	case Warning:
		as = as.ForegroundColor(ansi.Yellow)
	case Bad:
		as = as.ForegroundColor(ansi.Red)
	case Plain:
		return text
	}
	return as.Styled(text)
}

// Message is a line of text, which may be wrapped.
type Message struct {
	Text  string
	Style Style
}

// indent begins the further lines of a wrapped message.
const indent = "  "

// Lines returns a message in lines that are no wider than the view.
func (v View) Lines(m Message) []string {
	if v.Width <= 0 || ansi.StringWidth(m.Text) <= v.Width {
		return []string{v.paint(m.Text, m.Style)}
	}
	room := v.Width - len(indent)
	lead := indent
	if room < len(indent) {
		room, lead = v.Width, ""
	}
	lines := strings.Split(ansi.Wrap(m.Text, room, ""), "\n")
	for i := range lines {
		if i > 0 {
			lines[i] = lead + lines[i]
		}
		lines[i] = v.paint(lines[i], m.Style)
	}
	return lines
}

// Column is one of a table. Those with the highest Spare are left out first where the table is too
// wide. Those with 0 stay.
type Column struct {
	Head  string
	Spare int
}

// Cell is one field of a table.
type Cell struct {
	Text  string
	Style Style
}

const gap = 2 // columns of the screen between two of a table

// Table returns a table in lines that are no wider than the view.
func (v View) Table(columns []Column, rows [][]Cell) []string {
	head := make([]Cell, len(columns))
	for i, c := range columns {
		head[i] = Cell{c.Head, Heading}
	}
	all := append([][]Cell{head}, rows...)
	widths := make([]int, len(columns))
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c.Text))
		}
	}
	shown := fitColumns(columns, widths, v.Width)
	lines := make([]string, 0, len(all))
	for _, row := range all {
		lines = append(lines, v.row(row, widths, shown))
	}
	return lines
}

// row returns one row of a table.
func (v View) row(row []Cell, widths, shown []int) string {
	var b strings.Builder
	for n, i := range shown {
		text := ansi.Truncate(row[i].Text, widths[i], "…")
		b.WriteString(v.paint(text, row[i].Style))
		if n < len(shown)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(text)+gap))
		}
	}
	return b.String()
}

// fitColumns returns the columns that are shown, and lessens their widths, so that a line is no
// wider than width (0: any).
func fitColumns(columns []Column, widths []int, width int) (shown []int) {
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
		least := slices.MaxFunc(shown, func(a, b int) int { return columns[a].Spare - columns[b].Spare })
		if columns[least].Spare == 0 {
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
