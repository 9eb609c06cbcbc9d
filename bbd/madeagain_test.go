package bbd_test

import (
	"testing"

	"forebay/client"
)

// TestBufferMadeAgain: memory that a client keeps for the next file of a buffer is none for a buffer
// that is made under the name of a destroyed one.
func TestBufferMadeAgain(t *testing.T) {
	n := startNode(t, nil)
	c := n.dial()
	content := random(2 << 20)
	for i := range 3 {
		b, _ := n.buffer(c, client.BufferSpec{Name: "again"})
		for _, name := range []string{"a", "b"} {
			if err := b.WriteFile(t.Context(), name, content, 0o644); err != nil {
				t.Fatalf("%s of buffer %d: %v", name, i, err)
			}
		}
		if err := c.DiscardBuffer(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
	}
}
