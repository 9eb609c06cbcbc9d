// Package route picks the way to a peer's memory among the fabrics that both sides have, and
// keeps what it took open: libfabric where both have it, else TCP. (On one node there is nothing
// to pick: memory is mapped.) It must never know what the bytes mean.
package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/tcp"
)

// Offer is where a peer can be reached.
type Offer struct {
	// TCP is the address of its tcp fabric.
	TCP string
	// OFI is the address of its ofi fabric's lifeline, "" where it has none.
	OFI string
	// Provider, Endpoint and Network say what its ofi fabric stands on: ofi.Offer's Provider,
	// Endpoint and Fabric.
	Provider, Endpoint, Network string
}

// Options are those of both providers.
type Options struct {
	PeerTimeout  time.Duration
	TLS          *tls.Config
	Authenticate func(ctx context.Context, stream net.Conn) error
	Log          *slog.Logger
}

// Route is the way to one peer. Its methods may be called concurrently.
type Route struct {
	offer Offer
	opts  Options
	open  func(ofi.Options) (rdma.Fabric, error)

	mu struct {
		sync.Mutex
		fabrics []rdma.Fabric
		closed  bool
	}
}

// New returns a route. It opens nothing before Dial.
func New(offer Offer, opts Options) *Route {
	return &Route{offer: offer, opts: opts, open: openOFI}
}

func openOFI(o ofi.Options) (rdma.Fabric, error) {
	f, err := ofi.New(o)
	if err != nil {
		return nil, err // not a nil *Fabric in an interface
	}
	return f, nil
}

// Dial connects by the best way that works, and names it: "ofi/verbs", "tcp".
func (r *Route) Dial(ctx context.Context) (rdma.Conn, string, error) {
	if r.offer.OFI != "" && ofi.Supported {
		c, err := r.dialOFI(ctx)
		if err == nil {
			return c, "ofi/" + r.offer.Provider, nil
		}
		if ctx.Err() != nil || errors.Is(err, rdma.ErrClosed) {
			return nil, "", err
		}
		r.opts.Log.Warn("no connection over libfabric: TCP is used", "address", r.offer.OFI, "provider", r.offer.Provider, "err", err)
	}
	f, err := tcp.New(tcp.Options{
		PeerTimeout: r.opts.PeerTimeout, TLS: r.opts.TLS, Log: r.opts.Log, Authenticate: r.authenticate,
	})
	if err != nil {
		return nil, "", err
	}
	c, err := r.dial(ctx, f, r.offer.TCP)
	return c, "tcp", err
}

// dialOFI looks for a fabric of the peer's kind: first on the peer's own network, then on any
// from which it may be reached.
func (r *Route) dialOFI(ctx context.Context) (rdma.Conn, error) {
	var errs []error
	for _, network := range []string{r.offer.Network, ""} {
		f, err := r.open(ofi.Options{
			Want:        ofi.Want{Provider: r.offer.Provider, Endpoint: ofi.Endpoint(r.offer.Endpoint), Network: network},
			PeerTimeout: r.opts.PeerTimeout, TLS: r.opts.TLS, Log: r.opts.Log, Authenticate: r.authenticate,
		})
		if err == nil {
			var c rdma.Conn
			if c, err = r.dial(ctx, f, r.offer.OFI); err == nil {
				return c, nil
			}
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, rdma.ErrClosed) || r.offer.Network == "" {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (r *Route) authenticate(ctx context.Context, stream net.Conn, _ bool) (*tcp.Admission, error) {
	return nil, r.opts.Authenticate(ctx, stream)
}

// dial connects over a fabric, which it keeps or closes.
func (r *Route) dial(ctx context.Context, f rdma.Fabric, address string) (rdma.Conn, error) {
	if err := r.keep(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c, err := f.Dial(ctx, address)
	if err != nil {
		return nil, errors.Join(err, r.drop(f))
	}
	return c, nil
}

func (r *Route) keep(f rdma.Fabric) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return fmt.Errorf("dial: %w", rdma.ErrClosed)
	}
	r.mu.fabrics = append(r.mu.fabrics, f)
	return nil
}

func (r *Route) drop(f rdma.Fabric) error {
	r.mu.Lock()
	for i := range r.mu.fabrics {
		if r.mu.fabrics[i] == f {
			r.mu.fabrics = append(r.mu.fabrics[:i:i], r.mu.fabrics[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	return f.Close()
}

// Close ends what was dialled, and what is being dialled. When it returns, nothing touches memory
// of operations any more. It is idempotent.
func (r *Route) Close() error {
	r.mu.Lock()
	fabrics := r.mu.fabrics
	r.mu.fabrics, r.mu.closed = nil, true
	r.mu.Unlock()
	var errs []error
	for _, f := range fabrics {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
