// Package cluster has the commands for nodes, keys, certificates and tokens. It must never depend on a buffer.
package cluster

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newNodesCommand(a),
		newNodeCommand(a),
		newClusterCommand(a),
		newTokenCommand(a),
	}
}
