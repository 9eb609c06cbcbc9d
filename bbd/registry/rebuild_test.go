package registry

import (
	"context"
	"slices"
	"testing"

	"forebay/bbd/fate"
	"forebay/internal/bb"
)

// TestRebuild: a buffer is served when all its files are restored, and not before. After an error it is set
// aside as before, with all that memory has.
func TestRebuild(t *testing.T) {
	t.Parallel()
	w := &world{errs: map[string]error{}}
	s := w.registry(t, nil, "a")
	spec := record("a")
	if err := w.aside.Put(spec, nil, "", bb.E(bb.Lost, "read", "a", "a part is missing")); err != nil {
		t.Fatal(err)
	}
	restored := 0
	var fails error
	s.o.Restore = func(context.Context, *served) (fate.Reassertion, error) {
		restored++
		if _, err := s.Find(t.Context(), "a"); bb.KindOf(err) != bb.Lost {
			t.Errorf("a call while files are restored: %v", err)
		}
		if all := s.o.Table.All(); len(all) != 0 {
			t.Errorf("%d buffers are in the list while files are restored", len(all))
		}
		return fate.Reassertion{Remade: []string{"f", "g"}, Left: []fate.Unexplained{{Path: "h"}}}, fails
	}
	s.o.Compare = func(_ context.Context, b *served, _ map[bb.FileID]*fate.Held, was *fate.Reassertion) error {
		if found := s.o.Table.Served("a"); found != b {
			t.Errorf("the store is compared with a buffer that is not served: %v", found)
		}
		was.Lost = append(was.Lost, fate.Unexplained{Path: "i"})
		return bb.E(bb.Unavailable, "stat", "a", "the store does not answer")
	}
	attempt := func(want bb.Kind, restores int) {
		t.Helper()
		restored = 0
		kept, _ := w.aside.Find("a")
		_, err := s.rebuild(t.Context(), &kept)
		_, found := s.Find(t.Context(), "a")
		if _, is := w.aside.Find("a"); bb.KindOf(err) != want || restored != restores || !is || bb.KindOf(found) != bb.Lost || len(w.dropped) != 0 {
			t.Errorf("%v after %d restored, set aside: %v, a call: %v, dropped %v; want kind %v after %d", err, restored, is, found, w.dropped, want, restores)
		}
	}
	w.errs["anew"] = bb.E(bb.Unavailable, "open", "a", "the server does not answer")
	attempt(bb.Unavailable, 0)
	w.errs["anew"], w.errs["namespace"] = nil, bb.E(bb.Lost, "open", "a", "a part is missing again")
	attempt(bb.Lost, 0)
	w.errs["namespace"], fails = nil, bb.E(bb.Unavailable, "scan", "a", "the server has gone away")
	attempt(bb.Unavailable, 1)

	fails = nil
	kept, _ := w.aside.Find("a")
	answer, err := s.rebuild(t.Context(), &kept)
	if err != nil || answer.Files != 2 || answer.Kept != 1 || answer.Lost != 1 || len(answer.Found) != 2 || answer.Found[0].Path != "i" || answer.Found[1].Path != "h" {
		t.Fatalf("%v, %v", answer, err)
	}
	if b, err := s.Find(t.Context(), "a"); err != nil || !slices.Equal(s.o.Table.All(), []*served{b}) {
		t.Errorf("a call afterwards: %v", err)
	}
	if answer, err = s.rebuild(t.Context(), &kept); err != nil || !answer.Served {
		t.Errorf("a second time: %v, %v", answer, err)
	}
	if err := w.aside.Put(record("b"), nil, "", bb.E(bb.Invalid, "read", "b", "another reason")); err != nil {
		t.Fatal(err)
	}
	other, _ := w.aside.Find("b")
	if _, err := s.rebuild(t.Context(), &other); bb.KindOf(err) != bb.Unsupported {
		t.Errorf("set aside for another reason: %v", err)
	}
}
