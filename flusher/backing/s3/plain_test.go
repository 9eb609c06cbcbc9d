package s3

import (
	"errors"
	"testing"

	"forebay/internal/bb"
)

// TestPlain checks that the benchmarks' baseline puts and reads real objects.
func TestPlain(t *testing.T) {
	server := start(t)
	where, err := bb.ParseBacking(server.URL(server.Bucket(t, "plain"), "some"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenPlain(where, options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	data := make([]byte, 3<<20)
	if err := p.Put(t.Context(), "a/b", data); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Get(t.Context(), "a/b"); err != nil || n != int64(len(data)) {
		t.Errorf("read %d bytes of %d: %v", n, len(data), err)
	}
	if err := p.Remove(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(t.Context(), "a/b"); !errors.Is(err, bb.NotFound) {
		t.Errorf("a removed object: %v", err)
	}
}
