package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/route"
)

// Remote is the way of a session over TCP to the daemon's memory. It is a connection of the
// one-sided fabric, dialled when it is first needed. It ends with the session. When it breaks, so
// does the session. Its transfers may arrive until the daemon has closed its end, which it does
// before it leases the memory to others.
//
// A nil Remote, or one that cannot be dialled, means that bytes travel in messages.
type Remote struct {
	session *Session
	secure  *clustercert.Credentials
	address string
	Route   *route.Route
	health  *health
	log     *slog.Logger

	dialling *semaphore.Weighted // of one: the caller that may dial
	conn     atomic.Pointer[rdma.Conn]
	failed   atomic.Bool // it cannot be dialled
}

// remoteTimeout is how long a silent daemon is waited for on the fabric.
const remoteTimeout = 30 * time.Second

// errNoFabric is the error of a session in which the daemon's memory cannot be reached.
var errNoFabric = bb.E(bb.Unavailable, "dial", "", "one-sided transfers cannot be used")

// newRemote returns the way to the memory of a session's daemon, or nil if there is none.
func newRemote(s *Session, secure *clustercert.Credentials, h *health, log *slog.Logger) *Remote {
	w := s.Welcome
	if w.MapRegions || w.DataAddress == "" || !h.good() {
		return nil
	}
	f := &Remote{session: s, secure: secure, address: w.DataAddress, health: h, log: log, dialling: semaphore.NewWeighted(1)}
	f.Route = f.NewRoute(w.OfiAddress)
	return f
}

// NewRoute returns a way to the memory of the daemon, which has libfabric at an address.
func (f *Remote) NewRoute(ofi string) *route.Route {
	w := f.session.Welcome
	offer := route.Offer{
		TCP: w.DataAddress, OFI: ofi, Provider: w.OfiProvider, Endpoint: w.OfiEndpoint, Network: w.OfiNetwork,
	}
	return route.New(offer, route.Options{
		PeerTimeout: remoteTimeout, TLS: f.secure.Client(), Log: f.log,
		Authenticate: func(_ context.Context, stream net.Conn) error {
			return wire.ShowTicket(stream, w.Session, w.DataTicket)
		},
	})
}

// usable reports whether the memory is reachable, by present knowledge.
func (f *Remote) usable() bool { return f != nil && !f.failed.Load() }

// Dial returns the connection, dialling it if need be. ErrNoFabric means that it cannot be.
func (f *Remote) Dial(ctx context.Context) (rdma.Conn, error) {
	if c := f.conn.Load(); c != nil {
		return *c, nil
	}
	if f.dialling.Acquire(ctx, 1) != nil {
		return nil, Cancelled(ctx)
	}
	defer f.dialling.Release(1)
	if c := f.conn.Load(); c != nil {
		return *c, nil
	}
	if f.failed.Load() {
		return nil, errNoFabric
	}
	c, way, err := f.Route.Dial(ctx)
	switch {
	case err == nil:
		f.log.Debug("one-sided transfers", "address", f.address, "way", way)
		f.conn.Store(&c)
		return c, nil
	case f.session.Broken():
		return nil, &BrokenError{Reason: err}
	case ctx.Err() != nil:
		return nil, Cancelled(ctx)
	}
	f.failed.Store(true)
	f.log.Warn("one-sided transfers cannot be used: bytes travel in messages", "address", f.address, "err", err)
	return nil, errNoFabric
}

// Fail ends the session of a connection that failed, and returns the error for calls under way.
func (f *Remote) Fail(err error) error {
	f.health.broke()
	err = fmt.Errorf("one-sided transfers: %w", err)
	f.session.fail(err)
	return &BrokenError{Reason: err}
}

// Dialled returns the connection, or nil if none was dialled or the dial failed.
func (f *Remote) Dialled() rdma.Conn {
	if c := f.conn.Load(); c != nil {
		return *c
	}
	return nil
}

// Worked records that a transfer has completed.
func (f *Remote) Worked() { f.health.worked() }

// Close ends the connection. When it returns, nothing touches the memory of transfers that were
// under way, since they have all completed.
func (f *Remote) Close() {
	if f != nil {
		_ = f.Route.Close() // a connection that failed to end well has ended all the same
	}
}

// Leases reports whether the daemon lends this client its memory.
func (s *Session) Leases() bool { return s.Welcome.MapRegions || s.Remote.usable() }

// DialRemote makes sure that the memory of leases can be reached.
func (s *Session) DialRemote(ctx context.Context) error {
	if s.Welcome.MapRegions {
		return nil
	}
	if s.Remote == nil {
		return errNoFabric
	}
	_, err := s.Remote.Dial(ctx)
	return err
}

func IsNoFabric(err error) bool { return errors.Is(err, error(errNoFabric)) }

// health records, for all sessions of a client, whether connections of the fabric
// last. If they can be dialled and then break again and again, messages arrive and one-sided
// transfers do not.
type health struct {
	mu    sync.Mutex
	times int // broken in a row, with nothing done in between
	last  time.Time
}

const (
	MaxBreaks = 3
	breakRest = time.Minute // after which it is tried again
)

func (h *health) good() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times < MaxBreaks || time.Since(h.last) > breakRest
}

func (h *health) broke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times++
	h.last = time.Now()
}

// worked records that a transfer has completed.
func (h *health) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times = 0
}
