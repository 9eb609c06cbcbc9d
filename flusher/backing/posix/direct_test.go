package posix

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/fileio"
)

// Large files arrive whole with and without O_DIRECT, with sizes of any alignment, many at a time
// with few blocks, and in place of a file system that refuses it.
func TestDirect(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		t.Run(fmt.Sprint("buffered ", buffered), func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(dir, Options{PartSize: 2 << 20})
			if err != nil {
				t.Fatal(err)
			}
			s.buffered.Store(buffered)
			var wg sync.WaitGroup
			for i, size := range []int{directMin, directMin + 1, directMin + alignment, 9<<20 - 1, 8<<20 + fileio.BlockSize + 513, 6 << 20} {
				content := make([]byte, size)
				rand.NewChaCha8([32]byte{byte(i)}).Read(content)
				wg.Go(func() {
					name := fmt.Sprint("f", i)
					if _, err := s.Put(t.Context(), name, backing.NewBytes(content), backing.PutOptions{}); err != nil {
						t.Error(err)
						return
					}
					got, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil || !bytes.Equal(got, content) {
						t.Errorf("%d bytes arrived as %d (%v)", size, len(got), err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A file is written past the page cache where the file system lets it.
func TestDirectOpens(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	root, err := s.root(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if f := s.openDirect(root, "f", directMin-1); f != nil {
		t.Error("a small file is written so")
	}
	f := s.openDirect(root, "f", directMin)
	if f == nil {
		if !s.buffered.Load() {
			t.Fatal("a large file is not written so, and nobody refused")
		}
		return // this file system refuses
	}
	defer f.Close()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_DIRECT == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
