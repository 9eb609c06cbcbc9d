// Package buffers has the commands that make, show, list and destroy buffers. It must never depend on the files of one.
package buffers

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newBufferCommand(a),
	}
}
