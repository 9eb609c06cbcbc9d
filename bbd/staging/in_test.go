package staging

import (
	"testing"

	"forebay/internal/bb"
)

// TestSplitURL: a store is opened at the directory above the last name of a URL.
func TestSplitURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"file:///data/in":  {"file:///data", "in"},
		"file:///data/in/": {"file:///data", "in"},
		"file:///data":     {"file:///data", ""},
		"s3://bucket/a/b":  {"s3://bucket/a", "b"},
		"s3://bucket/a/":   {"s3://bucket/", "a"},
		"s3://bucket/a?endpoint=http://127.0.0.1:9": {"s3://bucket/?endpoint=http://127.0.0.1:9", "a"},
	} {
		where, err := bb.ParseBacking(url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if root, name := splitURL(where, url); root != want[0] || name != want[1] {
			t.Errorf("%s: %q and %q, want %q", url, root, name, want)
		}
	}
}

// TestObjectURL: two URLs name one object if and only if it is the same one, whatever the root.
func TestObjectURL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"one file by two roots":   {objectURL("file:///data/in", "in/f"), objectURL("file:///data/in", "") + "/f", true},
		"two files":               {objectURL("file:///data/in", "in/f"), objectURL("file:///data/in", "in/g"), false},
		"one object by two roots": {objectURL("s3://b/p/q", "q/f"), objectURL("s3://b/p/q", "") + "/f", true},
		"two buckets":             {objectURL("s3://b/p", "f"), objectURL("s3://c/p", "f"), false},
		"two endpoints":           {objectURL("s3://b/p?endpoint=http://one", "f"), objectURL("s3://b/p?endpoint=http://two", "f"), false},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: %q and %q", name, c.a, c.b)
		}
	}
}
