package ops_test

import (
	"testing"

	"forebay/meta/ops"
)

// TestID: the same parts make the same id, and where one part ends makes a difference.
func TestID(t *testing.T) {
	parts := []string{"ab", "c"}
	if one, two := ops.ID(parts...), ops.ID("a"+"b", "c"); one != two {
		t.Errorf("the same parts have two ids: %s and %s", one, two)
	}
	if ops.ID("ab", "c") == ops.ID("a", "bc") {
		t.Error("other parts have the same id")
	}
}
