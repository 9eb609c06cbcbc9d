// Package mount has the commands that start bbmount and end it. It must never depend on the content of a
// mount.
package mount

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newMountCommand(a),
		newRemountCommand(), newUmountCommand(a), newAddressCommand(a), newPathCommand(a),
	}
}
