package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/route"
)

// far is the way of a session over TCP to the daemon's memory: a connection of the
// one-sided fabric, dialled when it is first needed. It lives no longer than the
// session. When it breaks, so does the session: what it carried may arrive until the
// daemon has closed its end, which it does before it gives the memory to others.
//
// A nil far, or one that cannot be dialled, means that bytes travel in messages.
type far struct {
	session *session
	secure  *clustercert.Credentials
	address string
	route   *route.Route
	health  *health
	log     *slog.Logger

	turn   chan struct{} // holds one token: who has it may dial
	conn   atomic.Pointer[rdma.Conn]
	failed atomic.Bool // it cannot be dialled
}

// farTimeout is how long a silent daemon is waited for on the fabric.
const farTimeout = 30 * time.Second

// errNoFabric says that the daemon's memory cannot be reached in this session.
var errNoFabric = bb.E(bb.Unavailable, "dial", "", "one-sided transfers cannot be used")

// newFar returns the way to the memory of a session's daemon; nil if there is none.
func newFar(s *session, secure *clustercert.Credentials, h *health, log *slog.Logger) *far {
	w := s.welcome
	if w.MapRegions || w.DataAddress == "" || !h.good() {
		return nil
	}
	f := &far{session: s, secure: secure, address: w.DataAddress, health: h, log: log, turn: make(chan struct{}, 1)}
	f.turn <- struct{}{}
	f.route = newRoute(f, w.OfiAddress)
	return f
}

// newRoute is the way to the memory of far's daemon, which has libfabric at an address.
func newRoute(f *far, ofi string) *route.Route {
	w := f.session.welcome
	offer := route.Offer{
		TCP: w.DataAddress, OFI: ofi, Provider: w.OfiProvider, Endpoint: w.OfiEndpoint, Network: w.OfiNetwork,
	}
	return route.New(offer, route.Options{
		PeerTimeout: farTimeout, TLS: f.secure.Client(), Log: f.log,
		Authenticate: func(_ context.Context, stream net.Conn) error {
			return wire.ShowTicket(stream, w.Session, w.DataTicket)
		},
	})
}

// usable reports whether the memory is reachable, as far as is known.
func (f *far) usable() bool { return f != nil && !f.failed.Load() }

// dial returns the connection, dialling it if need be. ErrNoFabric means that it cannot be.
func (f *far) dial(ctx context.Context) (rdma.Conn, error) {
	if c := f.conn.Load(); c != nil {
		return *c, nil
	}
	select {
	case <-f.turn:
		defer func() { f.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
	if c := f.conn.Load(); c != nil {
		return *c, nil
	}
	if f.failed.Load() {
		return nil, errNoFabric
	}
	c, way, err := f.route.Dial(ctx)
	switch {
	case err == nil:
		f.log.Debug("one-sided transfers", "address", f.address, "way", way)
		f.conn.Store(&c)
		return c, nil
	case f.session.isBroken():
		return nil, &brokenError{Reason: err}
	case ctx.Err() != nil:
		return nil, cancelled(ctx)
	}
	f.failed.Store(true)
	f.log.Warn("one-sided transfers cannot be used: bytes travel in messages", "address", f.address, "err", err)
	return nil, errNoFabric
}

// broke ends the session of a connection that failed, and returns the error of what
// was under way.
func (f *far) broke(err error) error {
	f.health.broke()
	err = fmt.Errorf("one-sided transfers: %w", err)
	f.session.fail(err)
	return &brokenError{Reason: err}
}

// close ends the connection. When it returns, nothing touches the memory of transfers
// that were under way: they have all completed.
func (f *far) close() {
	if f != nil {
		_ = f.route.Close() // a connection that failed to end well has ended all the same
	}
}

// leases reports whether the daemon lends this client its memory.
func (s *session) leases() bool { return s.welcome.MapRegions || s.far.usable() }

// reach makes sure that the memory of leases can be reached.
func (s *session) reach(ctx context.Context) error {
	if s.welcome.MapRegions {
		return nil
	}
	if s.far == nil {
		return errNoFabric
	}
	_, err := s.far.dial(ctx)
	return err
}

func isNoFabric(err error) bool { return errors.Is(err, error(errNoFabric)) }

// health remembers, for all sessions of a client, whether connections of the fabric
// last. Where something lets them be dialled and then breaks them again and again,
// messages get through where one-sided transfers do not.
type health struct {
	mu    sync.Mutex
	times int // broken in a row, with nothing done in between
	last  time.Time
}

const (
	maxBreaks = 3
	breakRest = time.Minute // after which it is tried again
)

func (h *health) good() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times < maxBreaks || time.Since(h.last) > breakRest
}

func (h *health) broke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times++
	h.last = time.Now()
}

// worked says that something was carried to its end.
func (h *health) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times = 0
}
