package lustre

import (
	"slices"
	"testing"
)

// In the output of lfs, only the targets that do not answer are named.
func TestSilentTargets(t *testing.T) {
	for _, c := range []struct {
		out  string
		want []string
	}{
		{"", nil},
		{"lfs check: cannot find mounted Lustre filesystem\n", nil},
		{"scratch-OST0000-osc-ffff9e5c41a3b000 active.\nscratch-MDT0000-mdc-ffff9e5c41a3b000 active.\n", nil},
		{"scratch-OST0001-osc-ffff9e5c41a3b000 inactive.\nscratch-OST0000-osc-ffff9e5c41a3b000 active.\n", []string{"scratch-OST0001"}},
		{"error: check 'b-OST0001-osc-ff': Resource temporarily unavailable (11)\nlfs check: error: check 'a-b-MDT0000-mdc-ff': Input/output error (5)\nb-OST0001-osc-ee inactive.\n", []string{"a-b-MDT0000", "b-OST0001"}},
		{"error: check 'cut", nil},
	} {
		if got := SilentTargets([]byte(c.out)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.out, got, c.want)
		}
	}
}
