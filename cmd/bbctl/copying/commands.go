// Package copying has the commands that move bytes into buffers, out of them and between them: put, get, cp,
// sync. It must never depend on a daemon's storage.
package copying

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newPutCommand(a),
		newGetCommand(a),
		newCpCommand(a),
		newSyncCommand(a),
	}
}
