//go:build ofi && cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/local"
	"forebay/rdma/ofi/internal/progress"
)

// Fabric implements rdma.Fabric.
type Fabric struct {
	opts      Options
	dev       *fi.Device
	loop      *progress.Loop
	regions   target.Registry
	listeners provider.Set[*listener]
	conns     provider.Set[*conn]
	owned     provider.Set[*region]
	local     *local.Memory
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

// New opens one of the machine's fabrics, the choice of Options.Want and Choose, and starts its
// loop. If libfabric has no suitable one, it fails with errors.ErrUnsupported.
func New(opts Options) (*Fabric, error) { return newFabric(opts, fi.Rules{}) }

func newFabric(opts Options, rules fi.Rules) (_ *Fabric, err error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{opts: opts.withDefaults()}
	f.byID.regions = make(map[uint64]*region)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if f.dev, err = fi.Open(opts.Want, rules); err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	f.local = local.New(f.dev, f.opts.Kept, f.opts.Log)
	if f.sight, err = newSight(f.dev); err != nil {
		f.dev.Close()
		return nil, fmt.Errorf("ofi: %w", err)
	}
	f.loop = progress.New(f.dev, f.opts.Spin, f.opts.Log)
	f.loop.Start()
	return f, nil
}

// Name implements rdma.Fabric.
func (f *Fabric) Name() string { return "ofi" }

// Offer is the way that was chosen.
func (f *Fabric) Offer() fi.Offer { return f.dev.Offer }

// Broken reports whether libfabric's own queues have failed. No connection can be made any more,
// and another Fabric may do better.
func (f *Fabric) Broken() bool { return f.loop.Broken() }

// maxOp is the largest operation: the largest region (architecture) and some room.
const maxOp = 1 << 31

// Limits implements rdma.Fabric. Operations larger than the fabric's own bound are cut, and, if the
// fabric requires registration, memory that is not registered is staged. So there are no more
// limits than the options'.
func (f *Fabric) Limits() rdma.Limits {
	return rdma.Limits{MaxOp: maxOp, Depth: f.opts.Depth}
}

// Close implements rdma.Fabric. Connections go first. Regions that peers have opened end with them.
func (f *Fabric) Close() error {
	f.closed.Do(func() {
		f.cancel()
		f.err = errors.Join(f.listeners.Close(), f.conns.Close(), f.owned.Close())
		f.life.Lock() // waits for calls that use the device
		defer f.life.Unlock()
		f.loop.Stop()
		f.err = errors.Join(f.err, f.local.Stages.Close(), f.sight.close())
		f.dev.Close()
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

// Keep guarantees that memory stays mapped in its place until the returned closer is closed. If the
// fabric requires registered memory, operations on it need no copy. It is registered when it is
// first used, and may be unregistered between uses when other memory needs room. It must not be of
// the Go heap, and must not overlap with other memory that is kept (ErrInvalid). Operations on it
// must have completed before it is closed. Close waits for those that have not.
func (f *Fabric) Keep(mem []byte) (io.Closer, error) {
	done, err := f.use()
	if err != nil {
		return nil, err
	}
	defer done()
	kept, err := f.local.Keep(mem)
	if err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	r := newRegion(f, kept)
	if err := f.owned.Add(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Buffer is memory of BufferSize bytes that is registered, since operations on it need no copy.
type Buffer = local.Buffer

// Buffer returns a buffer out of those through which operations on other memory are copied. It waits while
// callers hold too many. The buffer holds anything.
func (f *Fabric) Buffer(ctx context.Context) (*Buffer, error) {
	done, err := f.use()
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := f.local.Stages.Buffer(ctx, f.ctx.Done())
	if err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	return b, nil
}

// within joins the caller's context with the fabric's and a time limit.
func (f *Fabric) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(f.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// sight makes writes visible if a fabric does not guarantee that a completed write is visible to
// the target's processor. A read of any of the target's memory behind the write guarantees that
// (see posts). Connections share both pages. The bytes read are ignored.
type sight struct {
	page local.Page // of zeros, which every peer may read
	sink local.Page // where this side's reads go, which no peer reaches
}

// sightSize is how many bytes such a read takes.
const sightSize = 64

func newSight(d *fi.Device) (*sight, error) {
	s := &sight{}
	var err error
	if s.page, err = local.NewPage(d, rdma.AccessRemoteRead); err != nil {
		return nil, err
	}
	if s.sink, err = local.NewPage(d, rdma.AccessLocal); err != nil {
		return nil, errors.Join(err, s.page.Close())
	}
	return s, nil
}

func (s *sight) close() error { return errors.Join(s.page.Close(), s.sink.Close()) }
