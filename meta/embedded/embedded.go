// Package embedded runs a NATS server with JetStream in this process, which holds
// the namespace when no other server is configured. It and
// package elections, below it, are the only importers of nats-server. It must never depend on the content of streams.
package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/meta/clustertls"
	"forebay/meta/embedded/batches"
	_ "forebay/meta/embedded/elections" // sets bounds of the server
)

const (
	defaultSyncInterval = time.Second
	tlsTimeout          = 5 * time.Second
)

// Options are the server's files, addresses and secrets.
type Options struct {
	// Dir holds the streams. It is made if it is not there. One server at a time may use it, which
	// its owner has to ensure.
	Dir string
	// Name is the server's name in its cluster, and must stay the same once Dir was made. Default
	// "forebay". A cluster's server needs one of its own.
	Name string
	// Listen is the address, host:port with port 0 for any free one, on which others may connect.
	// "" for none. Then only InProcessConn reaches the server. An address that is not on loopback
	// needs Key, or TLS that requires certificates of clients.
	Listen string
	// Advertise is the address of Listen for clients that are connected elsewhere in the cluster,
	// host:port. "": the addresses of this node's interfaces.
	Advertise string
	// Cluster makes the server one of several. nil means that it is alone.
	Cluster *Cluster
	// Key is the cluster key. Connections to Listen and to the cluster's address
	// have to prove its possession, and are encrypted (see clustertls).
	Key []byte
	// Keys, if not nil, returns the keys that are in use now, Key at first. Connections that are
	// made from then on show the first and accept all.
	Keys func() [][]byte
	// TLS, if not nil, replaces the configuration made from Key, at both ends of the connections
	// among servers. So it holds certificates and both pools.
	TLS *tls.Config
	// SyncInterval is the time between syncs of files to the disk. Acknowledged changes survive the
	// death of the process in any case. They survive the death of the machine only if they were
	// synced, or if most of the other servers survive. 0: a second.
	SyncInterval time.Duration
	// SyncAlways syncs before each acknowledgement, at the disk's cost.
	SyncAlways bool
	// BatchDir is a folder in memory (tmpfs) for batches that are on their way into a stream. If it
	// is "", they are beside the stream, and the server syncs each of them, which takes most of an
	// atomic change's time. There they survive the process, so that the next one finishes a batch
	// that it had begun, but not the machine. A machine that dies may leave the last batch half
	// done, as it may lose all that was not synced. While there is no room, they are beside the
	// stream. Not used with SyncAlways, nor by streams with copies, whose batches the server has in
	// memory anyway.
	BatchDir string
	Logger   *slog.Logger // default: discard
}

