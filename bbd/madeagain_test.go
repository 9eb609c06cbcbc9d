package bbd_test

import (
	"testing"

	"forebay/client/admin"
)

// TestBufferMadeAgain: memory that a client keeps for the next file of a buffer is none for a buffer
// that is made under the name of a destroyed one.
func TestBufferMadeAgain(t *testing.T) {
	n := startNode(t, nil)
	c := n.dial()
	content := random(2 << 20)
	for i := range 3 {
		b, _ := n.buffer(c, admin.BufferSpec{Name: "again"})
		for _, name := range []string{"a", "b"} {
			if err := b.WriteFile(t.Context(), name, content, 0o644); err != nil {
				t.Fatalf("%s of buffer %d: %v", name, i, err)
			}
		}
		if err := admin.DiscardBuffer(t.Context(), c, "again"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBufferMadeAgainElsewhere is TestBufferMadeAgain where another process destroys the buffer and makes
// it again, while the writer keeps memory for its next file.
func TestBufferMadeAgainElsewhere(t *testing.T) {
	n := startNode(t, nil)
	c, other := n.dial(), n.dial()
	content := random(2 << 20)
	b, _ := n.buffer(other, admin.BufferSpec{Name: "again"})
	for i := range 3 {
		for _, name := range []string{"a", "b"} {
			if err := c.Buffer("again").WriteFile(t.Context(), name, content, 0o644); err != nil {
				t.Fatalf("%s of buffer %d: %v", name, i, err)
			}
		}
		if err := admin.DiscardBuffer(t.Context(), other, "again"); err != nil {
			t.Fatal(err)
		}
		b, _ = n.buffer(other, admin.BufferSpec{Name: "again"})
	}
	if err := c.Buffer("again").WriteFile(t.Context(), "a", content, 0o644); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "a", content)
}
