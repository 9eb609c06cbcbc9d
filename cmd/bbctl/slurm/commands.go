// Package slurm has the commands that Slurm runs: the hooks of nodes, those of burst_buffer/lua, and plan. It
// must never depend on the storage of a buffer. The meaning of directives is in forebay/slurm.
package slurm

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newSlurmCommand(a),
		newPlanCommand(a),
	}
}
