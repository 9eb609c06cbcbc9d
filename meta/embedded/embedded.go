// Package embedded runs a NATS server with JetStream in this process, which holds
// the namespace when no other server is configured. It is the only importer of
// nats-server, and knows nothing of what is stored.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"forebay/internal/bb"
)

const defaultSyncInterval = 10 * time.Second

// Options say where the server keeps its files and who may connect.
type Options struct {
	// Dir holds the streams. It is made if it is not there; one server at a time
	// may use it, which its owner has to see to.
	Dir string
	// Listen is a loopback address, host:port with port 0 for any free one, on which
	// other processes of this node may connect. "" for none: then only InProcessConn
	// reaches the server.
	Listen string
	// SyncInterval is how often files are synced to the disk. What was acknowledged
	// survives the death of the process in any case; of the machine only if it was
	// synced. 0: 10 seconds.
	SyncInterval time.Duration
	// SyncAlways syncs before each acknowledgement, which costs what the disk costs.
	SyncAlways bool
	Logger     *slog.Logger // default: discard
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, bb.E(bb.Invalid, "embedded server", "", "has no directory"))
	}
	if o.SyncInterval < 0 {
		errs = append(errs, bb.E(bb.Invalid, "embedded server", o.SyncInterval.String(), "is not a sync interval"))
	}
	if o.Listen != "" {
		if _, _, err := loopback(o.Listen); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// loopback splits an address that only this node can reach: the server asks nobody
// who they are.
func loopback(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, bb.E(bb.Invalid, "listen address", addr, "is not host:port")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, bb.E(bb.Invalid, "listen address", addr, "has no port number")
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, bb.E(bb.Invalid, "listen address", addr, "is not a loopback address").
			WithRemedy("run a NATS server of its own to be reached from other nodes")
	}
	return host, int(n), nil
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	s    *server.Server
	stop sync.Once
}

// Start starts a server and waits until it serves, at most until ctx ends.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, bb.Wrap("embedded server", o.Dir, err)
	}
	s, err := server.NewServer(o.server())
	if err != nil {
		return nil, &bb.Error{Kind: bb.Invalid, Op: "embedded server", Path: o.Dir, Err: err}
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s.SetLoggerV2(&logger{log}, false, false, false)
	e := &Server{s: s}
	s.Start()
	if err := e.ready(ctx, o); err != nil {
		e.Shutdown()
		return nil, err
	}
	return e, nil
}

func (o *Options) server() *server.Options {
	so := &server.Options{
		ServerName: "forebay", JetStream: true, StoreDir: o.Dir, DontListen: o.Listen == "",
		SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways, NoSigs: true, NoLog: false,
		MaxPayload: 1 << 20, WriteDeadline: 10 * time.Second,
		// The server's own bounds follow the memory and the disk that it finds.
		JetStreamMaxMemory: -1, JetStreamMaxStore: -1,
	}
	if so.SyncInterval == 0 {
		so.SyncInterval = defaultSyncInterval
	}
	if o.Listen != "" {
		host, port, _ := loopback(o.Listen) // checked by Validate
		so.Host, so.Port = host, port
		if port == 0 {
			so.Port = server.RANDOM_PORT
		}
	}
	return so
}

// ready waits until the server accepts connections and JetStream is up.
func (e *Server) ready(ctx context.Context, o Options) error {
	for !e.s.ReadyForConnections(50*time.Millisecond) || !e.s.JetStreamEnabled() {
		if !e.s.Running() {
			return bb.E(bb.Unavailable, "embedded server", o.Dir, "it did not start").WithRemedy("see its log: the directory may be in use or unreadable")
		}
		if ctx.Err() != nil {
			return bb.Wrap("embedded server", o.Dir, fmt.Errorf("it did not start: %w", ctx.Err()))
		}
	}
	return nil
}

// InProcessConn makes a connection to the server without a socket.
func (e *Server) InProcessConn() (net.Conn, error) { return e.s.InProcessConn() }

// URL returns where other processes may connect; "" if nowhere.
func (e *Server) URL() string {
	if e.s.Addr() == nil {
		return ""
	}
	return "nats://" + e.s.Addr().String()
}

// Shutdown stops the server, which ends its connections and syncs its files, and
// waits until it is done. It may be called again.
func (e *Server) Shutdown() {
	e.stop.Do(e.s.Shutdown)
	e.s.WaitForShutdown()
}

// logger turns the server's log into ours.
type logger struct{ log *slog.Logger }

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(message(format, v)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(message(format, v)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(message(format, v)) }

// Fatalf logs too: what is fatal to the server must not end the daemon.
func (l *logger) Fatalf(format string, v ...any) { l.log.Error(message(format, v)) }
func (l *logger) Debugf(string, ...any)          {}
func (l *logger) Tracef(string, ...any)          {}

func message(format string, v []any) string { return "nats: " + fmt.Sprintf(format, v...) }
