// Package apptest compares the output of bbctl with the expectations of tests. It must never depend on a command.
package apptest

import (
	"strings"
	"testing"
)

// WantLine fails the test if want is not a part of the output.
func WantLine(t *testing.T, out, want string) {
	t.Helper()
	if !strings.Contains(out, want) {
		t.Errorf("%q is not in\n%s", want, out)
	}
}

// WantRow searches a line that has some texts in this order, each separated by spaces.
func WantRow(t *testing.T, out, want string) {
	t.Helper()
	for line := range strings.Lines(out) {
		rest, found := line, true
		for word := range strings.FieldsSeq(want) {
			if _, rest, found = strings.Cut(rest, word); !found {
				break
			}
		}
		if found {
			return
		}
	}
	t.Errorf("no line has %q in\n%s", want, out)
}
