package powertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Flushed writes outlive a loss of power. Of other writes, each sector is old or new.
func TestDriveLosesWhatWasNotFlushed(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, bytes.Repeat([]byte{1}, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	old, late := 0, 0
	for seed := range uint64(20) {
		d, err := NewDrive(image, filepath.Join(dir, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		d.write(bytes.Repeat([]byte{2}, 8<<10), 1000)
		d.flush()
		d.write(bytes.Repeat([]byte{3}, 8<<10), 32<<10)
		d.Lose(rand.New(rand.NewPCG(seed, 0)))
		p := make([]byte, 64<<10)
		d.read(p, 0)
		if !bytes.Equal(p[1000:1000+8<<10], bytes.Repeat([]byte{2}, 8<<10)) || p[999] != 1 || p[1000+8<<10] != 1 {
			t.Fatalf("seed %d: what was flushed is not there", seed)
		}
		for at := 32 << 10; at < 40<<10; at += sectorSize {
			switch sector := p[at : at+sectorSize]; {
			case bytes.Equal(sector, bytes.Repeat([]byte{1}, sectorSize)):
				old++
			case bytes.Equal(sector, bytes.Repeat([]byte{3}, sectorSize)):
				late++
			default:
				t.Fatalf("seed %d: the sector at %d is torn", seed, at)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if old == 0 || late == 0 {
		t.Errorf("%d sectors old, %d new: nothing is drawn", old, late)
	}
}

// A loss of power tears writes into sectors, but for that of a superblock.
func TestSurvivorsAreTorn(t *testing.T) {
	torn := 0
	for seed := range uint64(200) {
		b := blocks{}
		b.survive([]cachedWrite{{p: bytes.Repeat([]byte{1}, 2*blockSize)}}, rand.New(rand.NewPCG(seed, 0)))
		got := make([]byte, 2*blockSize)
		b.read(got, 0)
		if n := bytes.Count(got[:blockSize], []byte{1}); n != 0 && n != blockSize {
			t.Fatalf("seed %d: %d bytes of the first block survive", seed, n)
		}
		if n := bytes.Count(got[blockSize:], []byte{1}); n != 0 && n != blockSize {
			torn++
		}
	}
	if torn == 0 {
		t.Error("no other block is torn")
	}
}
