package main

import (
	"os"
	"strings"

	"golang.org/x/term"

	"forebay/cmd/bbctl/layout"
)

// viewOf returns how to print on standard output.
func (a *app) viewOf() layout.View {
	f := a.terminal()
	if f == nil {
		return layout.View{}
	}
	return layout.View{Width: layout.WidthOf(f), Colour: layout.Colours(os.Getenv)}
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
		a.printLines(v.Lines(layout.Message{Text: strings.TrimSuffix(line, "\n")}))
	}
}
