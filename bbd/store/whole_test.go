package store

import (
	"errors"
	"slices"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func TestRunsOf(t *testing.T) {
	x := func(from, end int64) NewExtent { return NewExtent{FileOffset: from, Length: end - from} }
	for name, c := range map[string]struct {
		in   []NewExtent
		want []fileRun
	}{
		"none":      {nil, nil},
		"adjacent":  {[]NewExtent{x(5, 9), x(0, 5)}, []fileRun{{0, 9}}},
		"apart":     {[]NewExtent{x(6, 9), x(0, 5)}, []fileRun{{0, 5}, {6, 9}}},
		"overlap":   {[]NewExtent{x(0, 5), x(3, 7)}, []fileRun{{0, 7}}},
		"inside":    {[]NewExtent{x(0, 9), x(3, 7), x(9, 10)}, []fileRun{{0, 10}}},
		"same from": {[]NewExtent{x(2, 4), x(2, 3)}, []fileRun{{2, 4}}},
	} {
		if got := runsOf(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A whole commit replaces a generation's content in one step. A failed one leaves the former
// content, and a successful one is there after a restart, too.
func TestWholeCommit(t *testing.T) {
	old, whole := content(1, 3000), content(2, 5000)
	for name, begin := range map[string]func(*Store, *writer){
		"nothing there":   func(*Store, *writer) {},
		"being written":   func(_ *Store, w *writer) { w.commit(1, 7, 0, 0, old) },
		"with a hole":     func(_ *Store, w *writer) { w.commit(1, 7, 0, 2000, old) },
		"sealed":          func(s *Store, w *writer) { w.commit(1, 7, 0, 0, old); must(t, s.Seal(1, 7)) },
		"with a base":     func(_ *Store, w *writer) { w.commit(1, 3, 0, 0, old); w.commit(1, 7, 3, 500, old) },
		"a reader's copy": func(s *Store, _ *writer) { must(t, s.Mirror(1, 7, "b", []MirrorExtent{{0, 3000, checksum.Sum(old)}})) },
	} {
		t.Run(name, func(t *testing.T) {
			o := folders(t)
			s := open(t, o)
			w := newWriter(t, s)
			begin(s, w)
			sum, size, before := s.Checksum(1, 7)
			e := w.put(0, whole)
			bad := e
			bad.SegmentOffset = 1
			c := Commit{File: 1, Generation: 7, Whole: true, Buffer: "b", Extents: []NewExtent{bad}}
			if err := s.Commit(c); !errors.Is(err, bb.Invalid) {
				t.Fatalf("an extent outside the lease: %v", err)
			}
			if sum2, size2, after := s.Checksum(1, 7); sum2 != sum || size2 != size || bb.KindOf(after) != bb.KindOf(before) {
				t.Fatalf("a commit that failed left %d bytes, %v; there were %d, %v", size2, after, size, before)
			}
			c.Extents[0] = e
			must(t, s.Commit(c))
			check(t, s, 1, 7, whole)
			w.commit(1, 7, 0, 5000, old) // and it is written on
			want := append(slices.Clone(whole), old...)
			check(t, s, 1, 7, want)
			must(t, s.Close())
			s = open(t, o)
			must(t, s.Adopt(1, 7))
			check(t, s, 1, 7, want)
		})
	}
}

// An extent that a whole commit would hide without taking its place stays. After a restart it would
// be visible again.
func TestWholeCommitMustCover(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	old := content(1, 3000)
	w.commit(1, 7, 0, 0, old)
	for name, off := range map[string]int64{"shorter": 0, "before it": 3000, "a hole in it": 1} {
		e := w.put(off, content(2, 2999))
		if err := s.Commit(Commit{File: 1, Generation: 7, Whole: true, Buffer: "b", Extents: []NewExtent{e}}); !errors.Is(err, bb.Exists) {
			t.Errorf("%s: %v", name, err)
		}
		check(t, s, 1, 7, old)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
