// Package rpc serves sessions of clients and of other daemons. It determines their identities, reads their
// requests, starts the handlers of those, in order where order matters, and bounds the requests that each
// user may have in flight. It must never depend on the effect of a request: no file, buffer or
// lease, only resources, which it releases when their session ends.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/share"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
)

// Options are a server's clients, limits and environment.
type Options struct {
	Node    bb.NodeID
	Version string // of this release, for people
	Keys    *wire.Keyring
	TLS     *clustercert.Credentials // nil: clients over TCP need no certificate
	Limits  Limits
	Silence time.Duration // of this daemon, after which another one counts it as gone
	Log     *slog.Logger

	// Handlers are the requests that are served, besides those of sessions themselves: Hello,
	// Prove, Cancel.
	Handlers map[wire.Type]Handler
	// Welcome completes the answer to a client whose handshake has succeeded. Its result is the
	// session's State, and is released at the session's end before its other resources.
	Welcome func(*Session, *wire.Welcome) Resource
	Events  Events
	// Go starts a goroutine that the server's owner waits for.
	Go func(func())
}

// Limits bound the resources that sessions may make the daemon hold.
type Limits struct {
	Sessions  int           // of users other than the daemon's owner; each has a share
	Unproven  int           // connections over TCP whose client has not proved its identity
	InFlight  int           // requests of one session
	Requests  int           // of all users' sessions, in flight
	Bytes     int64         // that requests of users carry, and messages beyond the usual size
	Handshake time.Duration // that a client has for it
}

// Events receive the events of sessions. The methods may be called concurrently, and do not wait.
type Events interface {
	Request(wire.Type)
	Failed(wire.Type, bb.Kind)
}

// Server has the sessions of a daemon. Its methods may be called concurrently.
type Server struct {
	o        Options
	places   *places
	requests *share.Pool // in flight
	bytes    *share.Pool // of the messages and data of requests

	mu struct {
		sync.Mutex
		all    map[uint64]*Session
		number uint64
		last   map[connection]*Session
		closed bool
	}
}

// New returns a server without sessions.
func New(o Options) *Server {
	s := &Server{
		o: o, places: newPlaces(&o.Limits),
		requests: share.NewPool(int64(o.Limits.Requests)), bytes: share.NewPool(o.Limits.Bytes),
	}
	s.mu.all = make(map[uint64]*Session)
	s.mu.last = make(map[connection]*Session)
	return s
}

// Serve accepts sessions, which end with ctx, until the listener is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.o.Log.Warn("accepting a session", "err", err)
			time.Sleep(50 * time.Millisecond) // out of descriptors, most likely; the next try may find one
			continue
		}
		s.welcome(ctx, conn)
	}
}

func (s *Server) welcome(ctx context.Context, conn net.Conn) {
	n := &Session{server: s, conn: conn, out: wire.NewWriter(conn), since: time.Now(), ended: make(chan struct{}), inline: semaphore.NewWeighted(maxInline), workers: newWorkers()}
	n.mu.running = make(map[uint64]context.CancelCauseFunc)
	n.mu.resources = make(map[Key]Resource)
	n.mu.held = make(map[Kind]int)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || s.places.enter(n) != nil {
		conn.Close()
		return
	}
	s.mu.number++
	n.id = s.mu.number
	s.mu.all[n.id] = n
	s.o.Go(func() {
		err := n.serve(ctx)
		s.mu.Lock()
		delete(s.mu.all, n.id)
		s.departed(n)
		s.mu.Unlock()
		s.places.leave(n)
		if err != nil && n.refused == nil {
			n.Logger().Warn("session ended", "err", err)
		}
	})
}

// Shutdown accepts no more sessions, closes the present ones, and waits until their resources are
// released or ctx ends. It reports whether all of them are.
func (s *Server) Shutdown(ctx context.Context) bool {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	all := s.sessions()
	for _, n := range all {
		n.conn.Close() // its reader ends the session
	}
	for _, n := range all {
		select {
		case <-n.ended:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Closed reports whether Shutdown was called.
func (s *Server) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

func (s *Server) sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Session, 0, len(s.mu.all))
	for _, n := range s.mu.all {
		all = append(all, n)
	}
	return all
}

// Sessions returns those whose handshake is over.
func (s *Server) Sessions() (open []*Session) {
	for _, n := range s.sessions() {
		if n.open.Load() {
			open = append(open, n)
		}
	}
	return open
}

// Connections returns how many sessions there are, with those whose handshake is not over.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.all)
}

// RequestBytes returns how much of Limits.Bytes a user has.
func (s *Server) RequestBytes(uid uint32) int64 {
	has, _ := s.bytes.Of(uid)
	return has
}

// side is this daemon, for errors about versions.
func (s *Server) side() wire.Side {
	return wire.Side{Name: "bbd " + s.o.Version + " of node " + string(s.o.Node), Versions: wire.Own()}
}
