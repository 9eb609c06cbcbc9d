package plan

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestIndexAny compares with Names, of which there is one for each operation.
func TestIndexAny(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 14))
	paths := []string{"", "a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "dd", "d/ee", "b/a", "d/e/a/x"}
	some := func() []string {
		var s []string
		for range 1 + rnd.IntN(2) {
			s = append(s, paths[rnd.IntN(len(paths))])
		}
		return s
	}
	for range 2000 {
		var x Index[int]
		there := map[int][]string{}
		for k := range 12 {
			there[k] = some()
			x.Add(k, there[k]...)
			if old := rnd.IntN(12); rnd.IntN(3) == 0 && there[old] != nil {
				x.Remove(old, there[old]...)
				delete(there, old)
			}
		}
		query, want, got := some(), map[int]bool{}, map[int]bool{}
		for k, of := range there {
			var names Names
			names.Add(of...)
			if names.Overlap(query...) {
				want[k] = true
			}
		}
		for k := range x.Overlapping(query...) {
			got[k] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%q of %v: %v, want %v", query, there, got, want)
		}
		for k, of := range there {
			x.Remove(k, of...)
		}
		if len(x.exact)+len(x.below) > 0 {
			t.Fatalf("an index that everything was taken out of holds %v, %v", x.exact, x.below)
		}
	}
}
