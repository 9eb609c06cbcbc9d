// Package cli has the common parts of the command lines of bbd and bbctl. It must never depend on
// the commands.
package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forebay/internal/bb"
)

// RefuseUnknown makes root and every command below it fail, with an error that usage makes, on a
// name that none of its commands has, or on other arguments than it takes. Without it cobra prints
// the help of a command that only groups others, and succeeds. A script with a mistyped subcommand
// would then go on as if it had worked. A group without a name still prints its help. usage makes
// the error of a command line from its text.
func RefuseUnknown(root *cobra.Command, usage func(why string) error) {
	if !root.HasParent() {
		root.InitDefaultCompletionCmd() // cobra adds both when a line is executed, too late for this
		root.InitDefaultHelpCmd()
	}
	for _, c := range root.Commands() {
		RefuseUnknown(c, usage)
	}
	if root.HasSubCommands() && !root.Runnable() {
		root.Args = cobra.ArbitraryArgs
		root.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(unknown(cmd, args[0]))
		}
		return
	}
	takes := root.Args
	if takes == nil {
		if root.Name() == "help" {
			root.Args = func(help *cobra.Command, args []string) error {
				cmd, rest, err := help.Root().Find(args)
				if err == nil && len(rest) == 0 {
					return nil
				}
				why := unknown(cmd, append(rest, args...)[0])
				if !strings.HasSuffix(why, "?") {
					why += "."
				}
				return usage(why + " The usage is: " + help.UseLine())
			}
		}
		return
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case takes(cmd, args) == nil:
			return nil
		case cmd.HasSubCommands() && len(args) > 0:
			return usage(unknown(cmd, args[0]))
		}
		return usage(fmt.Sprintf("%s, but the usage is: %s", given(args), cmd.UseLine()))
	}
}

// FlagErrors makes a mistyped flag of root, or of a command below it, an error that usage makes,
// with the flags that may have been meant.
func FlagErrors(root *cobra.Command, usage func(why string) error) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		why := err.Error() + "."
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					names = append(names, "--"+f.Name)
				}
			})
			if near := bb.Nearest("--"+unknown.GetSpecifiedName(), names); len(near) > 0 {
				why = err.Error() + "; did you mean " + strings.Join(near, " or ") + "?"
			}
		}
		return usage(why + " The usage is: " + cmd.UseLine())
	})
}

func given(args []string) string {
	switch len(args) {
	case 0:
		return "there is no argument"
	case 1:
		return "there is one argument"
	}
	return fmt.Sprintf("there are %d arguments", len(args))
}

func unknown(cmd *cobra.Command, name string) string {
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name)
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return text
}
