package meta

import (
	"context"
	"os"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace/namespacetest"
)

// TestBeginAnew: a log that can be read stays as it is, one that is gone is begun anew once, and
// one without an answer of a server is not abandoned.
func TestBeginAnew(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	none := func(*bb.Entry) bool { return false }
	s := startServer(t, dir)
	m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: EngineLog})
	namespacetest.Create(t, newBuffer(t, m, "b"), bb.RootDir, "f")
	spec, err := m.Buffer(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	anew := func(m *Meta, kind bb.Kind, there bool) {
		t.Helper()
		_, err := m.BeginAnew(ctx, spec, none)
		wantKind(t, "beginning the log anew", err, kind)
		if err != nil {
			return
		}
		tree, err := m.Namespace(ctx, "b")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Lookup(ctx, bb.RootDir, "f"); (err == nil) != there {
			t.Errorf("f: %v, want it there: %v", err, there)
		}
	}
	anew(m, 0, true)
	m.Close()
	s.Shutdown()
	if err := os.RemoveAll(metatest.StreamDir(t, dir, "NS_forebay-b-")); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, dir)
	m = connectTo(t, Options{InProcess: s, SoleWriter: true})
	if _, err := m.Namespace(ctx, "b"); !Damaged(err) {
		t.Fatalf("a log that is gone: %v", err)
	}
	other := spec
	other.Created = spec.Created.Add(1)
	if _, err := m.BeginAnew(ctx, other, none); bb.KindOf(err) != bb.NotFound {
		t.Errorf("another buffer of its name: %v", err)
	}
	anew(m, 0, false)
	tree, err := m.Namespace(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	namespacetest.Create(t, tree, bb.RootDir, "f")
	anew(m, 0, true) // not once more
	m.Close()
	m = connectTo(t, Options{InProcess: s, SoleWriter: true})
	s.Shutdown()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := m.BeginAnew(short, spec, none); err == nil || Damaged(err) {
		t.Errorf("of a server that is away: %v", err)
	}
}
