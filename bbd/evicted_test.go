package bbd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// evicted fills memory with files on the store until one of them is evicted.
func (n *node) evicted(c *client.Client, b *client.Buffer, contents map[string][]byte) (name string) {
	n.t.Helper()
	for i := range 12 {
		name := fmt.Sprint("f", i)
		contents[name] = random(9<<20 + i)
		write(n.t, b, name, contents[name])
	}
	drain(n.t, c, b.Name())
	for name := range contents {
		if e, err := b.Stat(n.t.Context(), name); err == nil && e.State == client.StateEvicted {
			return name
		}
	}
	n.t.Fatal("108 MiB in 64 MiB of memory and nothing is evicted")
	return ""
}

// An open of a file that is only on the store, while another one replaces it there, too, gets
// one of the two.
func TestOpenWhileReplaced(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "ev"})
	contents := map[string]string{"one": "the first", "two": "another"}
	for name, content := range contents {
		write(t, b, name, []byte(content))
	}
	drain(t, c, "ev")
	n.loseMemory()
	b = n.dial().Buffer("ev")
	n.faults.Set(fault.Rule{Op: "get", Name: "one", Kind: fault.Slow, Delay: time.Second, Count: 1})
	var got []byte
	read := make(chan error)
	go func() {
		var err error
		got, err = b.ReadFile(t.Context(), "one")
		read <- err
	}()
	eventually(t, "the store is asked", func() bool { return n.faults.Hits() > 0 })
	if err := b.Rename(t.Context(), "two", "one"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store follows", func() bool {
		on, err := os.ReadFile(filepath.Join(dir, "one"))
		return err == nil && string(on) == contents["two"]
	})
	if err := <-read; err != nil || string(got) != contents["one"] && string(got) != contents["two"] {
		t.Errorf("%q %v", got, err)
	}
}

// A reservation that does not fit beside others' unfinished bytes waits until memory is free.
func TestReserveWaits(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	full, _ := n.buffer(c, admin.BufferSpec{Name: "full"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	for i := range 4 {
		write(t, n.dial().Buffer("b"), fmt.Sprint(i), random(1_150_000))
	}
	time.Sleep(2 * time.Second) // most of their segments are given back, unfinished
	f := openWriter(t, b, "large")
	for i := 0; n.status().Memory.Free > 0; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		full.WriteFile(ctx, fmt.Sprint(i), random(1<<20), 0)
		cancel()
	}
	time.AfterFunc(1200*time.Millisecond, func() { n.faults.Set() })
	room, err := f.Reserve(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	want := random(1 << 20)
	copy(room, want)
	if err := f.Publish(1 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "large", want)
}

// Part of an evicted file is overwritten. The rest comes back from the store, and the content is
// right, before and after its flush and a restart.
func TestOverwriteEvicted(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "ev"})
	contents := map[string][]byte{}
	name := n.evicted(c, b, contents)
	f, err := b.OpenFile(t.Context(), name, client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 1 << 20, 5<<20 + 77, len(contents[name]) - 50} {
		p := random(100)
		if _, err := f.WriteAt(p, int64(at)); err != nil {
			t.Fatal(err)
		}
		contents[name] = append(contents[name][:at:at], append(p, contents[name][min(at+100, len(contents[name])):]...)...)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, name, contents[name])
	drain(t, c, "ev")
	for name, content := range contents {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s in the store: %d bytes (%v)", name, len(got), err)
		}
	}
	c.Close()
	n.stop()
	n.start()
	b = n.dial().Buffer("ev")
	for name, content := range contents {
		wantFile(t, b, name, content)
	}
}

// Many readers of one evicted file all get it, and so they do after a restart.
func TestManyReadEvicted(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "ev"})
	contents := map[string][]byte{}
	name := n.evicted(c, b, contents)
	for range 2 {
		var wg sync.WaitGroup
		for range 6 {
			c := n.dial()
			wg.Go(func() { wantFile(t, c.Buffer("ev"), name, contents[name]) })
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for other, content := range contents { // evict it again
			wantFile(t, b, other, content)
		}
		n.stop()
		n.start()
		b = n.dial().Buffer("ev")
	}
}

// A flush replaces a file's object while a reader has it open. Later reads are of the new one.
func TestReadReplacedObject(t *testing.T) {
	t.Parallel()
	for _, codec := range codecs {
		t.Run("codec "+codec, func(t *testing.T) {
			n := startNode(t, nil)
			c := n.dial()
			b, _ := n.buffer(c, admin.BufferSpec{Name: "ev", Codec: codec})
			contents := map[string][]byte{}
			name := n.evicted(c, b, contents)
			bytes, err := n.daemon.ReadOn(t.Context(), "ev", name, func() {
				write(t, b, name, random(len(contents[name])))
				drain(t, c, "ev")
				for i := range 12 {
					write(t, b, fmt.Sprint("more", i), random(9<<20))
				}
				drain(t, c, "ev")
			})
			if err != nil || bytes < 4<<20 {
				t.Errorf("%d bytes: %v", bytes, err)
			}
		})
	}
}

// A file is renamed over another one whose object the store still has under that name, since it has
// not followed the rename yet. Its readers get the renamed file, for all lengths.
func TestReadRenamedOverFlushed(t *testing.T) {
	t.Parallel()
	for _, missing := range []int{0, 5 << 20} { // from the replaced one
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("shorter=%d/restart=%v", missing, restart), func(t *testing.T) {
				n := startNode(t, nil)
				c := n.dial()
				b, dir := n.buffer(c, admin.BufferSpec{Name: "ev"})
				contents := map[string][]byte{}
				write(t, b, "over", random(9<<20-missing))
				name := n.evicted(c, b, contents)
				n.faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
				if err := b.Rename(t.Context(), name, "over"); err != nil {
					t.Fatal(err)
				}
				if restart {
					c.Close()
					n.stop()
					n.start()
					b = n.dial().Buffer("ev")
				}
				eventually(t, "the store refuses the rename", func() bool { return n.faults.Hits() > 0 })
				time.AfterFunc(300*time.Millisecond, func() { n.faults.Set() })
				wantFile(t, b, "over", contents[name])
				eventually(t, "the store follows", func() bool {
					got, err := os.ReadFile(filepath.Join(dir, "over"))
					return err == nil && bytes.Equal(got, contents[name])
				})
			})
		}
	}
}
