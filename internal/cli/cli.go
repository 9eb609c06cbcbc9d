// Package cli has what the command lines of bbd and bbctl share. It must never know
// what a command does.
package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// RefuseUnknown makes every command below root that only groups others fail when it is
// given a name that none of them has. Without it cobra prints the group's help and
// succeeds, so that a script with a mistyped subcommand goes on as if it had worked.
// A group without a name still prints its help. usage makes the error of a command line
// from its text.
func RefuseUnknown(root *cobra.Command, usage func(why string) error) {
	for _, c := range root.Commands() {
		RefuseUnknown(c, usage)
		if c.HasSubCommands() && !c.Runnable() {
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return cmd.Help()
				}
				return usage(unknown(cmd, args[0]))
			}
		}
	}
}

func unknown(cmd *cobra.Command, name string) string {
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name)
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return text
}
