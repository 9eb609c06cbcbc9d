package fate

import (
	"testing"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// TestInventory: the facts about files in memory, with any other entries in the namespace.
func TestInventory(t *testing.T) {
	t.Parallel()
	held := map[bb.FileID]*Held{}
	for file, id := range map[bb.FileID]store.Identity{
		1: {Dir: bb.RootDir, Name: "there"},
		2: {Dir: bb.RootDir, Name: "behind"},
		3: {Dir: bb.RootDir, Name: "taken"},
		4: {Dir: 9, Name: "f", Path: "gone/f"},
		5: {Dir: 9, Name: "f", Path: bb.HiddenDir + "/1/attempt/t/a/f"},
		6: {Dir: bb.RootDir, Name: "removed"},
		7: {Dir: 8, Name: "renamed"},
	} {
		held[file] = &Held{File: file, Identity: &id, Acked: 5}
	}
	inv := NewInventory(held)
	behind := map[string]bool{}
	for _, e := range []bb.Entry{
		{Parent: bb.RootDir, Name: "there", Type: bb.TypeFile, File: 1, Generation: 5},
		{Parent: bb.RootDir, Name: "behind", Type: bb.TypeFile, File: 2, Generation: 4},
		{Parent: bb.RootDir, Name: "taken", Type: bb.TypeDirectory, Dir: 8},
		{Parent: bb.RootDir, Name: "new", Type: bb.TypeFile, File: 7, Generation: 6},
		{Parent: bb.RootDir, Name: "other", Type: bb.TypeFile, File: 100, Generation: 1},
	} {
		behind[e.Name] = inv.Add(&e)
	}
	inv.Gone(6)
	inv.Gone(200)
	for name, is := range behind {
		if is != (name == "behind") {
			t.Errorf("%s is behind memory: %v", name, is)
		}
	}
	for file, want := range map[bb.FileID]struct {
		entry, removed, taken bool
	}{
		1: {entry: true}, 2: {entry: true}, 3: {taken: true}, 4: {}, 5: {taken: true}, 6: {removed: true}, 7: {entry: true},
	} {
		k := inv.Known(held[file], func(e *bb.Entry) bool { return e.File == 1 })
		if (k.Entry != nil) != want.entry || k.Removed != want.removed || k.Taken != want.taken || k.Here != (file == 1) {
			t.Errorf("file %d: %+v, want %+v", file, k, want)
		}
	}
	if missing := inv.Missing(); len(missing) != 4 {
		t.Errorf("%d files without an entry, want 4", len(missing))
	}
	if !inv.HasDir(8) || inv.HasDir(9) || !inv.HasDir(bb.RootDir) {
		t.Error("directories are there that are not, or the other way round")
	}
}
