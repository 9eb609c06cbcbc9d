//go:build ofi && cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

// Fabric implements rdma.Fabric.
type Fabric struct {
	opts      Options
	dev       *device
	loop      *loop
	regions   target.Registry
	listeners provider.Set[*listener]
	conns     provider.Set[*conn]
	owned     provider.Set[*region]
	local     locals
	kept      target.Registry // of memory that no peer can reach
	cache     cache
	stages    *stages
	sight     *sight
	lastConn  atomic.Uint32

	byID struct {
		sync.Mutex
		regions map[uint64]*region
	}
	passive struct {
		sync.Mutex
		address []byte // of the endpoint that listens, once it does
	}

	ctx    context.Context // ends with Close, and with it the calls under way
	cancel context.CancelFunc
	life   sync.RWMutex // held for reading while the device is used outside a connection
	closed sync.Once
	err    error // of Close
}

var _ rdma.Fabric = (*Fabric)(nil)

// New opens one of the machine's fabrics, as Options.Want and Choose say, and starts its loop. It
// fails with errors.ErrUnsupported where libfabric has none that will do.
func New(opts Options) (*Fabric, error) { return newFabric(opts, rules{}) }

// rules make a provider stricter than it is, for tests of what only hardware asks for.
type rules struct {
	hardwareKeys bool // virtual addresses, and keys chosen by the provider
	localKeys    bool // FI_MR_LOCAL
	noDelivery   bool // without FI_DELIVERY_COMPLETE
}

func newFabric(opts Options, rules rules) (_ *Fabric, err error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{opts: opts.withDefaults()}
	f.byID.regions = make(map[uint64]*region)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if f.dev, err = openDevice(opts.Want, rules); err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	f.stages = newStages(f.dev)
	f.cache.dev, f.cache.limit, f.cache.log = f.dev, f.opts.Kept, f.opts.Log
	if f.sight, err = newSight(f.dev); err != nil {
		f.dev.close()
		return nil, fmt.Errorf("ofi: %w", err)
	}
	f.loop = newLoop(f.dev, f.opts)
	go f.loop.run()
	return f, nil
}

// Name implements rdma.Fabric.
func (f *Fabric) Name() string { return "ofi" }

// Offer is the way that was chosen.
func (f *Fabric) Offer() Offer { return f.dev.offer }

// Broken reports whether libfabric's own queues have failed: no connection can be made any more,
// and another Fabric may do better.
func (f *Fabric) Broken() bool { return f.loop.broken.Load() }

// maxOp is the largest operation: the largest region (architecture) and some room.
const maxOp = 1 << 31

// Limits implements rdma.Fabric. Operations larger than what the fabric takes at once are cut, and
// memory that is not registered is staged where the fabric asks for registration; so there are no
// more limits than the options'.
func (f *Fabric) Limits() rdma.Limits {
	return rdma.Limits{MaxOp: maxOp, Depth: f.opts.Depth}
}

// Close implements rdma.Fabric. Connections go first: what peers have opened ends with them.
func (f *Fabric) Close() error {
	f.closed.Do(func() {
		f.cancel()
		f.err = errors.Join(f.listeners.Close(), f.conns.Close(), f.owned.Close())
		f.life.Lock() // waits for calls that use the device
		defer f.life.Unlock()
		f.loop.stop()
		f.err = errors.Join(f.err, f.stages.close(), f.sight.close())
		f.dev.close()
	})
	return f.err
}

// use keeps the device open until done is called.
func (f *Fabric) use() (done func(), err error) {
	f.life.RLock()
	if f.ctx.Err() != nil {
		f.life.RUnlock()
		return nil, rdma.ErrClosed
	}
	return f.life.RUnlock, nil
}

// within joins the caller's context with the fabric's and a time limit.
func (f *Fabric) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(f.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// sight makes writes visible where a fabric does not promise that a completed write is visible to the
// target's processor: a read of anything of the target's behind the write does; see posts. Connections
// share both pages: nobody looks at what is read.
type sight struct {
	page page // of zeros, which every peer may read
	sink page // where this side's reads go, which no peer reaches
}

// sightSize is how many bytes such a read takes.
const sightSize = 64

// page is registered memory of its own.
type page struct {
	mem []byte
	reg *registration
}

func newSight(d *device) (*sight, error) {
	s := &sight{}
	var err error
	if s.page, err = newPage(d, rdma.AccessRemoteRead); err != nil {
		return nil, err
	}
	if s.sink, err = newPage(d, rdma.AccessLocal); err != nil {
		return nil, errors.Join(err, s.page.close())
	}
	return s, nil
}

func (s *sight) close() error { return errors.Join(s.page.close(), s.sink.close()) }

func newPage(d *device, access rdma.Access) (page, error) {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return page{}, fmt.Errorf("map a page: %w", err)
	}
	reg := &registration{}
	if d.local || access != rdma.AccessLocal {
		reg, err = d.register(mem, access)
	}
	if err != nil {
		return page{}, errors.Join(err, unix.Munmap(mem))
	}
	return page{mem: mem, reg: reg}, nil
}

func (p page) close() error { return errors.Join(p.reg.close(), unix.Munmap(p.mem)) }
