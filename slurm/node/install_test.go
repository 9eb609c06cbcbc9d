package node

import (
	"os"
	"strings"
	"testing"
)

// The unit that looks after jobs starts after the daemon's, by the name that this has.
func TestUnitAfterDaemon(t *testing.T) {
	text := Unit("/usr/bin/bbctl", "/usr/bin").Text
	_, after, _ := strings.Cut(text, "After=")
	after, _, _ = strings.Cut(after, "\n")
	for name := range strings.FieldsSeq(after) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		if _, err := os.Stat("../../docs/" + name); err != nil {
			t.Errorf("After=%s: %v", name, err)
		}
	}
	if !strings.Contains(after, ".service") {
		t.Errorf("After=%s names no service", after)
	}
}
