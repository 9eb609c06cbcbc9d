package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/bench"
)

func newBenchCommand(a *app.App) *cobra.Command {
	return bench.NewCommand(bench.Front{
		Buffer: a.Buffer, Dial: a.Dial, Size: app.ParseSize, Print: a.Print, View: a.ViewOf, Lines: a.PrintLines,
		Step: func(line string) {
			if p := a.Progress(line); p.Bar != nil || p.Lines {
				fmt.Fprintln(a.Err, "bbctl:", line)
			}
		},
		Partly: app.Partly,
	})
}
