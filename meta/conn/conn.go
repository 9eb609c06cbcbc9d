package conn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
	"forebay/meta/clustertls"
)

const (
	reconnectWait  = 100 * time.Millisecond
	AttemptTimeout = 5 * time.Second // an answer that takes longer is requested again
	callShards     = 16
)

var errClosed = errors.New("the connection was closed")

// Conn is one connection to the server with all requests multiplexed over one
// subscription.
//
// Request-reply of nats.go waits for its context when the connection breaks. Here a break fails the
// requests in flight at once, so that they can be repeated when the server is back.
type Conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	log    *slog.Logger
	server string

	prefix string // of reply subjects
	name   string // of this connection, like no other's
	nonces atomic.Uint64
	sub    *nats.Subscription
	last   atomic.Uint64 // id of the last call
	shards [callShards]struct {
		sync.Mutex
		calls map[uint64]*call
	}
	pool sync.Pool
	// intercept, if not nil, runs before deliver, so that tests lose requests and answers in it.
	intercept func(ctx context.Context, msgs []*nats.Msg) (*nats.Msg, error)
	lose      func(Fed) bool // of feeds: tests lose messages in it; nil: none
	closing   atomic.Bool    // by us
	closed    chan struct{}  // by nats.go, when its goroutines are about to end

	health *Health // of this connection and, by the prober, of the namespace
	prober *prober

	opts    Options       // with defaults
	garbage atomic.Uint64 // records that could not be decoded

	mu struct {
		sync.Mutex
		up chan struct{} // closed while connected
	}
}

// Dial connects to the server.
func Dial(ctx context.Context, opts Options) (*Conn, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	c := &Conn{log: opts.Logger, health: opts.Health, closed: make(chan struct{}), opts: opts}
	c.prober = &prober{log: opts.Logger, health: opts.Health, remedy: remedyFor(&opts), suspect: map[string]*suspicion{}}
	c.server = strings.Join(redacted(opts.URLs), ",")
	if opts.InProcess != nil {
		c.server = "in process"
	}
	for i := range c.shards {
		c.shards[i].calls = map[uint64]*call{}
	}
	c.pool.New = func() any {
		return &call{answers: make(chan *nats.Msg, 2), timer: time.NewTimer(time.Hour)}
	}
	c.mu.up = make(chan struct{})
	if err := c.connect(ctx, opts); err != nil {
		return nil, err
	}
	var err error
	c.name = rand.Text()
	c.prefix = c.nc.NewInbox() + "."
	if c.sub, err = c.nc.Subscribe(c.prefix+"*", c.dispatch); err == nil {
		err = c.sub.SetPendingLimits(-1, -1) // bounded by the requested answers
	}
	if err == nil {
		c.js, err = jetstream.New(c.nc)
	}
	if err != nil {
		c.Close()
		return nil, bb.Wrap("connect", c.server, err)
	}
	return c, nil
}

func redacted(urls []string) []string {
	var out []string
	for _, u := range urls {
		if scheme, rest, ok := strings.Cut(u, "://"); ok {
			if at := strings.LastIndexByte(rest, '@'); at >= 0 {
				u = scheme + "://" + rest[at+1:]
			}
		}
		out = append(out, u)
	}
	return out
}

// connect tries until the context ends, unless trying again cannot help.
func (c *Conn) connect(ctx context.Context, opts Options) error {
	options := c.options(opts)
	if len(opts.ClusterKey) > 0 && opts.InProcess == nil {
		keys := opts.ClusterKeys
		if keys == nil {
			keys = func() [][]byte { return [][]byte{opts.ClusterKey} }
		}
		secure, err := clustertls.Following(keys)
		if err != nil {
			return err
		}
		options = append(options, nats.Secure(secure))
	}
	said := time.Now()
	var refused time.Time // since when servers refuse the certificate; zero: they do not
	for {
		nc, err := nats.Connect(strings.Join(opts.URLs, ","), options...)
		if err == nil {
			c.nc = nc
			c.setUp(nc.ConnectedUrlRedacted())
			return nil
		}
		if c.setDown(err); time.Since(said) >= remindEvery {
			said = time.Now()
			c.log.Warn("still no connection to a namespace server", "server", c.server, "err", err)
		}
		switch {
		case !refusesCertificate(err) || len(opts.ClusterKey) > 0: // the cluster's key may be being rotated
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) >= refusedFor:
			return &bb.Error{
				Kind: bb.Permission, Op: "connect", Path: c.server, Err: fmt.Errorf("the namespace server refuses this daemon's certificate: %w", err),
				Remedy: "set nats.tls.cert and nats.tls.key to a certificate of an authority that the server trusts, and see the server's log",
			}
		}
		if kind := dialKind(err); kind != bb.Unavailable {
			return &bb.Error{Kind: kind, Op: "connect", Path: c.server, Err: err, Remedy: "check the URL, the credentials and the TLS files"}
		}
		select {
		case <-time.After(reconnectWait):
		case <-ctx.Done():
			return c.Unavailable(ctx, "connect", err)
		}
	}
}

