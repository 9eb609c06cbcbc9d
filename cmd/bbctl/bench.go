package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/bench"
)

func newBenchCommand(a *app) *cobra.Command {
	return bench.NewCommand(bench.Front{
		Buffer: a.buffer, Dial: a.dial, Size: parseSize, Print: a.print, View: a.viewOf, Lines: a.printLines,
		Step: func(line string) {
			if p := a.progress(line); p.bar != nil || p.lines {
				fmt.Fprintln(a.err, "bbctl:", line)
			}
		},
		Partly: func(err error) error { return partly{err} },
	})
}
