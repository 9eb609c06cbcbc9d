package cluster

import (
	"strings"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
)

// The versions of daemons, and the reason why one gets no request, are seen at a glance.
func TestNodesSayVersions(t *testing.T) {
	var out strings.Builder
	a := &app.App{Out: &out}
	printNodes(a, []admin.Node{
		{Name: "n1", State: "ready", Since: time.Now(), MinVersion: 1, MaxVersion: 2, Server: "bbd 1.2", Session: "10.0.0.1:7481"},
		{Name: "n2", State: "ready", Since: time.Now(), MinVersion: 1, MaxVersion: 1, Server: "bbd 1.1", Session: "10.0.0.2:7481"},
		{Name: "n9", State: "starting", Since: time.Now(), MinVersion: 3, MaxVersion: 4, Server: "bbd 2.0", Refused: "it supports others; upgrade n1"},
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || lines[4] != "n9 is not asked: it supports others; upgrade n1" {
		t.Fatalf("printed\n%s", out.String())
	}
	for i, want := range []string{"PROTOCOL", " 1-2 ", " 1 ", " 3-4 refused"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("%q does not say %q", lines[i], want)
		}
	}
}
