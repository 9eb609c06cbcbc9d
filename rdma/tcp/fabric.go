package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

// Fabric implements rdma.Fabric.
type Fabric struct {
	opts      Options
	regions   target.Registry
	listeners provider.Set[*listener]
	conns     provider.Set[*conn]
	owned     provider.Set[*region]

	ctx    context.Context // ends with Close, and with it the calls under way
	cancel context.CancelFunc
}

var _ rdma.Fabric = (*Fabric)(nil)

// New returns a fabric. It starts nothing before its first use.
func New(opts Options) (*Fabric, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{opts: opts.withDefaults()}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Name implements rdma.Fabric.
func (f *Fabric) Name() string { return "tcp" }

// Limits implements rdma.Fabric.
func (f *Fabric) Limits() rdma.Limits {
	return rdma.Limits{MaxOp: maxOp, Depth: f.opts.Depth}
}

// Register implements rdma.Fabric. Any memory will do.
func (f *Fabric) Register(mem []byte, access rdma.Access) (rdma.Region, error) {
	r, err := f.regions.Add(mem, access)
	if err != nil {
		return nil, err
	}
	owned := &region{Region: r, fabric: f}
	if err := f.owned.Add(owned); err != nil {
		r.Revoke()
		return nil, err
	}
	return owned, nil
}

// Close implements rdma.Fabric.
func (f *Fabric) Close() error {
	f.cancel()
	return errors.Join(f.listeners.Close(), f.conns.Close(), f.owned.Close())
}

// within joins the caller's context with the fabric's and a time limit.
func (f *Fabric) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(f.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// region implements rdma.Region.
type region struct {
	*target.Region
	fabric *Fabric
	once   sync.Once
}

// Close implements rdma.Region.
func (r *region) Close() error {
	r.once.Do(func() {
		r.Revoke()
		r.fabric.owned.Remove(r)
	})
	for !r.idleWithin(r.fabric.opts.RevokeTimeout) {
		for _, c := range r.fabric.conns.All() {
			if c.uses(r.Region) {
				c.fail(fmt.Errorf("tcp %s: transfer stalled while its region was revoked: %w", c.peer, rdma.ErrPeerGone))
			}
		}
	}
	return nil
}

func (r *region) idleWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Idle():
		return true
	case <-timer.C:
		return false
	}
}
