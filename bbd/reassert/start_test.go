package reassert

import (
	"reflect"
	"testing"

	"forebay/bbd/fate"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// TestNewestFirst: of files that are to have one path again, the newest is settled before all others.
func TestNewestFirst(t *testing.T) {
	t.Parallel()
	file := func(n bb.Generation, path string, becomes fate.Fate) decided {
		return decided{&fate.Held{Acked: n, Identity: &store.Identity{Path: path}}, becomes}
	}
	parts := newestFirst([]decided{
		file(1, "f", fate.Remake), file(3, "f", fate.Remake), file(2, "f", fate.Remake), file(4, "f", fate.Drop), file(1, "g", fate.Remake),
		{&fate.Held{}, fate.SetAside},
	})
	var got [2][]bb.Generation
	for i, part := range parts {
		for _, f := range part {
			got[i] = append(got[i], f.Acked)
		}
	}
	if want := [2][]bb.Generation{{4, 3, 1, 0}, {2, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
