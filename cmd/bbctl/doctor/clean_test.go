package doctor

import (
	"testing"

	"forebay/internal/bb"
)

// A daemon has ended only if its end is certain.
func TestEnds(t *testing.T) {
	e := &ends{
		instance: "0000000000000001", life: "0000000000000005",
		earlier: map[string]bool{"0000000000000002": true, "0000000000000004": true},
		gone:    map[string]bool{"0000000000000003": true}, living: map[string]bool{"0000000000000004": true},
	}
	for _, test := range []struct {
		instance bb.InstanceID
		life     uint64
		want     bool
	}{{1, 5, false}, {1, 4, true}, {2, 5, true}, {3, 5, true}, {4, 5, false}, {6, 4, false}} {
		if got := e.Ended(test.instance, test.life); got != test.want || !got && e.why(test.instance) == "" {
			t.Errorf("%d in life %d: %t", test.instance, test.life, got)
		}
	}
	e.life = "" // an older release
	if e.Ended(1, 4) {
		t.Error("the life of an older release's daemon is not known")
	}
}
