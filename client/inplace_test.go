package client_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"forebay/client"
)

// inPlace opens a file for reading in place, and maps it.
func inPlace(t *testing.T, b *client.Buffer, name string, size int64) *client.Mapping {
	t.Helper()
	f, err := b.OpenFile(context.Background(), name, client.OpenOptions{Linear: true})
	check(t, err)
	t.Cleanup(func() { f.Close() })
	m, err := f.Map(0, size)
	check(t, err)
	t.Cleanup(func() { m.Release() })
	return m
}

// TestInPlace checks that a large file has a file in memory that is all of it, and keeps its bytes while the file is
// written to, and while the daemon is killed.
func TestInPlace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, c, _ := daemonClient(t, "--memory-size", "512MiB", "--memory-region-size", "64MiB")
	b := c.Buffer("b")
	data := random(40<<20 + 777)
	check(t, b.WriteFile(ctx, "large", data, 0))
	check(t, b.WriteFile(ctx, "small", data[:1<<20], 0))
	holds := func(m *client.Mapping) {
		t.Helper()
		if m.InPlace() == nil {
			t.Fatal("the bytes do not lie in one place")
		}
		got, err := io.ReadAll(io.NewSectionReader(m.InPlace(), 0, 1<<40))
		check(t, err)
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes differ from the file's %d", len(got), len(data))
		}
	}
	if m := inPlace(t, b, "small", 1<<20); m.InPlace() != nil {
		t.Error("a small file has a region of its own")
	}
	m := inPlace(t, b, "large", int64(len(data)))
	holds(m)
	holds(inPlace(t, b, "large", int64(len(data))))
	if part := inPlace(t, b, "large", 1<<20); part.InPlace() != nil {
		t.Error("a part of a file counts as all of it")
	}
	f, err := b.OpenFile(ctx, "large", client.OpenOptions{Write: true})
	check(t, err)
	_, err = f.WriteAt([]byte("changed"), 100)
	check(t, err)
	check(t, f.Close())
	holds(m)
	d.Kill()
	d.Start()
	holds(m)
	copy(data[100:], "changed")
	if got := readAll(t, b, "large"); !bytes.Equal(got, data) {
		t.Error("after the restart, the file differs")
	}
	holds(inPlace(t, b, "large", int64(len(data))))
}
