//go:build ofi && cgo

package ofi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/ofi/internal/local"
)

// mapped returns anonymous memory.
func mapped(t *testing.T, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	return mem
}

func (x *link) keep(mem []byte) io.Closer {
	x.t.Helper()
	k, err := x.near.Keep(mem)
	must(x.t, err)
	return k
}

// slabs is how many slabs of stages there are.
func (x *link) slabs() int {
	all, _ := x.near.local.Stages.Count()
	return all / local.SlabStages
}

// wantWritten writes memory to the region, and checks that it arrives.
func (x *link) wantWritten(mem []byte) {
	x.t.Helper()
	must(x.t, x.do(rdma.OpWrite, 0, mem))
	if !bytes.Equal(x.region.Bytes()[:len(mem)], mem) {
		x.t.Fatal("what arrived is not what is there now")
	}
}

// newKeepingLink is a link over a configuration whose cache has room for so many bytes.
func newKeepingLink(t *testing.T, name string, room int) *link {
	t.Helper()
	conf := configurations[name]
	conf.opts.Kept = room
	return newLinkWith(t, conf.opts, conf.rules, all)
}

// takeStages takes all stages that are free.
func takeStages(t *testing.T, f *Fabric, w local.Waiter) (all []local.Stage) {
	t.Helper()
	for {
		s, err := f.local.Stages.Take(w, local.Share)
		must(t, err)
		if s.Mem == nil {
			return all
		}
		all = append(all, s)
	}
}

const keptSize = 256 << 10

// TestKept: operations on memory that is kept need no stage, in either direction and on any part.
func TestKept(t *testing.T) {
	for _, name := range []string{"hardware", "tcp", "sockets"} {
		t.Run(name, func(t *testing.T) {
			x := newKeepingLink(t, name, 1<<20)
			mem := mapped(t, keptSize)
			k := x.keep(mem)
			copy(mem, bytes.Repeat([]byte("kept"), keptSize/4))
			x.wantWritten(mem)
			x.wantWritten(mem[1000:5000])
			clear(x.region.Bytes()[:1000])
			must(t, x.do(rdma.OpRead, 0, mem[500:1500]))
			if !bytes.Equal(mem[500:1500], make([]byte, 1000)) {
				t.Error("what was read is not there")
			}
			if x.slabs() != 0 {
				t.Error("it was staged")
			}
			if n, _ := x.near.local.Registered(); x.near.dev.Local && n != keptSize {
				t.Errorf("%d bytes are registered", n)
			}
			must(t, k.Close())
			must(t, k.Close())
			if n, entries := x.near.local.Registered(); n != 0 || entries != 0 {
				t.Errorf("after Close, %d bytes are registered", n)
			}
			x.wantWritten(mem)
			if x.near.dev.Local && x.slabs() == 0 {
				t.Error("it was not staged: what was closed is used")
			}
			must(t, unix.Munmap(mem))
		})
	}
}

// TestKeptMemoryAtTheSameAddress: memory that was kept, closed and unmapped, and other memory that
// comes to lie where it was, do not affect each other, whether the other is kept or not. An owner
// that does not close gets an error.
func TestKeptMemoryAtTheSameAddress(t *testing.T) { keptMemoryAtTheSameAddress(t, "hardware") }

func keptMemoryAtTheSameAddress(t *testing.T, name string) {
	x := newKeepingLink(t, name, 1<<20)
	seen := map[*byte]bool{}
	again := 0
	for round := range 9 {
		mem := mapped(t, keptSize)
		if seen[&mem[0]] {
			again++
		}
		seen[&mem[0]] = true
		copy(mem, bytes.Repeat([]byte{byte(round + 1)}, keptSize))
		if round%3 == 2 {
			x.wantWritten(mem) // not kept
		} else {
			k := x.keep(mem)
			x.wantWritten(mem)
			if _, err := x.near.Keep(mem[keptSize-1:]); !errors.Is(err, rdma.ErrInvalid) {
				t.Errorf("kept again: %v", err)
			}
			must(t, k.Close())
		}
		must(t, unix.Munmap(mem))
	}
	if again < 4 {
		t.Errorf("memory came to lie where other memory was %d times: the test proves nothing", again)
	}
}

