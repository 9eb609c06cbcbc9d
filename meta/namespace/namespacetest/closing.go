package namespacetest

import (
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

// testClosesAreOrdered: closes are in the order in which they were stored, by any process, and neither
// renames nor changes of attributes move one in it.
func testClosesAreOrdered(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		ctx := metatest.Context(t)
		finish := func(ns namespace.Tree, name string) bb.Entry {
			t.Helper()
			e, err := ns.Update(ctx, bb.RootDir, name, func(e *bb.Entry) error {
				e.Generation++
				e.Closed = bb.Closing{Generation: e.Generation}
				return nil
			})
			if err != nil || e.ClosedAt() != e.Revision || e.Revision == 0 {
				t.Fatalf("%+v, %v", e, err)
			}
			return e
		}
		read := func(what, path string, want uint64) {
			t.Helper()
			for i, ns := range []namespace.Tree{a, b} {
				ns.Distrust()
				e, err := ns.Resolve(ctx, path)
				if err != nil || e.ClosedAt() != want {
					t.Errorf("%s, by process %d: closed at %d, want %d (%v)", what, i, e.ClosedAt(), want, err)
				}
			}
			listed, err := b.Lookup(ctx, bb.RootDir, path)
			if err != nil || listed.ClosedAt() != want {
				t.Errorf("%s: closed at %d, want %d (%v)", what, listed.ClosedAt(), want, err)
			}
		}
		Create(t, a, bb.RootDir, "first")
		Create(t, b, bb.RootDir, "second")
		read("a file that was not closed", "first", 0)
		first, second := finish(a, "first"), finish(b, "second")
		if first.ClosedAt() >= second.ClosedAt() {
			t.Errorf("the first close is at %d, the second at %d", first.ClosedAt(), second.ClosedAt())
		}
		read("closed", "first", first.ClosedAt())
		later := time.Now().Add(time.Hour)
		if _, err := b.SetAttr(ctx, bb.RootDir, "first", namespace.Attr{MTime: &later}); err != nil {
			t.Fatal(err)
		}
		read("with another time", "first", first.ClosedAt())
		if _, err := a.Rename(ctx, bb.RootDir, "first", bb.RootDir, "third", namespace.RenameOptions{}); err != nil {
			t.Fatal(err)
		}
		read("renamed", "third", first.ClosedAt())
		if _, err := b.Rename(ctx, bb.RootDir, "third", bb.RootDir, "second", namespace.RenameOptions{Replace: true}); err != nil {
			t.Fatal(err)
		}
		read("renamed onto a younger one", "second", first.ClosedAt())
		if again := finish(b, "second"); again.ClosedAt() <= second.ClosedAt() {
			t.Errorf("written again, it is closed at %d, before %d", again.ClosedAt(), second.ClosedAt())
		}
		made := File(bb.RootDir, "at once")
		made.Closed.Generation = made.Generation
		revision, err := b.Create(ctx, made)
		if err != nil {
			t.Fatal(err)
		}
		read("made as a closed one", "at once", revision)
		_, err = a.Update(ctx, bb.RootDir, "second", func(e *bb.Entry) error {
			e.Generation++
			e.Open = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		read("being written", "second", 0)
	})
}
