// Package status has the commands that show daemons, their buffers, losses and events. It must never change
// anything.
package status

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newLostCommand(a),
		newStatusCommand(a),
		newEventsCommand(a),
	}
}
