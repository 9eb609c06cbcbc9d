package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// newPurgeCommand returns `bbd purge`, the opposite of bbd --dev. Nothing is left, neither memory
// nor mount nor files.
func newPurgeCommand() *cobra.Command {
	var dir string
	var discard bool
	cmd := &cobra.Command{
		Use:   "purge --discard",
		Short: "Delete everything that a stopped bbd --dev left: memory, mount and state",
		Long: `Deletes all that a stopped bbd --dev keeps, in memory and in its folder, including
files that were never flushed. Drain first what you want to keep.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !discard {
				return bb.E(bb.Invalid, "purge", dir, "this also deletes bytes that were never flushed").WithRemedy("give --discard to confirm")
			}
			if dir == "" {
				dir = defaultDevDir()
			}
			return purge(cmd, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder of the daemon (default "+defaultDevDir()+")")
	cmd.Flags().BoolVar(&discard, "discard", false, "also delete bytes that were never flushed")
	return cmd
}

// purge fails while a daemon runs. The store's lock is held then.
func purge(cmd *cobra.Command, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return bb.Wrap("purge", dir, err)
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return bb.E(bb.NotFound, "purge", dir, "there is no such folder").
			WithRemedy("give --dir, the folder of bbd --dev; of the node's daemon, remove state_dir and memory.dir by hand")
	}
	if err := store.Purge(store.Options{StateDir: dir}); err != nil {
		return err
	}
	errs := []error{os.RemoveAll(batchDir(dir))}
	for _, name := range []string{"nats", "spool", "unfinished", "instances", "mem", "bbd.sock", "lock"} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return bb.Wrap("purge", dir, err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "purged", dir)
	return nil
}
