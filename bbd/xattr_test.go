package bbd_test

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/receipt"
)

// TestXattrsAreFlushed: a flush brings extended attributes along, also of a file that its user may
// only read. Those that the store does not have are in the receipt.
func TestXattrsAreFlushed(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, store := n.buffer(c, admin.BufferSpec{Name: "b"})
	supported := unix.Setxattr(store, "user.a", nil, 0) == nil
	if err := b.WriteFile(t.Context(), "f", []byte("f"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := b.SetXattr(t.Context(), "f", name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	set("user.a", "\x00\xff")
	set("user.b", "before the flush")
	readOnly := fs.FileMode(0o444)
	if _, err := b.SetAttr(t.Context(), "f", client.Attr{Mode: &readOnly}); err != nil {
		t.Fatal(err)
	}
	// The first content may be on the store by now, without attributes. The flush of the next one brings them.
	if err := b.WriteFile(t.Context(), "f", []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	notKept := func() []string {
		t.Helper()
		var text bytes.Buffer
		if err := admin.Receipt(t.Context(), c, "b", &text); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text.Bytes()) {
			if r, err := receipt.Parse(bytes.TrimSpace(line)); err == nil && r.Path == "f" {
				return r.NotKept
			}
		}
		t.Fatalf("no receipt of the file in %s", &text)
		return nil
	}
	drain(t, c, "b")
	var want []string
	if !supported {
		want = []string{"user.a", "user.b"}
	}
	if got := notKept(); !slices.Equal(got, want) {
		t.Errorf("the receipt says that %q are not kept, want %q", got, want)
	}
	value := make([]byte, 100)
	if size, err := unix.Getxattr(filepath.Join(store, "f"), "user.a", value); supported && (err != nil || string(value[:size]) != "\x00\xff") {
		t.Errorf("the store has %q (%v)", value[:max(size, 0)], err)
	}
	set("user.a", "after the flush")
	if got := notKept(); !slices.Contains(got, "user.a") {
		t.Errorf("the receipt says that %q are not kept after a change", got)
	}
}
