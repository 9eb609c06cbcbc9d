package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRandom does random operations on a few files, and compares every byte that it reads
// with a model. FOREBAY_SEED repeats a run, FOREBAY_SEEDS makes more of them.
func TestRandom(t *testing.T) {
	t.Parallel()
	seeds := []uint64{rand.Uint64()}
	if text := os.Getenv("FOREBAY_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		check(t, err)
		seeds[0] = seed
	}
	if text := os.Getenv("FOREBAY_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		check(t, err)
		for range n - 1 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	m := newMount(t)
	for i, seed := range seeds {
		dir := filepath.Join(m.dir, fmt.Sprint(i))
		check(t, os.Mkdir(dir, 0o755))
		r := &random{t: t, m: m, dir: dir, rand: rand.New(rand.NewPCG(seed, 0)), names: map[string]*modelFile{}}
		if !r.run() {
			t.Fatalf("FOREBAY_SEED=%d, the last operations:\n%s", seed, strings.Join(r.done[max(0, len(r.done)-40):], "\n"))
		}
		check(t, os.RemoveAll(dir))
	}
}

// modelFile is the expected content of a file. Names and handles lead to it, as to an inode.
type modelFile struct {
	data []byte
	name string // "": it was removed
}

type modelHandle struct {
	*os.File
	of     *modelFile
	append bool
}

type random struct {
	t       *testing.T
	m       *mounted
	dir     string
	rand    *rand.Rand
	names   map[string]*modelFile
	handles []*modelHandle
	done    []string
	failed  bool
}

const (
	randomOps  = 1200
	randomSize = 3 << 20 // of a file
)

func (r *random) run() bool {
	for range randomOps {
		r.step()
		if r.failed {
			break
		}
	}
	for _, h := range r.handles {
		h.Close()
	}
	for name := range r.names {
		if !r.failed {
			r.compare(name)
		}
	}
	return !r.failed
}

// did writes an operation down, and fails the run if it failed.
func (r *random) did(err error, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.done = append(r.done, line)
	if err != nil {
		r.t.Errorf("%s: %v", line, err)
		r.failed = true
	}
}

func (r *random) path(name string) string { return filepath.Join(r.dir, name) }

func (r *random) name() string { return string(rune('a' + r.rand.IntN(4))) }

// offset is small, large, near a limit of extents or pages, or anything.
func (r *random) offset() int64 {
	off := r.rand.Int64N(randomSize - 300<<10)
	switch r.rand.IntN(4) {
	case 0:
		off %= 5000
	case 1:
		off = off &^ (64<<10 - 1)
	}
	return off
}

func (r *random) length() int {
	return 1 + r.rand.IntN([]int{10, 5000, 100_000, 300 << 10}[r.rand.IntN(4)])
}

func (r *random) step() {
	if len(r.handles) == 0 || len(r.handles) < 6 && r.rand.IntN(12) == 0 {
		r.open()
		return
	}
	i := r.rand.IntN(len(r.handles))
	h := r.handles[i]
	switch k := r.rand.IntN(100); {
	case k < 35:
		r.write(h)
	case k < 65:
		r.read(h)
	case k < 75:
		r.truncate(h)
	case k < 80:
		r.mapped(h)
	case k < 85:
		r.sync(h)
	case k < 90:
		r.did(h.Close(), "close %s", h.of.name)
		r.handles = append(r.handles[:i], r.handles[i+1:]...)
	case k < 93:
		r.compare(r.name())
	case k < 97:
		r.rename()
	default:
		r.unlink()
	}
}

func (r *random) open() {
	name, flags := r.name(), os.O_RDWR|os.O_CREATE
	appends, empties := r.rand.IntN(5) == 0, r.rand.IntN(8) == 0
	if appends {
		flags |= os.O_APPEND
	}
	if empties {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(r.path(name), flags, 0o644)
	r.did(err, "open %s, append %v, empty %v", name, appends, empties)
	if err != nil {
		return
	}
	of := r.names[name]
	if of == nil {
		of = &modelFile{name: name}
		r.names[name] = of
	}
	if empties {
		of.data = nil
	}
	r.handles = append(r.handles, &modelHandle{f, of, appends})
}

func (r *random) write(h *modelHandle) {
	p, off := make([]byte, r.length()), r.offset()
	for i := range p {
		p[i] = byte(r.rand.Uint32())
	}
	var err error
	if h.append {
		if off = int64(len(h.of.data)); off > randomSize {
			return
		}
		_, err = h.File.Write(p)
	} else {
		_, err = h.WriteAt(p, off)
	}
	h.of.grow(off + int64(len(p)))
	copy(h.of.data[off:], p)
	r.did(err, "write %s: %d at %d", h.of.name, len(p), off)
}

func (f *modelFile) grow(size int64) {
	if missing := size - int64(len(f.data)); missing > 0 {
		f.data = append(f.data, make([]byte, missing)...)
	}
}

func (r *random) read(h *modelHandle) {
	p, off := make([]byte, r.length()), r.offset()
	n, err := h.ReadAt(p, off)
	want := h.of.data[min(off, int64(len(h.of.data))):]
	want = want[:min(len(want), len(p))]
	if errors.Is(err, io.EOF) && n < len(p) {
		err = nil
	}
	if err == nil {
		err = differ(p[:n], want, off)
	}
	r.did(err, "read %s: %d at %d", h.of.name, len(p), off)
}

// differ returns the place where bytes differ.
func differ(got, want []byte, off int64) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is %d, not %d (of %d bytes)", off+int64(i), got[i], want[i], len(want))
		}
	}
	return fmt.Errorf("there are %d bytes, not %d", len(got), len(want))
}

