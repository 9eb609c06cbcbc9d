package jobs

import (
	"encoding/json"
	"strings"
	"testing"

	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
)

// TestPrintJob: a drain's superseded steps are named, in JSON too.
func TestPrintJob(t *testing.T) {
	t.Parallel()
	j := admin.Operation{ID: "j1", Kind: "drain", Buffer: "run", State: "done", Superseded: []string{"step-4", "a\nb"}, SupersededTotal: 7}
	var out strings.Builder
	printJob(&app.App{Out: &out}, &j)
	for _, want := range []string{
		"bb://run/step-4: superseded, and not flushed: a newer step is complete\n", `bb://run/a\nb: superseded`, "5 more steps are superseded\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	text, err := json.Marshal(jsonOf(&j))
	if want := `"superseded":["step-4","a\nb"],"superseded_total":7}`; err != nil || !strings.HasSuffix(string(text), want) || !strings.Contains(string(text), `"id":"j1"`) {
		t.Errorf("%s, %v; want %s at its end", text, err, want)
	}
	lives, err := json.Marshal(lifetimesJSON([]admin.Lifetime{{
		Key: "k", Superseded: []admin.SupersededSteps{{Buffer: "k", Total: 1}}, Nodes: []admin.Attachment{{Usage: admin.Usage{Dropped: 2, DroppedBytes: 3}}},
	}}))
	if want := `"dropped":2,"dropped_bytes":3,"superseded":[{"buffer":"k","total":1,`; err != nil || !strings.Contains(string(lives), want) {
		t.Errorf("%s, %v; want %s in it", lives, err, want)
	}
}
