// Package jobs has the commands that daemons carry out together, stage-ins, stage-outs and drains, and those that
// show the fate of batch jobs and transactions. It must never depend on a daemon's division of the work.
package jobs

import (
	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
)

// Commands returns them, for one command line.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		newStageInCommand(a),
		newStageOutCommand(a),
		newDrainCommand(a),
		newReceiptCommand(a),
		newVerifyCommand(a),
		newOrphansCommand(a),
		newJobsCommand(a),
		newTxnCommand(a),
	}
}