func (c *Conn) options(o Options) []nats.Option {
	options := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ReconnectBufSize(-1),          // the caller repeats sends that fail now
		nats.PingInterval(3 * time.Second), // one that is silent for two of them is left for another
		nats.MaxPingsOutstanding(2),
		nats.Timeout(5 * time.Second),
		nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.setDown(err); c.failCalls() }),
		nats.ReconnectHandler(func(nc *nats.Conn) { c.setUp(nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("namespace server", "server", c.server, "err", err)
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
	}
	if o.InProcess != nil {
		options = append(options, nats.InProcessServer(o.InProcess))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		options = append(options, nats.ClientCert(o.Cert, o.Key))
	}
	return options
}

// refusedFor is how long servers refuse a certificate before that counts as certain. A server that
// is being given another authority may refuse for a moment.
const refusedFor = 5 * time.Second

// refusesCertificate reports whether a server has refused the client's certificate, or that there is none. With
// TLS 1.3 it does so after the handshake, and a later write may find the connection closed before the alert is
// read.
func refusesCertificate(err error) bool {
	var alert *net.OpError // crypto/tls does not export the alert in it
	if errors.As(err, &alert) && alert.Op == "remote error" {
		return strings.Contains(alert.Err.Error(), "certificate") || strings.Contains(alert.Err.Error(), "access denied")
	}
	return errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "after TLS handshake")
}

// dialKind separates errors that cannot pass by waiting from those that can.
func dialKind(err error) bb.Kind {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return bb.Permission
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, io.EOF):
		return bb.Unavailable
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return bb.Invalid
	}
	var network net.Error
	if errors.As(err, &network) {
		return bb.Unavailable
	}
	return bb.Invalid
}

// Close ends the connection. Requests in flight fail.
func (c *Conn) Close() {
	if c.nc == nil {
		return
	}
	c.closing.Store(true)
	c.nc.Close()
	<-c.closed
	c.setDown(errClosed)
	c.failCalls()
}

func (c *Conn) setUp(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.server
	if server != "" && c.server != "in process" {
		now = server
	}
	c.health.change(func(s *Status) {
		if !s.Since.IsZero() {
			s.Reconnects++
		}
		s.Connected, s.Since, s.Server = true, time.Now(), now
	})
	select {
	case <-c.mu.up:
	default:
		close(c.mu.up)
	}
	c.log.Info("connected to the namespace server", "server", now)
}

// setDown records that there is no connection. The log has a line of each that was lost. Of tries
// to connect that fail, it has the first.
func (c *Conn) setDown(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.mu.up:
		c.mu.up = make(chan struct{})
	default:
	}
	if err == nil {
		err = ErrNoServer
	}
	first := false
	var server string
	c.health.change(func(s *Status) {
		if first = s.Connected || s.Since.IsZero(); first {
			s.Since = time.Now()
		}
		s.Connected = false
		if s.Server == "" {
			s.Server = c.server
		}
		s.LastError = err.Error()
		server = s.Server
	})
	if first && !c.closing.Load() {
		c.log.Warn("no connection to the namespace server", "server", server, "err", err)
	}
}

// Status returns how the connection stands, and whether the server answers.
func (c *Conn) Status() Status { return c.health.Status() }

// Logger returns the log of the connection.
func (c *Conn) Logger() *slog.Logger { return c.log }

// Unreadable counts and logs a record that cannot be decoded. A nil error is none.
func (c *Conn) Unreadable(key string, err error) {
	if err == nil {
		return
	}
	c.CountUnreadable()
	c.log.Error("a record of the namespace cannot be read and is left out", "key", key, "err", err)
}

// CountUnreadable counts something that cannot be decoded.
func (c *Conn) CountUnreadable() { c.garbage.Add(1) }

// UnreadableCount returns how much could not be decoded.
func (c *Conn) UnreadableCount() uint64 { return c.garbage.Load() }

// Probe sends requests to the server from time to time, until ctx ends.
func (c *Conn) Probe(ctx context.Context) { c.prober.run(ctx) }

// Closed is closed when the connection has ended for good.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Wait returns when there is a connection, or the reason why there was none until ctx ended.
func (c *Conn) Wait(ctx context.Context) error {
	c.mu.Lock()
	up := c.mu.up
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return c.Unavailable(ctx, "namespace server", ErrNoServer)
	default:
	}
	select {
	case <-up:
		return nil
	case <-c.closed:
		return &bb.Error{Kind: bb.Unavailable, Op: "namespace server", Path: c.server, Err: errClosed}
	case <-ctx.Done():
		return c.Unavailable(ctx, "namespace server", ErrNoServer)
	}
}

// Again returns nil when a new attempt makes sense, or the reason why not. It pauses a little,
// since a broken connection is detected a moment after requests begin to fail.
func (c *Conn) Again(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
	return c.Wait(ctx)
}

// Nonce returns an id that no other change has, ever.
func (c *Conn) Nonce() string {
	return c.name + strconv.FormatUint(c.nonces.Add(1), 36)
}

// Unavailable is the error of an operation whose context ended while the server
// did not answer: Cancelled if it was cancelled, else Unavailable.
func (c *Conn) Unavailable(ctx context.Context, op string, cause error) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return &bb.Error{Kind: bb.Cancelled, Op: op, Path: c.server, Err: fmt.Errorf("%w: %w", err, cause)}
	}
	s := c.Status()
	why := cause
	if s.LastError != "" && !s.Connected {
		why = fmt.Errorf("%w since %s: %s", cause, s.Since.Format(time.TimeOnly), s.LastError)
	}
	return &bb.Error{Kind: bb.Unavailable, Op: op, Path: s.Server, Err: why, Remedy: "see whether the NATS server runs and can be reached"}
}
