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

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// Readers of more than fits into memory continue, however many there are, at a node that is not the
// owner of their files.
func TestClusterManyReadersLittleMemory(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	scratch(t, c, "shared")
	want := map[string][]byte{}
	for i := range 14 {
		name := fmt.Sprintf("f%d", i)
		want[name] = random(7 << 20)
		pieces(t, nodes[i%2].dial().Buffer("shared"), name, want[name], 512<<10)
	}
	there := nodes[2].dial().Buffer("shared")
	ctx := limited(t, 60*time.Second)
	var wg sync.WaitGroup
	for name, content := range want {
		wg.Go(func() {
			got, err := there.ReadFile(ctx, name)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		})
	}
	wg.Wait()
}

// Two that read a file of half the memory's size do not wait for each other.
func TestClusterTwoReadersOneLargeFile(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	content := random(32 << 20)
	ctx := limited(t, 40*time.Second)
	for round := range 5 {
		name := fmt.Sprintf("f%d", round)
		if err := b.WriteFile(ctx, name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			there := nodes[1].dial().Buffer("shared")
			wg.Go(func() {
				got, err := there.ReadFile(ctx, name)
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("round %d: %d bytes, %v", round, len(got), err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if err := b.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}

// tooLarge is the size of a file that is larger than memory of smallMemory, so that it does not fit into a test's
// node.
const tooLarge = smallMemory * 90 / 64

func withSmallMemory(c *bbd.Config) {
	c.Store.MemoryBytes, c.Store.RegionBytes = smallMemory, smallMemory/2
}

// storedAlone writes a file larger than memory and leaves it on the store alone.
func storedAlone(t *testing.T, n *node, spec admin.BufferSpec, content []byte) (b *client.Buffer, dir string) {
	t.Helper()
	before := n.change
	n.larger(256 << 20)
	c := n.dial()
	b, dir = n.buffer(c, spec)
	pieces(t, b, "large", content, 16<<20)
	drain(t, c, b.Name())
	c.Close()
	n.stop()
	n.wipe()
	n.change = before
	n.start()
	return n.dial().Buffer(b.Name()), dir
}

// A file that is on the store alone and larger than memory is read, by several at once,
// written in part, flushed, and read again after restarts.
func TestFileLargerThanMemory(t *testing.T) {
	t.Parallel()
	for _, codec := range codecs {
		t.Run("codec "+codec, func(t *testing.T) {
			n := startNode(t, withSmallMemory)
			content := random(tooLarge)
			b, dir := storedAlone(t, n, admin.BufferSpec{Name: "huge", Codec: codec}, content)
			var wg sync.WaitGroup
			for range 3 {
				b := n.dial().Buffer("huge")
				wg.Go(func() { wantFile(t, b, "large", content) })
			}
			wg.Wait()
			f, err := b.OpenFile(t.Context(), "large", client.OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			for at := int64(1000); at < tooLarge; at += tooLarge / 10 { // most extents have a part left
				p := random(1000)
				copy(content[at:], p)
				if _, err := f.WriteAt(p, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			wantFile(t, b, "large", content)
			n.stop() // its base is known by its records alone
			n.start()
			c := n.dial()
			wantFile(t, c.Buffer("huge"), "large", content)
			drain(t, c, "huge")
			if codec == "" {
				got, err := os.ReadFile(filepath.Join(dir, "large"))
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("the store has %d bytes (%v), which are others", len(got), err)
				}
			}
			n.stop()
			n.wipe()
			n.start()
			wantFile(t, n.dial().Buffer("huge"), "large", content)
		})
	}
}

// At another node than its owner, too, and that node can write it.
func TestClusterFileLargerThanMemory(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 2, withSmallMemory)
	content := random(tooLarge)
	b, _ := storedAlone(t, nodes[0], admin.BufferSpec{Name: "huge"}, content)
	there := nodes[1].dial()
	wantFile(t, there.Buffer("huge"), "large", content)
	f, err := there.Buffer("huge").OpenFile(t.Context(), "large", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	p := random(5 << 20)
	const at = tooLarge - 13<<20 + 5
	copy(content[at:], p)
	if _, err := f.WriteAt(p, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "large", content)
	drain(t, there, "huge")
	wantFile(t, b, "large", content)
}

// Bytes that are not in memory can be read while others hold all of it: readers that have
// their bytes pinned and do not continue, and dirty files that cannot be flushed.
func TestReadWhileMemoryIsHeld(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "ev"})
	contents := map[string][]byte{}
	n.evicted(c, b, contents)
	ctx := limited(t, 60*time.Second)
	for name := range contents { // each reader pins its present window, at several places
		f, err := n.dial().Buffer("ev").Open(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for at := int64(0); at < 9<<20; at += 2 << 20 {
			if _, err := f.ReadAt(make([]byte, 10), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, content := range contents {
		wantFile(t, n.dial().Buffer("ev"), name, content)
	}
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	for i := 0; n.status().Memory.Free > 8<<20 && i < 20; i++ {
		writing, cancel := context.WithTimeout(ctx, time.Second)
		err := b.WriteFile(writing, fmt.Sprint("dirty", i), random(4<<20), 0o644)
		cancel()
		if err != nil {
			break
		}
	}
	for name, content := range contents {
		wantFile(t, n.dial().Buffer("ev"), name, content)
	}
	n.faults.Set()
}
