package staging

import "testing"

func TestIntoDirectory(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"file:///data/out": false, "file:///data/out/": true, "s3://b/p": false, "s3://b/p/": true,
		"s3://b/p/?endpoint=https://h": true, "s3://b/p?endpoint=https://h/": false,
	} {
		if got := intoDirectory(url); got != want {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}
