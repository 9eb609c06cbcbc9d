// Package files has the commands for names: ls, find, tree, stat, du, mv, rm, mkdir, and cat. It must never
// write bytes.
package files

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newCatCommand(a),
		newLsCommand(a),
		newFindCommand(a),
		newTreeCommand(a),
		newStatCommand(a),
		newMvCommand(a),
		newRmCommand(a),
		newMkdirCommand(a),
		newDuCommand(a),
	}
}
