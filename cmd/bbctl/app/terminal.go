package app

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"forebay/cmd/bbctl/layout"
)

// ViewOf returns how to print on standard output.
func (a *App) ViewOf() layout.View {
	f := a.Terminal()
	if f == nil {
		return layout.View{}
	}
	return layout.View{Width: layout.WidthOf(f), Colour: layout.Colours(os.Getenv)}
}

// Terminal is standard output if it is a terminal, else nil.
func (a *App) Terminal() *os.File {
	w := a.Out
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok || a.JSON || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// Fitted wraps the output of print where it is wider than the terminal.
func (a *App) Fitted(print func()) {
	v, out := a.ViewOf(), a.Out
	var text strings.Builder
	a.Out = &text
	print()
	a.Out = out
	for line := range strings.Lines(text.String()) {
		a.PrintLines(v.Lines(layout.Message{Text: strings.TrimSuffix(line, "\n")}))
	}
}

func (a *App) PrintLines(lines []string) {
	for _, line := range lines {
		fmt.Fprintln(a.Out, line)
	}
}
