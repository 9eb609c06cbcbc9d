package bbd_test

import (
	"os"
	"path/filepath"
	"testing"

	"forebay/client/admin"
)

// TestFlushRecordedAndItsAnswerLost makes the namespace record a flush without an answer to the
// daemon. The next attempt finds the file clean, and so does memory. Others can use it.
func TestFlushRecordedAndItsAnswerLost(t *testing.T) {
	t.Parallel()
	for _, renamed := range []bool{false, true} {
		n := startNode(t, nil)
		c := n.dial()
		b, dir := n.buffer(c, admin.BufferSpec{Name: "b", Capacity: 8 << 20})
		resume := n.daemon.PauseFlushes("b")
		content, name := random(8<<20), "f"
		write(t, b, name, content)
		if err := n.daemon.RecordFlush(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if renamed {
			name = "g"
			if err := b.Rename(t.Context(), "f", name); err != nil {
				t.Fatal(err)
			}
		}
		resume()
		drain(t, c, "b")
		if dirty := n.status().Memory.Dirty; dirty != 0 {
			t.Fatalf("renamed: %v: %d bytes of memory are dirty of a buffer that is drained", renamed, dirty)
		}
		if p, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(p) != string(content) {
			t.Errorf("renamed: %v: the store has %d bytes under %q, want %d (%v)", renamed, len(p), name, len(content), err)
		}
		write(t, b, "next", random(8<<20)) // needs the room of the first
		wantFile(t, b, name, content)
	}
}
