package bench

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
)

// step is the size of one write or read.
const step = 1 << 20

// memory is mapped memory outside the garbage collector's, with every page touched.
type memory struct {
	bytes []byte
	kind  string   // what it is, for the report
	file  *os.File // that is mapped; nil: none
	undo  func() error
}

func (m *memory) free() error {
	if m.bytes == nil {
		return nil
	}
	err := unix.Munmap(m.bytes)
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	if m.undo != nil {
		err = errors.Join(err, m.undo())
	}
	*m = memory{}
	return err
}

// data returns n bytes that an application might write: not compressible, larger than
// any cache, in huge pages where the kernel gives them.
func (e *env) data(n int64) ([]byte, error) {
	if int64(len(e.source.bytes)) >= n {
		return e.source.bytes[:n], nil
	}
	if err := e.source.free(); err != nil {
		return nil, err
	}
	m, err := anonymous(n)
	if err != nil {
		return nil, err
	}
	fill(m.bytes)
	e.source = m
	return m.bytes, nil
}

func anonymous(n int64) (memory, error) {
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return memory{}, fmt.Errorf("map %d bytes: %w", n, err)
	}
	_ = unix.Madvise(p, unix.MADV_HUGEPAGE) // a kernel without huge pages has no such advice
	return memory{bytes: p, kind: "anonymous memory"}, nil
}

func fill(p []byte) {
	for i := 0; i < len(p); i += step {
		var seed [32]byte
		seed[0], seed[1], seed[2] = byte(i>>20), byte(i>>28), byte(i>>36)
		rand.NewChaCha8(seed).Read(p[i:min(len(p), i+step)])
	}
}

// limitMemory returns n bytes of the kind that the daemon's regions are of: a tmpfs
// with huge pages where the daemon has mounted one and we may, else a file in memory.
func (e *env) limitMemory(n int64) ([]byte, error) {
	if int64(len(e.target.bytes)) >= n {
		return e.target.bytes[:n], nil
	}
	if err := e.target.free(); err != nil {
		return nil, err
	}
	m, err := e.likeRegions(n)
	if err != nil {
		return nil, err
	}
	e.target, e.regions = m, m.kind
	return m.bytes, nil
}

func (e *env) likeRegions(n int64) (memory, error) {
	if e.daemon != nil && e.daemon.ours() && isTmpfs(filepath.Join(e.daemon.dir, "mem")) {
		m, err := hugeFile(e.state, n)
		if err == nil {
			return m, nil
		}
		e.log("no tmpfs of our own to compare with: %v", err)
	}
	return memfd(n)
}

func isTmpfs(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// hugeFile maps a file on a tmpfs with huge pages, which it mounts for it.
func hugeFile(below string, n int64) (memory, error) {
	dir, err := os.MkdirTemp(below, "mem")
	if err != nil {
		return memory{}, err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("forebay-bench", dir, "tmpfs", flags, fmt.Sprintf("huge=always,mode=0700,size=%d", n+64<<20)); err != nil {
		return memory{}, errors.Join(err, os.Remove(dir))
	}
	undo := func() error { return errors.Join(unix.Unmount(dir, 0), os.Remove(dir)) }
	f, err := os.OpenFile(filepath.Join(dir, "region"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return memory{}, errors.Join(err, undo())
	}
	m, err := mapFile(f, n)
	if err != nil {
		return memory{}, errors.Join(err, f.Close(), undo())
	}
	m.kind, m.undo = "a mapped file on a tmpfs with huge pages, as the regions are", undo
	return m, nil
}

// memfd maps a file that exists in memory only: the pages of /dev/shm.
func memfd(n int64) (memory, error) {
	fd, err := unix.MemfdCreate("forebay-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return memory{}, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	m, err := mapFile(f, n)
	if err != nil {
		return memory{}, errors.Join(err, f.Close())
	}
	m.kind = "a mapped file in memory with ordinary pages"
	return m, nil
}

// mapFile maps a file of n bytes and touches every page for writing. It keeps the file
// unless it fails.
func mapFile(f *os.File, n int64) (memory, error) {
	if err := f.Truncate(n); err != nil {
		return memory{}, err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return memory{}, fmt.Errorf("map %d bytes: %w", n, err)
	}
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1 // MAP_POPULATE may have given up without saying so
	}
	return memory{bytes: p, file: f}, nil
}

// way is a way to copy with a checksum. What the processor's caches and the runtime's
// copy make of it differs, so limits are measured with all ways and the best one counts.
type way struct {
	name string
	copy func(dst, src []byte, crc uint64) uint64
}

// ways are what the client does, and steps large enough for the runtime to store past
// the caches.
var ways = [...]way{
	{"in small blocks", checksum.Copy},
	{"1 MiB at a time", func(dst, src []byte, crc uint64) uint64 {
		crc = checksum.Update(crc, src)
		copy(dst, src)
		return crc
	}},
}

// pass copies src to dst with its checksum, a step at a time, and again from dst's
// beginning where dst is shorter: the least that a checksummed write can do.
func (w way) pass(dst, src []byte) (time.Duration, uint64) {
	began := time.Now()
	var crc uint64
	for at := 0; at < len(src); {
		n := min(step, len(src)-at)
		to := at % len(dst)
		n = min(n, len(dst)-to)
		crc = w.copy(dst[to:to+n], src[at:at+n], crc)
		at += n
	}
	return time.Since(began), crc
}

// limits are samples of a limit, of each way.
type limits [len(ways)][]float64

// measure adds a sample of each way.
func (l *limits) measure(sample func(way) (float64, error)) error {
	for i, w := range ways {
		value, err := sample(w)
		if err != nil {
			return err
		}
		l[i] = append(l[i], value)
	}
	return nil
}

// rates adds the rate of a pass of each way.
func (l *limits) rates(dst, src []byte) {
	for i, w := range ways {
		took, _ := w.pass(dst, src)
		l[i] = append(l[i], rate(len(src), took))
	}
}

// best returns the figure of the best way.
func (l *limits) best(what string, unit Unit) *Figure {
	var best *Figure
	for i, w := range ways {
		f := figure(what+", "+w.name, unit, l[i])
		if best == nil || (f.Value > best.Value) == unit.largerIsBetter() {
			best = f
		}
	}
	return best
}

// plainPass is copyPass without checksum.
func plainPass(dst, src []byte) time.Duration {
	began := time.Now()
	for at := 0; at < len(src); at += step {
		end := min(at+step, len(src))
		copy(dst[at:end], src[at:end])
	}
	return time.Since(began)
}

// availableMemory returns how much can be used without swapping; 0 if the kernel does not say.
func availableMemory() int64 {
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
