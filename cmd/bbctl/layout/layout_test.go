package layout

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestTableFits(t *testing.T) {
	columns := []Column{{"NODE", 0}, {"STATE", 0}, {"VERSION", 2}, {"DIRTY", 1}, {"BACKING", 0}}
	rows := [][]Cell{
		{{"n1", Plain}, {"ready", Good}, {"1.2", Plain}, {"3 MiB", Plain}, {"file:///store/of/some/length", Plain}},
		{{"n2", Plain}, {"dead", Bad}, {"1.1", Plain}, {"200 MiB", Bad}, {"s3://bücket/名前", Plain}},
	}
	for _, c := range []struct {
		width int
		want  string // the second row
	}{
		{0, "n1    ready  1.2      3 MiB    file:///store/of/some/length"},
		{59, "n1    ready  1.2      3 MiB    file:///store/of/some/length"},
		{58, "n1    ready  3 MiB    file:///store/of/some/length"},
		{49, "n1    ready  file:///store/of/some/length"},
		{30, "n1    ready  file:///store/of…"},
		{11, "n…  r…  f…"},
		{3, "n"},
		{1, "n"},
	} {
		for _, colour := range []bool{false, true} {
			lines := View{c.width, colour}.Table(columns, rows)
			if got := ansi.Strip(lines[1]); strings.TrimSpace(got) != c.want && c.width > 11 {
				t.Errorf("%d: %q, want %q", c.width, got, c.want)
			}
			for _, line := range lines {
				if c.width > 0 && ansi.StringWidth(line) > c.width {
					t.Errorf("%d: %q is %d wide", c.width, line, ansi.StringWidth(line))
				}
				if strings.Contains(line, "\x1b") && !colour {
					t.Errorf("%q has colour", line)
				}
			}
			if colour && !strings.Contains(lines[2], "\x1b") && c.width > 11 {
				t.Errorf("%q has no colour", lines[2])
			}
		}
	}
}

func TestMessageFits(t *testing.T) {
	text := "n2: the store has not answered for 12s: no answer to put some/very-long-name-without-any-place-to-break-it-at 名前"
	for _, width := range []int{0, 200, 80, 20, 5, 2} {
		lines := View{Width: width}.Lines(Message{text, Bad})
		if squeezed := strings.ReplaceAll(strings.Join(lines, ""), " ", ""); squeezed != strings.ReplaceAll(text, " ", "") {
			t.Errorf("%d: text is lost: %q", width, lines)
		}
		for _, line := range lines {
			if width > 0 && ansi.StringWidth(line) > width {
				t.Errorf("%d: %q is %d wide", width, line, ansi.StringWidth(line))
			}
		}
		if (width == 0 || width == 200) != (len(lines) == 1) {
			t.Errorf("%d: %d lines", width, len(lines))
		}
	}
}

func TestColours(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want bool
	}{
		{nil, true}, {[]string{"NO_COLOR=1"}, false}, {[]string{"NO_COLOR="}, true}, {[]string{"TERM=dumb"}, false}, {[]string{"TERM=xterm"}, true},
	} {
		got := Colours(func(name string) string {
			if i := slices.IndexFunc(c.env, func(e string) bool { return strings.HasPrefix(e, name+"=") }); i >= 0 {
				return strings.TrimPrefix(c.env[i], name+"=")
			}
			return ""
		})
		if got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}
