// Package hostlimit measures this machine's limits without Forebay. It copies memory with its
// checksum, and writes to a file system past the page cache. It must never depend on a daemon.
package hostlimit

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/checksum"
	"forebay/internal/measure"
)

// Step is the size of one write or read.
const Step = 1 << 20

// Memory is mapped memory outside the garbage collector's, with every page touched.
type Memory struct {
	Bytes []byte
	Kind  string   // its kind, for the report
	file  *os.File // that is mapped; nil: none
	undo  func() error
}

// Free unmaps the memory. It is no error if there is none.
func (m *Memory) Free() error {
	if m.Bytes == nil {
		return nil
	}
	err := unix.Munmap(m.Bytes)
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	if m.undo != nil {
		err = errors.Join(err, m.undo())
	}
	*m = Memory{}
	return err
}

// Anonymous maps n bytes of private memory.
func Anonymous(n int64) (Memory, error) {
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return Memory{}, fmt.Errorf("map %d bytes: %w", n, err)
	}
	_ = unix.Madvise(p, unix.MADV_HUGEPAGE) // a kernel without huge pages has no such advice
	return Memory{Bytes: p, Kind: "anonymous memory"}, nil
}

// Fill writes bytes that no codec can shrink.
func Fill(p []byte) {
	for i := 0; i < len(p); i += Step {
		var seed [32]byte
		seed[0], seed[1], seed[2] = byte(i>>20), byte(i>>28), byte(i>>36)
		rand.NewChaCha8(seed).Read(p[i:min(len(p), i+Step)])
	}
}

// HugeFile maps a file on a tmpfs with huge pages, which it mounts for it.
func HugeFile(below string, n int64) (Memory, error) {
	dir, err := os.MkdirTemp(below, "mem")
	if err != nil {
		return Memory{}, err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("forebay-bench", dir, "tmpfs", flags, fmt.Sprintf("huge=always,mode=0700,size=%d", n+64<<20)); err != nil {
		return Memory{}, errors.Join(err, os.Remove(dir))
	}
	undo := func() error { return errors.Join(unix.Unmount(dir, 0), os.Remove(dir)) }
	f, err := os.OpenFile(filepath.Join(dir, "region"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Memory{}, errors.Join(err, undo())
	}
	m, err := mapFile(f, n)
	if err != nil {
		return Memory{}, errors.Join(err, f.Close(), undo())
	}
	m.Kind, m.undo = "a mapped file on a tmpfs with huge pages, as the regions are", undo
	return m, nil
}

// Memfd maps a file that exists in memory only, the pages of /dev/shm.
func Memfd(n int64) (Memory, error) {
	fd, err := unix.MemfdCreate("forebay-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return Memory{}, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	m, err := mapFile(f, n)
	if err != nil {
		return Memory{}, errors.Join(err, f.Close())
	}
	m.Kind = "a mapped file in memory with ordinary pages"
	return m, nil
}

// mapFile maps a file of n bytes and touches every page for writing. It keeps the file
// unless it fails.
func mapFile(f *os.File, n int64) (Memory, error) {
	if err := f.Truncate(n); err != nil {
		return Memory{}, err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return Memory{}, fmt.Errorf("map %d bytes: %w", n, err)
	}
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1 // MAP_POPULATE may have failed without an error
	}
	return Memory{Bytes: p, file: f}, nil
}

// Way is a way to copy with a checksum. The effect of the processor's caches and the runtime's copy
// differs, so limits are measured with all ways and the best one counts.
type Way struct {
	name string
	copy func(dst, src []byte, crc uint64) uint64
}

// Ways are the client's way, and steps large enough for the runtime to store past the caches.
var Ways = [...]Way{
	{"in small blocks", checksum.Copy},
	{"1 MiB at a time", func(dst, src []byte, crc uint64) uint64 {
		crc = checksum.Update(crc, src)
		copy(dst, src)
		return crc
	}},
}

// Pass copies src to dst with its checksum, a step at a time, and again from dst's
// beginning if dst is shorter. That is the least work of a checksummed write.
func (w Way) Pass(dst, src []byte) (time.Duration, uint64) {
	began := time.Now()
	var crc uint64
	for at := 0; at < len(src); {
		n := min(Step, len(src)-at)
		to := at % len(dst)
		n = min(n, len(dst)-to)
		crc = w.copy(dst[to:to+n], src[at:at+n], crc)
		at += n
	}
	return time.Since(began), crc
}

// Limits are samples of a limit, of each way.
type Limits [len(Ways)][]float64

// Measure adds a sample of each way.
func (l *Limits) Measure(sample func(Way) (float64, error)) error {
	for i, w := range Ways {
		value, err := sample(w)
		if err != nil {
			return err
		}
		l[i] = append(l[i], value)
	}
	return nil
}

// Rates adds the rate of a pass of each way.
func (l *Limits) Rates(dst, src []byte) {
	for i, w := range Ways {
		took, _ := w.Pass(dst, src)
		l[i] = append(l[i], measure.Rate(len(src), took))
	}
}

// Best returns the figure of the best way.
func (l *Limits) Best(what string, unit measure.Unit) *measure.Figure {
	var best *measure.Figure
	for i, w := range Ways {
		f := measure.Of(what+", "+w.name, unit, l[i])
		if best == nil || (f.Value > best.Value) == unit.LargerIsBetter() {
			best = f
		}
	}
	return best
}

// PlainPass is copyPass without checksum.
func PlainPass(dst, src []byte) time.Duration {
	began := time.Now()
	for at := 0; at < len(src); at += Step {
		end := min(at+Step, len(src))
		copy(dst[at:end], src[at:end])
	}
	return time.Since(began)
}

// AvailableMemory returns the amount of memory that can be used without swapping. If the kernel
// does not report it, it returns 0.
func AvailableMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// MapAgain maps n bytes of the file a second time, touches them and returns how long that took.
func (m *Memory) MapAgain(n int64) (time.Duration, error) {
	began := time.Now()
	p, err := unix.Mmap(int(m.file.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return took, unix.Munmap(p)
}
