package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forebay/cmd/bbd/config"
)

// newMountCommand returns `bbd mount`, for a service manager that denies the daemon the right to mount.
func newMountCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "mount",
		Short: "Mount the memory tier's file system, as a start with that right would",
		Long: `Mounts the tmpfs with huge pages that the configuration asks for (memory.mount), unless
it is there and large enough, and ends. A daemon that is started then needs no right to
mount. Give it the configuration and the flags of the daemon.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return mountOnly(cmd.Flags(), o)
		},
	}
	cmd.Flags().StringVar(&o.file, "config", "", "YAML file (default "+config.DefaultFile+" if it is there)")
	config.AddFlags(cmd.Flags())
	return cmd
}

func mountOnly(flags *pflag.FlagSet, o runOptions) error {
	cfg, err := load(flags, o)
	if err != nil {
		return err
	}
	log, err := logger(cfg.Log)
	if err != nil {
		return err
	}
	return mountMemory(cfg, log)
}
