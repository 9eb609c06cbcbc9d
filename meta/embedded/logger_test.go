package embedded

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatedMessages holds that a message that the server repeats every two seconds fills no log,
// and that each other one is in it.
func TestRepeatedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 31 { // a minute
			l.Warnf("Waiting for routing to be established...")
			time.Sleep(2 * time.Second)
		}
		for i, peer := range []string{"n2", "n3", "n2"} {
			l.Errorf("no route to %s (attempt %d): refused", peer, i)
		}
		for text, want := range map[string]int{"Waiting for routing": 3, "no route to n2": 1, "no route to n3": 1} {
			if n := strings.Count(out.String(), text); n != want {
				t.Errorf("%q is %d times in the log, want %d:\n%s", text, n, want, &out)
			}
		}
	})
}
