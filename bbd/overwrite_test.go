package bbd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"forebay/client"
	"forebay/client/admin"
)

// TestOverwriteWithNothing: an empty file that is written over another one replaces it, wherever
// the bytes of that are, and stays empty after a restart.
func TestOverwriteWithNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ways := map[string]func(*client.Buffer, string) error{
		"create": func(b *client.Buffer, name string) error { return closeNew(b.Create(ctx, name)) },
		"truncate": func(b *client.Buffer, name string) error {
			return closeNew(b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true, Truncate: true}))
		},
		"write": func(b *client.Buffer, name string) error { return b.WriteFile(ctx, name, nil, 0o644) },
	}
	n := startNode(t, nil)
	b, dir := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	var names []string
	each := func(state string, f func(name, way string, size int)) {
		for _, size := range []int{1, 4096, 3 << 20} {
			for way := range ways {
				f(fmt.Sprintf("%s-%d-%s", state, size, way), way, size)
			}
		}
	}
	old := func(name, _ string, size int) {
		names = append(names, name)
		write(t, b, name, random(size))
	}
	each("evicted", old)
	drain(t, n.dial(), "b")
	n.loseMemory()
	b = n.dial().Buffer("b")
	each("flushed", old)
	drain(t, n.dial(), "b")
	each("memory", old)
	for _, state := range []string{"memory", "flushed", "evicted"} {
		each(state, func(name, way string, _ int) {
			if err := ways[way](b, name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantFile(t, b, name, nil)
		})
	}
	n.stop()
	n.start()
	for _, name := range names {
		wantFile(t, b, name, nil)
	}
	drain(t, n.dial(), "b")
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != 0 {
			t.Errorf("%s on the store: %v (%v)", name, info, err)
		}
	}
}

func closeNew(f *client.File, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}

// TestTruncateBesideAWriter: a file is truncated while another writer has it open and has
// committed nothing yet.
func TestTruncateBesideAWriter(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	write(t, b, "f", random(4096))
	first, err := b.OpenFile(t.Context(), "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Stat(); err != nil { // it is open
		t.Fatal(err)
	}
	if err := n.dial().Buffer("b").WriteFile(t.Context(), "f", []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	wantFile(t, b, "f", []byte("new"))
}
