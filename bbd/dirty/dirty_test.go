package dirty

import (
	"testing"

	"forebay/internal/bb"
)

func TestForget(t *testing.T) {
	t.Parallel()
	const file = bb.FileID(7)
	for name, c := range map[string]struct {
		has, flushed bb.Generation
		left         bool
	}{
		"the generation that is there":       {has: 3, flushed: 3},
		"a newer one":                        {has: 3, flushed: 4},
		"one that a newer one has followed":  {has: 4, flushed: 3, left: true},
		"of a file that is not there at all": {flushed: 3},
	} {
		d := New()
		if c.has != 0 {
			d.Add(file, File{Generation: c.has})
		}
		d.Failed(file, "no answer")
		d.Forget(file, c.flushed)
		if _, ok := d.Of(file); ok != c.left {
			t.Errorf("%s: the file is there: %v", name, ok)
		}
		if got := d.Reason(file) != ""; got != c.left {
			t.Errorf("%s: why its flush failed is there: %v", name, got)
		}
	}
}

// TestAdd: a file has its newest generation, in any order of additions.
func TestAdd(t *testing.T) {
	t.Parallel()
	d := New()
	for _, c := range []struct{ added, want bb.Generation }{{3, 3}, {4, 4}, {3, 4}} {
		d.Add(7, File{Generation: c.added})
		if f, _ := d.Of(7); f.Generation != c.want {
			t.Errorf("after generation %d is added, %d waits, want %d", c.added, f.Generation, c.want)
		}
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	d := New()
	d.Add(7, File{At: bb.Place{Dir: 1, Name: "f"}, Generation: 3})
	for _, file := range []bb.FileID{7, 8} {
		d.Change(file, func(f *File) { f.At.Name = "g" })
	}
	if all := d.All(); len(all) != 1 || all[7].At.Name != "g" {
		t.Errorf("after a change of a file that is there, and of one that is not: %v", all)
	}
}