// TestKeptIsBounded: the least recently used memory is unregistered for memory that is used now,
// unless it is in use. Memory without room is copied.
func TestKeptIsBounded(t *testing.T) {
	x := newKeepingLink(t, "hardware", 2*keptSize)
	var mems [4][]byte
	var kept [4]*region
	for i := range mems {
		mems[i] = mapped(t, keptSize)
		defer func() { must(t, unix.Munmap(mems[i])) }()
		mems[i][7] = byte(i)
		kept[i] = x.keep(mems[i]).(*region)
		defer func() { must(t, kept[i].Close()) }()
	}
	wantRegistered := func(want ...int) {
		t.Helper()
		for i, r := range kept {
			is, should := r.IsRegistered(), false
			for _, w := range want {
				should = should || w == i
			}
			if is != should {
				t.Errorf("memory %d: registered %v", i, is)
			}
		}
	}
	use := func(i int) { t.Helper(); x.wantWritten(mems[i]) }
	begin := func(i int) *local.Region {
		r, ready := x.near.local.Find(mems[i])
		if !ready {
			t.Fatalf("%d is not registered", i)
		}
		return r
	}
	wantRegistered()
	use(0)
	use(1)
	wantRegistered(0, 1)
	use(0)
	use(2)
	wantRegistered(0, 2) // 1 was used before 0
	if x.slabs() != 0 {
		t.Error("something was staged")
	}
	zero := begin(0)
	use(3)
	wantRegistered(0, 3)
	use(1)
	wantRegistered(0, 1)
	one := begin(1)
	use(2) // all others are in use
	wantRegistered(0, 1)
	if x.slabs() != 1 {
		t.Error("what found no room was not staged")
	}
	zero.EndUse()
	one.EndUse()
	use(2)
	wantRegistered(1, 2)
	large := mapped(t, 3*keptSize)
	defer func() { must(t, unix.Munmap(large)) }()
	k := x.keep(large)
	x.wantWritten(large)
	wantRegistered(1, 2)
	must(t, k.Close())
}

// TestKeptByMany: connections that use more memory than may be registered, all at once.
func TestKeptByMany(t *testing.T) {
	x := newKeepingLink(t, "hardware", 2*keptSize)
	var wg sync.WaitGroup
	for range 4 {
		x.connect()
		c := x.conn
		wg.Go(func() {
			for range 20 {
				mem := mapped(t, keptSize)
				k, err := x.near.Keep(mem)
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					op := rdma.Op{Kind: rdma.OpRead, Local: mem, Remote: rdma.Remote{Key: x.region.Key()}}
					if err := rdma.Do(t.Context(), c, []rdma.Op{op, op}); err != nil {
						t.Error(err)
					}
				}
				if err := errors.Join(k.Close(), unix.Munmap(mem)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n, entries := x.near.local.Registered(); n != 0 || entries != 0 {
		t.Errorf("%d bytes in %d registrations are left", n, entries)
	}
}

// TestBuffers: operations on a buffer of the pool need no stage. There are so many and no more.
func TestBuffers(t *testing.T) {
	for _, name := range []string{"hardware", "tcp"} {
		t.Run(name, func(t *testing.T) {
			x := newLinkOf(t, name, all)
			b, err := x.near.Buffer(t.Context())
			must(t, err)
			if len(b.Bytes()) != BufferSize {
				t.Fatalf("%d bytes", len(b.Bytes()))
			}
			free := func() int {
				_, n := x.near.local.Stages.Count()
				return n
			}
			before := free()
			copy(b.Bytes(), bytes.Repeat([]byte("buffer"), BufferSize/6))
			rest := takeStages(t, x.near, x.conn) // an operation that stages now waits
			x.wantWritten(b.Bytes()[:BufferSize-7])
			must(t, x.do(rdma.OpRead, 5, b.Bytes()[1000:2000]))
			if x.slabs() != 1 || free() != 0 {
				t.Error("it was staged")
			}
			for _, s := range rest {
				x.near.local.Stages.Give(s)
			}
			held := []*Buffer{b}
			for len(held) < local.MaxBuffers {
				b, err := x.near.Buffer(t.Context())
				must(t, err)
				held = append(held, b)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := x.near.Buffer(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one more than there are: %v", err)
			}
			for _, b := range held {
				b.Release()
				b.Release()
			}
			if free() != before+1 {
				t.Errorf("%d are free, %d were", free(), before+1)
			}
			must(t, x.near.Close())
			if _, err := x.near.Buffer(t.Context()); !errors.Is(err, rdma.ErrClosed) {
				t.Error(err)
			}
			if _, err := x.near.Keep(make([]byte, 1)); !errors.Is(err, rdma.ErrClosed) {
				t.Error(err)
			}
		})
	}
}
