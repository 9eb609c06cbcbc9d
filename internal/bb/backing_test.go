package bb

import (
	"errors"
	"strings"
	"testing"
)

func TestParseBacking(t *testing.T) {
	b, err := ParseBacking("s3://bucket/a/b/?endpoint=http://127.0.0.1:1")
	if err != nil || b.Bucket != "bucket" || b.Prefix != "a/b" || b.Query.Get("endpoint") != "http://127.0.0.1:1" {
		t.Errorf("%+v %v", b, err)
	}
	b, err = ParseBacking("file:///lustre/me/")
	if err != nil || b.Path != "/lustre/me" {
		t.Errorf("%+v %v", b, err)
	}
	b, err = ParseBacking("file:///lustre/me/x?layout=-E+64M+-c+1+-E+-1+-c+-1")
	if err != nil || b.Path != "/lustre/me/x" || b.Layout != "-E 64M -c 1 -E -1 -c -1" {
		t.Errorf("%+v %v", b, err)
	}
	parent, name := b.Split()
	if up, err := ParseBacking(parent); err != nil || up.Path != "/lustre/me" || up.Layout != b.Layout || name != "x" {
		t.Errorf("%q, %q, %v", parent, name, err)
	}
	for _, bad := range []string{
		"file:///a?layout=", "file:///a?layout=-c+1&layout=-c+2", "file:///a?layout=-c+1&x=1", "", "/plain", "file://host/x", "file:relative", "file:///", "ftp://x/y", "s3:///x", "s3://user:pw@b/x",
		"s3://b/../x", "file:///a?x=1", "s3://b/x#f", "s3://b:80/x", "://", "s3://b/%zz",
	} {
		if _, err := ParseBacking(bad); !errors.Is(err, Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBackingsOverlap(t *testing.T) {
	for _, c := range []struct {
		one, other string
		want       bool
	}{
		{"file:///a/b", "file:///a/b/", true},
		{"file:///a/b?layout=-c+4", "file:///a/b?layout=-c+8", true},
		{"file:///a/b", "file:///a/b/c", true},
		{"file:///a/b/c/..", "file:///a/b", true},
		{"file:///a/b", "file:///a/bc", false},
		{"file:///a/b", "file:///a/c", false},
		{"s3://a/b", "s3://a/b/c", true},
		{"s3://a", "s3://a/b", true},
		{"s3://a/b", "s3://c/b", false},
		{"s3://a/b", "file:///a/b", false},
		{"s3://a/b?endpoint=http://h:1", "s3://a/b?endpoint=http://h:2", false},
		{"s3://a/b?endpoint=http://h:1&region=x", "s3://a/b?region=y&endpoint=http://h:1", true},
		{"s3://a/b?endpoint=http://h:1", "s3://a/b", true},
		// One server may be written in several ways.
		{"s3://a/b?endpoint=https://h", "s3://a/b?endpoint=https://h:443", true},
		{"s3://a/b?endpoint=http://h:80/", "s3://a/b?endpoint=http://h", true},
		{"s3://a/b?endpoint=https://Store.Example.", "s3://a/b/c?endpoint=HTTPS://store.example:443/", true},
		{"s3://a/b?endpoint=http://[::1]", "s3://a/b?endpoint=http://[::1]:80", true},
		{"s3://a/b?endpoint=http://[::1]:80", "s3://a/b?endpoint=http://[::1]:81", false},
		{"s3://a/b?endpoint=http://h", "s3://a/b?endpoint=https://h", false},
		{"s3://a/b?endpoint=http://h:443", "s3://a/b?endpoint=https://h:443", false},
		{"s3://a/b?endpoint=http://h/x", "s3://a/b?endpoint=http://h/y", false},
		{"s3://a/b?endpoint=h:1", "s3://a/b?endpoint=h:2", false},
		// The last of several endpoints is the one that is used.
		{"s3://a/b?endpoint=http://h:1&endpoint=http://h:2", "s3://a/b?endpoint=http://h:2", true},
		{"s3://a/b?endpoint=http://h:1&endpoint=http://h:2", "s3://a/b?endpoint=http://h:1", false},
	} {
		one, err := ParseBacking(c.one)
		other, err2 := ParseBacking(c.other)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if one.Overlaps(other) != c.want || other.Overlaps(one) != c.want {
			t.Errorf("%s overlaps %s: %v, %v; want %v", c.one, c.other, one.Overlaps(other), other.Overlaps(one), c.want)
		}
	}
}

func FuzzParseBacking(f *testing.F) {
	f.Add("file:///a/b")
	f.Add("s3://b/p?region=x")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBacking(s)
		if err != nil {
			return
		}
		if b.Scheme == "file" && (!strings.HasPrefix(b.Path, "/") || strings.Contains(b.Path+"/", "/../")) {
			t.Fatalf("%q: path %q", s, b.Path)
		}
		if b.Scheme == "s3" && b.Bucket == "" {
			t.Fatalf("%q: no bucket", s)
		}
	})
}

// TestKinds: a kind without a row has no property, and is for root alone.
func TestKinds(t *testing.T) {
	t.Parallel()
	for scheme, want := range map[string]struct {
		directory, flat bool
		access          BackingAccess
	}{
		"file":   {true, false, AccessAsUser},
		"s3":     {false, true, AccessByRules},
		"memory": {false, false, AccessRootOnly},
		"":       {false, false, AccessRootOnly},
	} {
		b := Backing{Scheme: scheme}
		if b.IsDirectory() != want.directory || b.IsFlat() != want.flat || b.Access() != want.access {
			t.Errorf("%q: directory %v, flat %v, access %d; want %+v", scheme, b.IsDirectory(), b.IsFlat(), b.Access(), want)
		}
	}
}

// TestSplit: a store is opened at the directory above the last name of a URL.
func TestSplit(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"file:///data/in":  {"file:///data", "in"},
		"file:///data/in/": {"file:///data", "in"},
		"file:///data":     {"file:///data", ""},
		"s3://bucket/a/b":  {"s3://bucket/a", "b"},
		"s3://bucket/a/":   {"s3://bucket/", "a"},
		"s3://bucket/a?endpoint=http://127.0.0.1:9": {"s3://bucket/?endpoint=http://127.0.0.1:9", "a"},
		// Special characters of URLs are escaped in the parent's, too.
		"file:///a%25b%3Fc/in": {"file:///a%25b%3Fc", "in"},
		"file:///a%23b":        {"file:///a%23b", ""},
		"s3://bucket/50%25/x":  {"s3://bucket/50%25", "x"},
		"s3://bucket/a%3Fb/x":  {"s3://bucket/a%3Fb", "x"},
	} {
		where, err := ParseBacking(url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if root, name := where.Split(); root != want[0] || name != want[1] {
			t.Errorf("%s: %q and %q, want %q", url, root, name, want)
		} else if _, err := ParseBacking(root); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestObject: two URLs name one object if and only if it is the same one, under any root.
func TestObject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"one file by two roots":      {objectOf(t, "file:///data/in", "in/f"), belowOf(t, "file:///data/in", "f"), true},
		"two files":                  {objectOf(t, "file:///data/in", "in/f"), objectOf(t, "file:///data/in", "in/g"), false},
		"one object by two roots":    {objectOf(t, "s3://b/p/q", "q/f"), belowOf(t, "s3://b/p/q", "f"), true},
		"two buckets":                {objectOf(t, "s3://b/p", "f"), objectOf(t, "s3://c/p", "f"), false},
		"two endpoints":              {objectOf(t, "s3://b/p?endpoint=http://one", "f"), objectOf(t, "s3://b/p?endpoint=http://two", "f"), false},
		"one server, written twice":  {objectOf(t, "s3://b/p?endpoint=https://one", "f"), objectOf(t, "s3://b/p?endpoint=https://One:443/", "f"), true},
		"a directory right below /":  {objectOf(t, "file:///data", "in/f"), belowOf(t, "file:///data", "in/f"), true},
		"a whole bucket":             {objectOf(t, "s3://b?endpoint=http://e", "d/f"), belowOf(t, "s3://b?endpoint=http://e", "d/f"), true},
		"an object below a bucket":   {objectOf(t, "s3://b/d", ""), belowOf(t, "s3://b", "d"), true},
		"a name that begins another": {objectOf(t, "s3://b/d", ""), belowOf(t, "s3://b/d", "d"), false},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: %q and %q", name, c.a, c.b)
		}
	}
}

func objectOf(t *testing.T, url, name string) string {
	where, err := ParseBacking(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return where.Object(name)
}

func belowOf(t *testing.T, url, name string) string {
	where, err := ParseBacking(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return where.Below(name)
}
