package bbd

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/time/rate"

	"forebay/flusher/backing"
	"forebay/flusher/backing/open"
	"forebay/flusher/backing/retry"
	"forebay/internal/bb"
)

// stores keeps the backing store of each buffer open, with its limits.
type stores struct {
	d       *Daemon
	global  *rate.Limiter // nil: none
	cluster *rate.Limiter // this daemon's share of what all may use together; nil: no limit
	mu      struct {
		sync.Mutex
		byBuffer map[string]backing.Store
	}
}

// burst is what a limited store may take at once, in bytes.
const burst = 4 << 20

func newStores(d *Daemon) *stores {
	s := &stores{d: d, global: limiter(d.cfg.Flush.Limit), cluster: clusterLimiter(d.cfg.Flush.ClusterLimit)}
	s.mu.byBuffer = make(map[string]backing.Store)
	return s
}

func limiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
}

// get returns the store of a buffer, opening it when it is first asked for.
func (s *stores) get(ctx context.Context, name string) (backing.Store, error) {
	b, err := s.d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if store := s.mu.byBuffer[name]; store != nil {
		return store, nil
	}
	spec := b.spec()
	if spec.Backing == "" {
		return nil, bb.E(bb.Invalid, "flush", b.address(""), "the buffer has no backing store")
	}
	store, err := s.d.openStore(ctx, spec)
	if err != nil {
		return nil, err
	}
	s.mu.byBuffer[name] = store
	return store, nil
}

// forget closes the store of a buffer that was destroyed.
func (s *stores) forget(name string) error {
	s.mu.Lock()
	store := s.mu.byBuffer[name]
	delete(s.mu.byBuffer, name)
	s.mu.Unlock()
	if store == nil {
		return nil
	}
	return store.Close()
}

func (s *stores) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, store := range s.mu.byBuffer {
		errs = append(errs, store.Close())
	}
	s.mu.byBuffer = make(map[string]backing.Store)
	return errors.Join(errs...)
}

// openStore opens a buffer's backing store with its own limit.
func (d *Daemon) openStore(ctx context.Context, spec bb.Buffer) (backing.Store, error) {
	return d.openURL(ctx, spec.Backing, spec)
}

// openURL opens a store on behalf of a buffer, within the limits of both.
func (d *Daemon) openURL(ctx context.Context, url string, spec bb.Buffer) (backing.Store, error) {
	o := d.cfg.Backing
	o.Owner = backing.NewOwner(d.store.Instance())
	// One attempt: the flusher queues what failed again, with backoff, for ever.
	o.Retry = retry.Options{Attempts: 1}
	for _, l := range append(d.limits(), limiter(spec.FlushLimit)) {
		if l != nil {
			o.Limiters = append(o.Limiters, l)
		}
	}
	return open.Open(ctx, url, o)
}

// limits returns those of the daemon, some of which may be nil.
func (d *Daemon) limits() []*rate.Limiter {
	if d.stores == nil {
		return nil
	}
	return []*rate.Limiter{d.stores.global, d.stores.cluster}
}
