// Package doctor has the command that examines a node, its daemon and its stores, and removes remains of
// ended daemons from a store. It must never change files that a living daemon uses.
package doctor

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newDoctorCommand(a),
	}
}
