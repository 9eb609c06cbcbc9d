package dropped

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"testing"

	"forebay/internal/bb"
)

func FuzzDrops(f *testing.F) {
	whole := appendDrop(appendDrop(nil, drop{1, 2}), drop{0, 1<<64 - 1})
	f.Add(whole)
	f.Add(whole[:dropEntry+5])
	f.Add(bytes.Repeat([]byte{0}, 3*dropEntry))
	f.Fuzz(func(t *testing.T, p []byte) {
		var again []byte
		for _, d := range decodeDrops(p) {
			again = appendDrop(again, d)
		}
		if got := decodeDrops(again); !slices.Equal(got, decodeDrops(p)) {
			t.Errorf("%x: %v, again %v", p, decodeDrops(p), got)
		}
	})
}

func TestDecodeDrops(t *testing.T) {
	p := appendDrop(appendDrop(appendDrop(nil, drop{7, 1}), drop{7, 2}), drop{7, 3})
	p[dropEntry+3] ^= 1
	if got := decodeDrops(p[:len(p)-1]); !slices.Equal(got, []drop{{7, 1}}) {
		t.Errorf("of three entries, one damaged and one cut: %v", got)
	}
}

// TestDropsRenewed: entries stay while a segment may have bytes of their file, and those of other
// namespaces always. The list does not grow without bound.
func TestDropsRenewed(t *testing.T) {
	has := map[bb.FileID]struct{}{}
	s := &List{}
	s.Read(t.TempDir(), 42, slog.New(slog.DiscardHandler))
	if err := s.Open(func() map[bb.FileID]struct{} { return has }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list := func() []drop {
		t.Helper()
		p, err := os.ReadFile(s.path())
		if err != nil {
			t.Fatal(err)
		}
		return decodeDrops(p)
	}
	foreign := drop{99, 5}
	if err := s.renew([]drop{foreign, foreign, {s.namespace, 1}}); err != nil {
		t.Fatal(err)
	}
	if got := list(); !slices.Equal(got, []drop{foreign}) {
		t.Errorf("the list has %v", got)
	}
	for n := range bb.FileID(100) {
		s.Note(n + 1)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 101 || got[100] != (drop{s.namespace, 100}) {
		t.Errorf("the list has %d entries", len(got))
	}
	s.limit = s.size
	s.Note(1000)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := list(); !slices.Equal(got, []drop{foreign}) {
		t.Errorf("made anew, the list has %v", got)
	}
	s.Note(1)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 2 {
		t.Errorf("the list has %v", got)
	}
}
