package ops_test

import (
	"testing"

	"forebay/meta/ops"
)

// TestID: the same parts make the same id, and where one part ends makes a difference.
func TestID(t *testing.T) {
	if ops.ID("ab", "c") != ops.ID("ab", "c") {
		t.Error("the same parts have two ids")
	}
	if ops.ID("ab", "c") == ops.ID("a", "bc") {
		t.Error("other parts have the same id")
	}
}
