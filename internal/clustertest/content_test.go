package clustertest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStoreFilesLeavesUnfinishedWorkOut: an unfinished object of a killed daemon has the name of no
// file.
func TestStoreFilesLeavesUnfinishedWorkOut(t *testing.T) {
	root, begins := t.TempDir(), ".forebay-0000000000000007-0000000000000063-00000000000000ab"
	for _, name := range []string{begins + ".tmp", begins + ".rm.f", "f", "f.tmp"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := StoreFiles(root)
	if got := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(got, []string{"f", "f.tmp"}) {
		t.Errorf("found %q, %v", got, err)
	}
}
