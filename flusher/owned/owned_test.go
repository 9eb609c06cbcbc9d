package owned

import (
	"reflect"
	"testing"

	"forebay/internal/bb"
)

// TestLedger: the possible contents of a name follow the renames and removals of the store.
func TestLedger(t *testing.T) {
	t.Parallel()
	a, b := Unrecorded{Made: []bb.Content{{Size: 1}}}, Unrecorded{Attempts: []bb.Content{{Size: 2}}}
	for name, test := range map[string]struct {
		change func(Ledger)
		want   Ledger
	}{
		"noted twice":        {func(l Ledger) { l.Note("d/a", b) }, Ledger{"d/a": a.And(b), "d/b": b, "dd": a}},
		"renamed":            {func(l Ledger) { l.Moved("d/a", "c") }, Ledger{"c": a, "d/b": b, "dd": a}},
		"renamed onto":       {func(l Ledger) { l.Moved("d/a", "d/b") }, Ledger{"d/b": b.And(a), "dd": a}},
		"removed":            {func(l Ledger) { l.Moved("d/a", "") }, Ledger{"d/b": b, "dd": a}},
		"not there":          {func(l Ledger) { l.Moved("x", "y") }, Ledger{"d/a": a, "d/b": b, "dd": a}},
		"a directory":        {func(l Ledger) { l.MovedBelow("d", "e/f") }, Ledger{"e/f/a": a, "e/f/b": b, "dd": a}},
		"a directory's like": {func(l Ledger) { l.MovedBelow("x", "e") }, Ledger{"d/a": a, "d/b": b, "dd": a}},
	} {
		l := Ledger{"d/a": a, "d/b": b, "dd": a}
		if test.change(l); !reflect.DeepEqual(l, test.want) {
			t.Errorf("%s: %+v, want %+v", name, l, test.want)
		}
	}
}
