package lustre

import "testing"

// Each attempt asks for twice as many targets, and for all of them in the end.
func TestOther(t *testing.T) {
	for tries, want := range map[int]int{1: 200, 4: 1600, 5: -1, 40: -1} {
		if got := (Layout{Count: 100}).Other(tries); got.Count != want {
			t.Errorf("after %d tries: %d targets, want %d", tries, got.Count, want)
		}
	}
}