func (r *random) truncate(h *modelHandle) {
	size := r.offset()
	if r.rand.IntN(4) == 0 {
		size = 0
	}
	h.of.grow(size)
	h.of.data = h.of.data[:size]
	r.did(h.Truncate(size), "truncate %s to %d", h.of.name, size)
}

// mapped writes through a shared mapping.
func (r *random) mapped(h *modelHandle) {
	if len(h.of.data) == 0 {
		return
	}
	mem, err := unix.Mmap(int(h.Fd()), 0, len(h.of.data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		r.did(err, "map %s", h.of.name)
		return
	}
	off := r.rand.IntN(len(mem))
	n := min(r.length(), len(mem)-off)
	err = differ(mem[off:off+n], h.of.data[off:off+n], int64(off))
	for i := off; i < off+n; i++ {
		mem[i] = byte(r.rand.Uint32())
	}
	copy(h.of.data[off:off+n], mem[off:off+n])
	if err == nil {
		err = unix.Msync(mem, unix.MS_SYNC)
	}
	r.did(errors.Join(err, unix.Munmap(mem)), "write %s through a mapping: %d at %d", h.of.name, n, off)
}

// sync compares the daemon's content with the model.
func (r *random) sync(h *modelHandle) {
	err := h.Sync()
	if err == nil && h.of.name != "" {
		var got []byte
		got, err = r.m.b.ReadFile(context.Background(), strings.TrimPrefix(r.path(h.of.name), r.m.dir))
		if err == nil {
			err = differ(got, h.of.data, 0)
		}
	}
	r.did(err, "sync %s", h.of.name)
}

func (r *random) compare(name string) {
	of := r.names[name]
	got, err := os.ReadFile(r.path(name))
	switch {
	case of == nil && errors.Is(err, os.ErrNotExist):
		err = nil
	case of == nil:
		err = errors.Join(err, errors.New("it is there"))
	case err == nil:
		err = differ(got, of.data, 0)
	}
	if info, statErr := os.Stat(r.path(name)); err == nil && of != nil && (statErr != nil || info.Size() != int64(len(of.data))) {
		err = fmt.Errorf("stat: %v, %v", info, statErr)
	}
	r.did(err, "compare %s", name)
}

func (r *random) rename() {
	from, to := r.name(), r.name()
	of := r.names[from]
	if of == nil || from == to {
		return
	}
	if old := r.names[to]; old != nil {
		old.name = ""
	}
	delete(r.names, from)
	r.names[to], of.name = of, to
	r.did(os.Rename(r.path(from), r.path(to)), "rename %s to %s", from, to)
}

func (r *random) unlink() {
	name := r.name()
	of := r.names[name]
	if of == nil {
		return
	}
	delete(r.names, name)
	of.name = ""
	r.did(os.Remove(r.path(name)), "remove %s", name)
}
