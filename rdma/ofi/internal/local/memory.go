//go:build ofi && cgo

package local

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/target"
	"forebay/rdma/ofi/fi"
)

// Memory is the memory of one fabric's operations. It may be used concurrently.
type Memory struct {
	Stages *Stages
	dev    *fi.Device
	index  index
	cache  cache
	kept   target.Registry // of memory that no peer can reach
}

// New returns the memory of a device. At most limit bytes of kept memory are registered at once.
func New(dev *fi.Device, limit int, log *slog.Logger) *Memory {
	m := &Memory{dev: dev, Stages: newStages(dev)}
	m.cache.dev, m.cache.limit, m.cache.log = dev, limit, log
	return m
}

// Region is memory in a Memory. The use of an operation begins with Memory.Find and ends with EndUse.
type Region struct {
	*target.Region
	of   *Memory
	reg  *fi.Registration // nil: neither peers nor the device need one; kept: not now
	kept *kept            // nil: registered as long as it lives
}

// Register takes in memory of a registry. If its access or the device requires that, it registers
// the memory.
func (m *Memory) Register(t *target.Region) (*Region, error) {
	r := &Region{Region: t, of: m}
	if len(t.Bytes()) == 0 || t.Access() == rdma.AccessLocal && !m.dev.Local {
		return r, nil
	}
	var err error
	if r.reg, err = m.dev.Register(t.Bytes(), t.Access()); err != nil {
		return nil, err
	}
	m.index.add(r)
	return r, nil
}

// Close takes the region out, which is revoked and not in use, and ends its registration.
func (r *Region) Close() error {
	m := r.of
	m.index.remove(r)
	if r.kept != nil {
		m.cache.forget(r)
	}
	return r.reg.Close()
}

// Grant is where a peer reaches the region's first byte. It is zero for memory that is not registered.
func (r *Region) Grant() fi.Place {
	if r.reg == nil {
		return fi.Place{}
	}
	return fi.Place{Addr: r.reg.Base, Key: r.reg.Key}
}

// Registration names the region in operations that use it.
func (r *Region) Registration() *fi.Registration { return r.reg }

// Find begins the use of a region that holds all of b. Nil: there is none. If it is not ready, its
// memory is kept and not registered now. The caller either makes it Ready, or abandons it with
// Release.
func (m *Memory) Find(b []byte) (r *Region, ready bool) {
	r = m.index.find(b)
	return r, r == nil || r.kept == nil || m.cache.pin(r)
}

// Ready registers a region that Find has returned. It returns false where there is no room for it, or the
// kernel allows no more. It takes as long as that takes.
func (r *Region) Ready() bool { return r.of.cache.register(r) }

// EndUse ends a use that Find began, or nothing for nil.
func (r *Region) EndUse() {
	if r == nil {
		return
	}
	if r.kept != nil {
		r.of.cache.unpin(r)
	}
	r.Release()
}

// index finds the registered region that a piece of local memory lies in.
type index struct {
	write  sync.Mutex
	sorted atomic.Pointer[[]*Region] // by address; replaced whole
}

func (x *index) add(r *Region) {
	x.replace(func(all []*Region) []*Region { return append(all, r) })
}

func (x *index) remove(r *Region) {
	x.replace(func(all []*Region) []*Region {
		return slices.DeleteFunc(all, func(other *Region) bool { return other == r })
	})
}

// addApart adds a region that is kept, unless it overlaps with another that is.
func (x *index) addApart(r *Region) bool {
	x.write.Lock()
	defer x.write.Unlock()
	if x.overlaps(r.Bytes()) {
		return false
	}
	x.replaceLocked(func(all []*Region) []*Region { return append(all, r) })
	return true
}

func (x *index) replace(change func([]*Region) []*Region) {
	x.write.Lock()
	defer x.write.Unlock()
	x.replaceLocked(change)
}

func (x *index) replaceLocked(change func([]*Region) []*Region) {
	var all []*Region
	if old := x.sorted.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = change(all)
	slices.SortFunc(all, func(a, b *Region) int { return cmp.Compare(fi.Address(a.Bytes()), fi.Address(b.Bytes())) })
	x.sorted.Store(&all)
}

// overlaps reports whether a region that is kept has some of the memory.
func (x *index) overlaps(b []byte) bool {
	all := x.sorted.Load()
	if all == nil {
		return false
	}
	from := uint64(fi.Address(b))
	return slices.ContainsFunc(*all, func(r *Region) bool {
		at := uint64(fi.Address(r.Bytes()))
		return r.kept != nil && at < from+uint64(len(b)) && from < at+uint64(len(r.Bytes()))
	})
}

// maxRegion bounds the distance between an address and the start of its region. It is several times
// the largest region of the architecture.
const maxRegion = 16 << 30

// find returns a region that holds all of b, acquired, or nil.
func (x *index) find(b []byte) *Region {
	all := x.sorted.Load()
	if all == nil {
		return nil
	}
	at := uint64(fi.Address(b))
	i, _ := slices.BinarySearchFunc(*all, at, func(r *Region, at uint64) int {
		if uint64(fi.Address(r.Bytes())) <= at {
			return -1
		}
		return 1
	})
	for i--; i >= 0; i-- {
		r := (*all)[i]
		off := at - uint64(fi.Address(r.Bytes()))
		if off+uint64(len(b)) <= uint64(len(r.Bytes())) && r.Acquire() == nil {
			return r
		}
		if off > maxRegion {
			return nil
		}
	}
	return nil
}

// Page is registered memory of its own.
type Page struct {
	Mem []byte
	Reg *fi.Registration
}

// NewPage maps a page of zeros, and registers it where its access or the device requires that.
func NewPage(dev *fi.Device, access rdma.Access) (Page, error) {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return Page{}, fmt.Errorf("map a page: %w", err)
	}
	reg := &fi.Registration{}
	if dev.Local || access != rdma.AccessLocal {
		reg, err = dev.Register(mem, access)
	}
	if err != nil {
		return Page{}, errors.Join(err, unix.Munmap(mem))
	}
	return Page{Mem: mem, Reg: reg}, nil
}

// Close ends the registration and unmaps the page.
func (p Page) Close() error { return errors.Join(p.Reg.Close(), unix.Munmap(p.Mem)) }
