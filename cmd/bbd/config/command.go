package config

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// NewConfigCommand returns `bbd config`, with the subcommands check and defaults.
func NewConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, print the defaults",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newCheckCommand(), newDefaultsCommand())
	return cmd
}

func newCheckCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report every problem of the configuration at once",
		Long: "Reads the file, FOREBAY_* of the environment and flags as the daemon would, prints\n" +
			"every problem on a line of its own, and exits non-zero if there is one. A warning is none:\n" +
			"a name of a user or group that the system does not have yet.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := Load(Source{Base: Default(), File: file, Flags: cmd.Flags()})
			if err == nil {
				for _, w := range c.unknownUsers(cmd.Context()) {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
				}
				fmt.Fprintln(cmd.OutOrStdout(), "configuration: no problem found")
				return nil
			}
			var problems Problems
			if !errors.As(err, &problems) {
				return err
			}
			for _, p := range problems {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			return fmt.Errorf("configuration: problems: %d", len(problems))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file (default "+DefaultFile+" if it is there)")
	AddFlags(cmd.Flags())
	return cmd
}

func newDefaultsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "defaults",
		Short: "Print a commented configuration file that holds the defaults",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), YAML(Default()))
			return err
		},
	}
}
