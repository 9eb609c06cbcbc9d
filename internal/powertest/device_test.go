package powertest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A write to a device survives a loss of power if an fsync came after it, and else by chance.
func TestDevice(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, bytes.Repeat([]byte{1}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDevice(t, image)
	f, err := os.OpenFile(d.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(content byte, off int64) {
		t.Helper()
		if _, err := f.WriteAt(bytes.Repeat([]byte{content}, blockSize), off); err != nil {
			t.Fatal(err)
		}
		// The bytes are the drive's, and its cache is not flushed.
		if err := unix.SyncFileRange(int(f.Fd()), off, blockSize, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err != nil {
			t.Fatal(err)
		}
	}
	write(2, 0)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	write(3, 64<<10)
	survived := 0
	for seed := range uint64(21) {
		rng := rand.New(rand.NewPCG(seed, 0))
		if seed == 0 {
			rng = nil
		}
		if err := d.Survivors(filepath.Join(dir, "after"), rng); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "after"))
		if err != nil || len(got) != 1<<20 || got[0] != 2 || got[blockSize] != 1 {
			t.Fatalf("%d bytes, the first %d and %d; %v", len(got), got[0], got[blockSize], err)
		}
		if got[64<<10] == 3 {
			survived++
		}
		if seed == 0 && survived > 0 {
			t.Error("a cached write survived that could be lost")
		}
	}
	if survived == 0 || survived == 20 {
		t.Errorf("a cached write survived %d of 20 losses", survived)
	}
	now := make([]byte, 1<<20)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f, now); err != nil || now[0] != 2 || now[64<<10] != 3 {
		t.Errorf("the device itself has lost something: %v", err)
	}
}
