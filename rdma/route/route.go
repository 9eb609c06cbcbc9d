// Package route picks the way to a peer's memory among the fabrics that both sides have, and
// keeps the fabrics in use open. If both have libfabric, it is that, else TCP. (On one node there
// is no choice, since memory is mapped.) All routes of a process share their open fabrics of
// libfabric. It must never depend on the meaning of the bytes.
package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/tcp"
)

// Offer is where a peer can be reached.
type Offer struct {
	// TCP is the address of its tcp fabric.
	TCP string
	// OFI is the address of its ofi fabric's lifeline, "" where it has none.
	OFI string
	// Provider, Endpoint and Network describe the base of its ofi fabric: fi.Offer's
	// Provider, Endpoint and Fabric.
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
	offer  Offer
	opts   Options
	shared *shared
	ctx    context.Context // ends with Close, and with it dialling in progress
	cancel context.CancelFunc
	dials  sync.WaitGroup

	mu struct {
		sync.Mutex
		open   []io.Closer // the dialled connections and their fabrics
		closed bool
	}
}

// New returns a route. It opens nothing before Dial.
func New(offer Offer, opts Options) *Route {
	r := &Route{offer: offer, opts: opts, shared: process}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Dial connects by the best way that works, and names it: "ofi/verbs", "tcp".
func (r *Route) Dial(ctx context.Context) (rdma.Conn, string, error) {
	if err := r.begin(); err != nil {
		return nil, "", err
	}
	defer r.dials.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	c, way, err := r.dial(ctx)
	if err != nil && r.ctx.Err() != nil {
		err = fmt.Errorf("dial: %w: %w", rdma.ErrClosed, err)
	}
	return c, way, err
}

func (r *Route) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return fmt.Errorf("dial: %w", rdma.ErrClosed)
	}
	r.dials.Add(1)
	return nil
}

func (r *Route) dial(ctx context.Context) (rdma.Conn, string, error) {
	if r.offer.OFI != "" && fi.Supported {
		c, err := r.dialOFI(ctx)
		if err == nil {
			return c, "ofi/" + r.offer.Provider, nil
		}
		if ctx.Err() != nil {
			return nil, "", err
		}
		r.opts.Log.Warn("no connection over libfabric: TCP is used", "address", r.offer.OFI, "provider", r.offer.Provider, "err", err)
	}
	f, err := tcp.New(tcp.Options{
		PeerTimeout: r.opts.PeerTimeout, TLS: r.opts.TLS, Log: r.opts.Log, Authenticate: r.opts.Authenticate,
	})
	if err != nil {
		return nil, "", err
	}
	c, err := f.Dial(ctx, r.offer.TCP)
	if err != nil {
		return nil, "tcp", errors.Join(err, f.Close())
	}
	r.keep(f)
	return c, "tcp", nil
}

// dialOFI searches for a fabric of the peer's kind, first on the peer's own network, then on any
// from which it may be reached.
func (r *Route) dialOFI(ctx context.Context) (rdma.Conn, error) {
	var errs []error
	for _, network := range []string{r.offer.Network, ""} {
		c, err := r.dialOver(ctx, fi.Want{Provider: r.offer.Provider, Endpoint: fi.EndpointKind(r.offer.Endpoint), Network: network})
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || r.offer.Network == "" {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (r *Route) dialOver(ctx context.Context, want fi.Want) (rdma.Conn, error) {
	u, err := r.shared.use(want, r.opts.Log)
	if err != nil {
		return nil, err
	}
	c, err := u.fabric.DialWith(ctx, r.offer.OFI, ofi.Dialer{
		PeerTimeout: r.opts.PeerTimeout, TLS: r.opts.TLS, Log: r.opts.Log, Authenticate: r.opts.Authenticate,
	})
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	r.keep(u) // is closed after c, in the opposite order
	r.keep(c)
	return c, nil
}

// keep has something closed with the route, which waits for dials under way.
func (r *Route) keep(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.open = append(r.mu.open, c)
}

// Close ends dialled connections, and dialling in progress. When it returns, nothing touches
// memory of operations any more. It is idempotent.
func (r *Route) Close() error {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	r.cancel()
	r.dials.Wait()
	r.mu.Lock()
	open := r.mu.open
	r.mu.open = nil
	r.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(open) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
