package bbd_test

import (
	"os"
	"path/filepath"
	"testing"

	"forebay/client/admin"
)

// TestOverwriteInACluster decides conflicts of files whose owner is another node. The client finds them
// in the report of a drain, replaces one on the store, and takes the store's content of the other.
func TestOverwriteInACluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	store := t.TempDir()
	theirs := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(store, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(store, name)); err != nil || string(got) != want {
			t.Fatalf("the store has %q in %s (%v), want %q", got, name, err, want)
		}
	}
	theirs("mine", "theirs")
	theirs("yours", "theirs")
	one, other := nodes[0].dial(), nodes[1].dial()
	spec := admin.BufferSpec{Name: "b", Backing: "file://" + store, Existing: admin.ExistingKeep}
	if _, err := admin.CreateBuffer(t.Context(), one, spec); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "yours"} {
		write(t, other.Buffer("b"), name, []byte("ours"))
	}
	conflicts := func(want ...string) {
		t.Helper()
		r, err := admin.Drain(t.Context(), one, "b", 0, nil)
		found := map[string]bool{}
		for _, c := range r.Conflicts() {
			found[c.Path] = true
		}
		ok := (err == nil) == (len(want) == 0) && len(found) == len(want)
		for _, name := range want {
			ok = ok && found[name]
		}
		if !ok {
			t.Fatalf("drain: %v, in conflict: %v, want %v", err, found, want)
		}
	}
	conflicts("mine", "yours")
	if _, err := admin.Overwrite(t.Context(), one, "b", "mine", 0, nil); err != nil {
		t.Fatal(err)
	}
	has("mine", "ours")
	has("yours", "theirs")
	conflicts("yours")
	in := admin.StageRequest{Buffer: "b", Path: "yours", URL: "file://" + filepath.Join(store, "yours")}
	if _, err := admin.StageIn(t.Context(), one, in, nil); err != nil {
		t.Fatal(err)
	}
	wantFile(t, other.Buffer("b"), "yours", []byte("theirs"))
	conflicts()

	// All of a buffer at once, too.
	theirs("mine", "theirs again")
	write(t, other.Buffer("b"), "mine", []byte("ours again"))
	conflicts("mine")
	if _, err := admin.Overwrite(t.Context(), one, "b", "", 0, nil); err != nil {
		t.Fatal(err)
	}
	has("mine", "ours again")
}
