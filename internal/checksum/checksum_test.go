package checksum

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The check value of CRC-64/NVME in the catalogue of parametrised CRC algorithms.
func TestCheckValue(t *testing.T) {
	if got := Sum([]byte("123456789")); got != 0xAE8B14860A799888 {
		t.Fatalf("checksum of 123456789 is %#x", got)
	}
}

func randomBytes(n int) []byte {
	src := rand.NewChaCha8([32]byte{1})
	p := make([]byte, n)
	src.Read(p)
	return p
}

func TestCombineMatchesConcatenation(t *testing.T) {
	p := randomBytes(300_001)
	for _, cut := range []int{0, 1, 7, 8, 63, 64, 4096, 65_537, 299_999, 300_000, 300_001} {
		if got := Combine(Sum(p[:cut]), Sum(p[cut:]), int64(len(p)-cut)); got != Sum(p) {
			t.Errorf("cut at %d: combined %#x, whole %#x", cut, got, Sum(p))
		}
	}
}

func TestZeros(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 1000, 1 << 20} {
		if got, want := Zeros(int64(n)), Sum(make([]byte, n)); got != want {
			t.Errorf("%d zeros: %#x, want %#x", n, got, want)
		}
	}
}

func TestCopy(t *testing.T) {
	for _, n := range []int{0, 1, copyBlock - 1, copyBlock, copyBlock + 1, 3*copyBlock + 5} {
		src, dst := randomBytes(n), make([]byte, n)
		for _, f := range []func(dst, src []byte, crc uint64) uint64{Copy, CopyOut} {
			if got := f(dst, src, Sum([]byte("before"))); got != Update(Sum([]byte("before")), src) {
				t.Errorf("%d bytes: checksum %#x", n, got)
			}
			if !bytes.Equal(dst, src) {
				t.Errorf("%d bytes: copy differs", n)
			}
		}
	}
}

func TestCopyAllocatesNothing(t *testing.T) {
	src, dst := randomBytes(1<<20), make([]byte, 1<<20)
	if n := testing.AllocsPerRun(10, func() { Copy(dst, src, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCombine(f *testing.F) {
	f.Add([]byte("a"), []byte("bc"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if got, want := Combine(Sum(a), Sum(b), int64(len(b))), Sum(append(bytes.Clone(a), b...)); got != want {
			t.Fatalf("%#x, want %#x", got, want)
		}
	})
}

func BenchmarkCopy(b *testing.B) {
	src, dst := randomBytes(1<<20), make([]byte, 1<<20)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		Copy(dst, src, 0)
	}
}

// shared maps memory twice. Bytes written to one mapping are read from the other.
func shared(t *testing.T, n int) (a, b []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("checksum", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	var maps [2][]byte
	for i := range maps {
		if maps[i], err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(maps[i]) })
	}
	return maps[0], maps[1]
}

// TestCopyOut: the checksum is that of the copy, even if the source changes meanwhile.
func TestCopyOut(t *testing.T) {
	const n = 3*copyOutBlock + 5
	src, theirs := shared(t, n)
	stop := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				theirs[i*4099%n]++
			}
		}
	})
	defer other.Wait()
	defer close(stop)
	dst := make([]byte, n)
	for range 200 {
		if got := CopyOut(dst, src, 0); got != Sum(dst) {
			t.Fatalf("checksum %#x of a copy with checksum %#x", got, Sum(dst))
		}
	}
}
