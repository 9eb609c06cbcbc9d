package bb

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, dir        string
		within, overlaps bool
	}{
		{"a", "a", true, true},
		{"a/b", "a", true, true},
		{"a", "a/b", false, true},
		{"ab", "a", false, false},
		{"a.b", "a", false, false},
		{"b", "a", false, false},
		{"a/b", "", true, true},
		{"", "", true, true},
		{"", "a", false, true},
		{"/a", "/", true, true},
		{"/a/b", "/a/", true, true},
		{"/ab", "/a/", false, false},
	} {
		if got := Within(c.path, c.dir); got != c.within {
			t.Errorf("Within(%q, %q) = %v", c.path, c.dir, got)
		}
		if got := Overlaps(c.path, c.dir); got != c.overlaps {
			t.Errorf("Overlaps(%q, %q) = %v", c.path, c.dir, got)
		}
		if Overlaps(c.dir, c.path) != Overlaps(c.path, c.dir) {
			t.Errorf("Overlaps(%q, %q) depends on the order", c.path, c.dir)
		}
	}
}