// Cluster is the way in which the servers of a cluster find each other. While most of them run,
// streams with as many copies continue.
type Cluster struct {
	Name string // the same for all; default "forebay"
	// Listen is where the other servers connect, host:port.
	Listen string
	// Advertise is the address of Listen for them, host:port. "" means as Listen.
	Advertise string
	// Routes are the addresses, host:port, of all servers of the cluster, this one too:
	// 3 or 5. Their number is how many the first start waits for.
	Routes []string
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	add := func(value, why string) *bb.Error {
		e := bb.E(bb.Invalid, "embedded server", value, why)
		errs = append(errs, e)
		return e
	}
	if o.Dir == "" {
		add("", "has no directory")
	}
	if o.SyncInterval < 0 {
		add(o.SyncInterval.String(), "is not a sync interval")
	}
	secure := len(o.Key) > 0 || o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	check := func(addr string) {
		if host, _, err := split(addr); err != nil {
			errs = append(errs, err)
		} else if !secure && !loopback(host) {
			add(addr, "is not a loopback address, and has no authentication").
				WithRemedy("give a cluster key, or TLS that requires certificates")
		}
	}
	if o.Listen != "" {
		check(o.Listen)
	}
	if o.Advertise != "" {
		_, _, err := split(o.Advertise)
		errs = append(errs, err)
	}
	if len(o.Key) > 0 && len(o.Key) < clustertls.MinKey {
		add("", "has a cluster key that is too short").WithRemedy("make one with bbctl cluster init")
	}
	if c := o.Cluster; c != nil {
		check(c.Listen)
		if o.Name == "" {
			add("", "has no name for the other servers of the cluster")
		}
		if len(c.Routes) != 3 && len(c.Routes) != 5 {
			add(fmt.Sprint(len(c.Routes)), "is not how many servers make a cluster").WithRemedy("name 3 or 5, with this one")
		}
		for _, r := range append([]string{c.Advertise}, c.Routes...) {
			if r != "" {
				_, _, err := split(r)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func split(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, bb.E(bb.Invalid, "address", addr, "is not host:port")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, bb.E(bb.Invalid, "address", addr, "has no port number")
	}
	return host, int(n), nil
}

// loopback reports whether only this node can reach a host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	o      Options
	settle time.Duration
	log    *slog.Logger
	full   fullness

	mu  sync.RWMutex // guards now
	now *life        // there is always one
}

// life is a server from its start to its end.
type life struct {
	s     *server.Server // nil: it was never started
	mover *batches.Mover // nil: batches are beside their streams

	cancel context.CancelFunc // of the mover of batches; nil: it does not run
	moving sync.WaitGroup
	ending sync.Once
}

// Start starts a server and waits until it serves, at most until ctx ends.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, bb.Wrap("embedded server", o.Dir, err)
	}
	e := &Server{o: o, settle: o.settle(), log: o.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.full.begin()
	now, err := e.start(ctx)
	if err != nil {
		return nil, err
	}
	e.now = now
	if o.Cluster == nil {
		e.full.mending.Go(e.mend)
	}
	return e, nil
}

// start starts a server.
func (e *Server) start(ctx context.Context) (*life, error) {
	so, err := e.o.server()
	if err != nil {
		return nil, err
	}
	l := &life{}
	if e.o.BatchDir != "" && !e.o.SyncAlways {
		if l.mover, err = batches.New(batches.Options{Streams: e.o.streams(), Memory: e.o.BatchDir, Log: e.log}); err != nil {
			return nil, err
		}
	}
	if err := l.start(ctx, so, &logger{log: e.log, full: e.full.note}); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

func (l *life) start(ctx context.Context, so *server.Options, log *logger) (err error) {
	if l.mover != nil {
		if err := l.mover.Restore(); err != nil {
			return err
		}
	}
	if l.s, err = server.NewServer(so); err != nil {
		return &bb.Error{Kind: bb.Invalid, Op: "embedded server", Path: so.StoreDir, Err: err}
	}
	l.s.SetLoggerV2(log, false, false, false)
	l.s.Start()
	if err := l.ready(ctx, so.StoreDir, log.log); err != nil {
		return err
	}
	if l.mover != nil {
		l.mover.Look(time.Now())
		moving, cancel := context.WithCancel(context.Background())
		l.cancel = cancel
		l.moving.Go(func() { l.mover.Run(moving) })
	}
	return nil
}

// end stops the goroutines that start has begun.
func (l *life) end() { l.ending.Do(l.stop) }

func (l *life) stop() {
	if l.cancel != nil {
		l.cancel()
		l.moving.Wait()
	}
	if l.s != nil {
		l.s.Shutdown()
		l.s.WaitForShutdown()
	}
	if l.mover != nil {
		l.mover.Close()
	}
}

// server returns the server of now.
func (e *Server) server() *server.Server {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.now.s
}

// streams is where the server has the folders of streams.
func (o *Options) streams() string {
	return filepath.Join(o.Dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams")
}

func (o *Options) server() (*server.Options, error) {
	so := &server.Options{
		ServerName: cmp.Or(o.Name, "forebay"), JetStream: true, StoreDir: o.Dir, DontListen: o.Listen == "",
		SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways, NoSigs: true, NoLog: false,
		MaxPayload: 1 << 20, WriteDeadline: 10 * time.Second,
		// The bound of streams in memory follows the memory that the server finds. On the disk it would be a share
		// of the free space at the start, and would not follow space that is freed later. The disk itself is the
		// bound.
		JetStreamMaxMemory: -1, JetStreamMaxStore: math.MaxInt64,
	}
	if so.SyncInterval == 0 {
		so.SyncInterval = defaultSyncInterval
	}
	secure := o.TLS
	if secure == nil && len(o.Key) > 0 {
		var err error
		keys := o.Keys
		if keys == nil {
			keys = func() [][]byte { return [][]byte{o.Key} }
		}
		if secure, err = clustertls.Following(keys); err != nil {
			return nil, err
		}
	}
	if o.Listen != "" {
		so.Host, so.Port, _ = split(o.Listen) // checked by Validate, as all addresses
		so.ClientAdvertise = o.Advertise
		if so.Port == 0 {
			so.Port = server.RANDOM_PORT
		}
		if secure != nil {
			so.TLS, so.TLSVerify, so.TLSConfig, so.TLSTimeout = true, true, secure, tlsTimeout.Seconds()
		}
	}
	if c := o.Cluster; c != nil {
		so.Cluster = server.ClusterOpts{Name: cmp.Or(c.Name, "forebay"), Advertise: c.Advertise, ConnectBackoff: true}
		so.Cluster.Host, so.Cluster.Port, _ = split(c.Listen)
		if secure != nil {
			so.Cluster.TLSConfig, so.Cluster.TLSTimeout = secure, tlsTimeout.Seconds()
		}
		for _, r := range c.Routes {
			so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", Host: r})
		}
	}
	return so, nil
}

// sayAfter is the time after which the log reports that a server has not started yet, again and
// again.
const sayAfter = 5 * time.Second

// ready waits until the server accepts connections and JetStream is up.
func (l *life) ready(ctx context.Context, dir string, log *slog.Logger) error {
	began := time.Now()
	said := began
	for !l.s.ReadyForConnections(50*time.Millisecond) || !l.s.JetStreamEnabled() {
		if !l.s.Running() {
			return bb.E(bb.Unavailable, "embedded server", dir, "it did not start").WithRemedy("see its log: the directory may be in use or unreadable")
		}
		if ctx.Err() != nil {
			return bb.Wrap("embedded server", dir, fmt.Errorf("it did not start: %w", ctx.Err()))
		}
		if time.Since(said) >= sayAfter {
			said = time.Now()
			log.Warn("waiting for the namespace server of this daemon to start", "folder", dir, "for", time.Since(began).Round(time.Second),
				"remedy", "a large folder takes a while; see the errors of the server (nats:) above")
		}
	}
	return nil
}

// InProcessConn makes a connection to the server without a socket.
func (e *Server) InProcessConn() (net.Conn, error) { return e.server().InProcessConn() }

// Leads reports whether it leads its cluster.
func (e *Server) Leads() bool { return e.server().JetStreamIsLeader() }

// LeadsStream reports whether it leads a stream.
func (e *Server) LeadsStream(name string) bool {
	return e.server().JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, name)
}

// Settle returns the time after which the server's stored messages survive a loss of power.
func (e *Server) Settle() time.Duration { return e.settle }

// Sync returns when all that the server has stored survives a loss of power. It syncs the whole file system of the
// server's folder.
func (e *Server) Sync() error {
	dir, err := os.Open(e.o.Dir)
	if err != nil {
		return bb.Wrap("sync", e.o.Dir, err)
	}
	defer dir.Close()
	return bb.Wrap("sync", e.o.Dir, unix.Syncfs(int(dir.Fd())))
}

// settle allows for a message that comes while its stream is being synced. That of the next
// interval counts, and the disk may be slow.
func (o *Options) settle() time.Duration {
	if o.SyncAlways {
		return 0
	}
	return 2*cmp.Or(o.SyncInterval, defaultSyncInterval) + syncPatience
}

// syncPatience is how long two syncs of a stream's files may take.
const syncPatience = 10 * time.Second

// URL returns where other processes may connect, or "" if nowhere. They need the Key or the TLS of
// Options, if it has one.
func (e *Server) URL() string {
	at := e.server().Addr()
	if at == nil {
		return ""
	}
	return "nats://" + at.String()
}

// Shutdown stops the server, which ends its connections and syncs its files, and
// waits until it is done. It may be called again.
func (e *Server) Shutdown() {
	e.full.stop()
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.now.end()
}

// repeatEvery is the shortest time between equal messages of the server in the log. A server that
// waits for others repeats its message every two seconds. A server that cannot reach them repeats
// it more often, for each of its routes.
const repeatEvery = 30 * time.Second

// logger turns the server's log into ours. It is safe for concurrent use.
type logger struct {
	log  *slog.Logger
	full func() // is called when a message reports a full disk; nil: unused

	mu     sync.Mutex
	logged map[string]time.Time // messages of the last repeatEvery, without the number of an attempt
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(message(format, v)) }
func (l *logger) Warnf(format string, v ...any) {
	text := message(format, v)
	if strings.Contains(text, "routes will not be verified") { // clustertls does it
		return
	}
	if l.isNew(text) {
		l.log.Warn(text)
	}
}

// isNew reports whether a message was not logged lately.
func (l *logger) isNew(text string) bool {
	text = attempt.ReplaceAllString(text, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatEvery })
	if _, lately := l.logged[text]; lately {
		return false
	}
	if l.logged == nil {
		l.logged = map[string]time.Time{}
	}
	l.logged[text] = now
	return true
}

// attempt matches the parts in which the messages of repeated attempts differ.
var attempt = regexp.MustCompile(` \(attempt \d+\)`)

func (l *logger) Errorf(format string, v ...any) {
	text := message(format, v)
	if l.full != nil && tellsFull(text) {
		l.full()
	}
	if l.isNew(text) {
		l.log.Error(text)
	}
}

// Fatalf logs too, since an error that is fatal to the server must not end the daemon.
func (l *logger) Fatalf(format string, v ...any) { l.log.Error(message(format, v)) }
func (l *logger) Debugf(string, ...any)          {}
func (l *logger) Tracef(string, ...any)          {}

func message(format string, v []any) string { return "nats: " + fmt.Sprintf(format, v...) }
