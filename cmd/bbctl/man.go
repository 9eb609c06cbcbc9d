package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"forebay/cmd/bbctl/app"
)

// newManCommand writes the manual pages.
func newManCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of all commands into a folder", Args: cobra.ExactArgs(1),
		Example: "  bbctl man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Forebay " + version, Manual: "Forebay"}, args[0]); err != nil {
				return err
			}
			return a.Print(map[string]string{"dir": args[0]}, func() { fmt.Fprintln(a.Out, "wrote", args[0]) })
		},
	}
}
