package cluster

import (
	"strings"
	"testing"

	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/apptest"
	"forebay/internal/cli"
)

// A command line that would lose bytes asks the user on a terminal, and only "y" or "yes" is
// consent.
func TestForgetConfirmed(t *testing.T) {
	loss := &admin.Forgotten{LostTotal: 2, LostBytes: 1 << 20}
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "n\n": false, "yep\n": false} {
		var out strings.Builder
		a := &app.App{In: strings.NewReader(answer), Out: &out, Err: &out}
		err := confirmLoss(a, "n1", loss)
		if (err == nil) != want || !want && app.ExitCode(err) != cli.ExitCancelled {
			t.Errorf("%q: %v", answer, err)
		}
		apptest.WantLine(t, out.String(), "Declare n1 dead? [y/N]")
	}
}
