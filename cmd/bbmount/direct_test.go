package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectWrites: programs that write past the kernel's pages get the same semantics.
func TestDirectWrites(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	m.mount(t, "--direct-writes")
	t.Run("semantics", func(t *testing.T) { semantics(t, m) })
	t.Run("mapped", func(t *testing.T) { directBesideMapping(t, filepath.Join(m.dir, "mapped")) })
	t.Run("dirty", func(t *testing.T) {
		path := filepath.Join(m.dir, "dirty")
		write(t, path, strings.Repeat("x", 100))
		f := open(t, path, os.O_RDWR)
		mem, err := unix.Mmap(int(f.Fd()), 0, 100, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		check(t, err)
		defer unix.Munmap(mem)
		copy(mem[10:], "mapped")
		w := open(t, path, os.O_WRONLY)
		_, err = w.WriteAt([]byte("written"), 50)
		check(t, err)
		want := strings.Repeat("x", 10) + "mapped" + strings.Repeat("x", 34) + "written" + strings.Repeat("x", 43)
		if string(mem) != want {
			t.Errorf("the mapping shows %q", mem)
		}
		check(t, w.Close())
		holds(t, path, want)
	})
	t.Run("beside", func(t *testing.T) {
		path := filepath.Join(m.dir, "beside")
		w := open(t, path, os.O_CREATE|os.O_WRONLY)
		put(t, w, "old")
		holds(t, path, "old") // the kernel has pages
		_, err := w.WriteAt([]byte("new"), 0)
		check(t, err)
		check(t, w.Close())
		holds(t, path, "new")
	})
	t.Run("again", func(t *testing.T) {
		path := filepath.Join(m.dir, "again")
		write(t, path, "old")
		holds(t, path, "old") // the kernel has pages
		w := open(t, path, os.O_WRONLY)
		put(t, w, "new")
		check(t, w.Close())
		holds(t, path, "new")
	})
}

// directBesideMapping overwrites a number that a mapping shows, while others have the kernel read it again all the time.
func directBesideMapping(t *testing.T, path string) {
	const size = 4096
	w := open(t, path, os.O_CREATE|os.O_WRONLY)
	put(t, w, string(make([]byte, size)))
	r := open(t, path, os.O_RDONLY)
	mem, err := unix.Mmap(int(r.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	check(t, err)
	defer unix.Munmap(mem)
	var ended atomic.Bool
	var readers sync.WaitGroup
	defer readers.Wait()
	defer ended.Store(true)
	for range 2 {
		readers.Go(func() {
			for p := make([]byte, 8); !ended.Load(); {
				if _, err := r.ReadAt(p, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	p := make([]byte, 8)
	for i := range uint64(2000) {
		binary.LittleEndian.PutUint64(p, i)
		_, err := w.WriteAt(p, 0)
		check(t, err)
		if got := binary.LittleEndian.Uint64(mem); got != i {
			t.Fatalf("after write %d, the mapping shows %d", i, got)
		}
		if _, err := r.ReadAt(p, 0); err != nil || binary.LittleEndian.Uint64(p) != i {
			t.Fatalf("after write %d, a reader gets %d: %v", i, binary.LittleEndian.Uint64(p), err)
		}
	}
}
