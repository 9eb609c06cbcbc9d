package bb

import (
	"slices"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, names, want string }{
		{"n3", "n1 n2 node3", "n1 n2"},
		{"nodee7", "node7 other", "node7"},
		{"memory.sise", "memory.size memory.dir disk.size", "memory.size"},
		{"dryrun", "dry-run yes json", "dry-run"},
		{"DRAIN", "drain undrain", "drain undrain"},
		{"dr", "drain draw other", "draw drain"},
		{"qqqq", "drain undrain", ""},
		{"", "a bc", ""},
	} {
		if got := Nearest(c.word, strings.Fields(c.names)); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%q among %q: %q, want %q", c.word, c.names, got, c.want)
		}
	}
	if got := DidYouMean("stauts", []string{"status"}, "see --help"); got != "did you mean status? see --help" {
		t.Error(got)
	}
}
