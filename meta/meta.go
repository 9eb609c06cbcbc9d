// Package meta keeps what the daemons agree on: buffers, the namespace of each, ids
// and events, over NATS JetStream key-value buckets. It is the only importer of
// nats.go, and must never know where a file's bytes lie or how they are flushed.
package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
)

// InProcess makes connections to a server in this process: embedded.Server is one.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// BatchesInMemory is what an InProcess server may be able to do besides: to have the
// batches of one of its streams pass through memory rather than through files that it
// syncs. It may be called again, and concurrently.
type BatchesInMemory interface {
	BatchInMemory(stream string) error
}

// Options say which server holds the namespace and how to use it.
type Options struct {
	URLs        []string // nats://host:port or tls://host:port; ignored with InProcess
	Credentials string   // file with a user's JWT and key; "" for none
	CA          string   // file with the certificates that the server's must descend from; "" for the system's
	Cert, Key   string   // files of the client's own certificate; "" for none
	ClusterKey  []byte   // that the servers are embedded in daemons with (see clustertls); nil: they are not
	// ClusterKeys, if not nil, returns the keys that are in use now, ClusterKey at first.
	ClusterKeys func() [][]byte
	InProcess   InProcess

	Name       string    // of this client, as the server's administrators see it; default "forebay"
	Node       bb.NodeID // that the StoreOps of this Meta's changes name as theirs
	Replicas   int       // copies of each bucket: 1, 3 or 5; default 1
	SoleWriter bool      // nobody but this Meta changes the namespace: answer from a write-through cache
	// CacheEntries bounds that cache, about 600 bytes each; default 32,768.
	CacheEntries int
	// Health, if not nil, keeps how the namespace answers. So it can be read while Connect
	// waits for an answer.
	Health *Health
	Logger *slog.Logger // default: discard
}

func (o *Options) setDefaults() {
	if o.Name == "" {
		o.Name = "forebay"
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.CacheEntries <= 0 {
		o.CacheEntries = 1 << 15
	}
	if o.Health == nil {
		o.Health = &Health{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	add := func(value, why string) { errs = append(errs, bb.E(bb.Invalid, "namespace server", value, why)) }
	if o.InProcess == nil && len(o.URLs) == 0 {
		add("", "has neither a URL nor a server in this process")
	}
	if o.Replicas != 0 && o.Replicas != 1 && o.Replicas != 3 && o.Replicas != 5 {
		add(fmt.Sprint(o.Replicas), "replicas must be 1, 3 or 5")
	}
	if (o.Cert == "") != (o.Key == "") {
		add(o.Cert+o.Key, "a certificate and its key go together")
	}
	if len(o.ClusterKey) > 0 && (o.Cert != "" || o.CA != "") {
		add(o.Cert+o.CA, "a cluster key stands for certificates, and none go with it")
	}
	return errors.Join(errs...)
}

// Meta is a connection to the server that holds the namespace. It is safe for
// concurrent use. While the server is away, operations wait for it until their
// context ends, and then fail with bb.Unavailable naming the server.
type Meta struct {
	opts   Options
	log    *slog.Logger
	conn   *conn
	system *bucket
	ids    idBlock
	events *publisher

	counters counters
	stop     context.CancelFunc // what tends does
	tends    sync.WaitGroup

	mu struct {
		sync.Mutex
		closed     bool
		namespaces map[string]*Namespace // by buffer: all users share one cache
		jobs       *bucket               // nil until it is needed
		lifetimes  *bucket               // the same
		consumers  map[string]jetstream.Consumer
	}
}

// Connect connects, makes the system bucket if it is not there, and finishes what a
// crash left half done among the buffers. A block of ids is claimed when one is needed.
func Connect(ctx context.Context, opts Options) (*Meta, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	c, err := dial(ctx, opts)
	if err != nil {
		return nil, err
	}
	m := &Meta{opts: opts, log: opts.Logger, conn: c}
	// The life of what tends to the connection is from here to Close; ctx bounds only the connecting.
	var tending context.Context
	tending, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.mu.namespaces = map[string]*Namespace{}
	m.system = m.bucket(systemBucket)
	m.system.gone = func(context.Context) (bool, error) { return false, nil } // nobody deletes it
	m.events = newPublisher(c, &m.counters)
	c.prober.always("stream KV_"+systemBucket, m.system.probe)
	m.tends.Go(func() { c.prober.run(tending) })
	if err := m.start(ctx); err != nil {
		m.Close()
		return nil, err
	}
	if server, ok := opts.InProcess.(Leads); ok && opts.Replicas > 1 {
		m.tends.Go(func() { m.keepEven(tending, server) })
	}
	return m, nil
}

func (m *Meta) start(ctx context.Context) error {
	if err := m.system.ensure(ctx); err != nil {
		return err
	}
	return m.Repair(ctx)
}

// Close ends the connection. Operations under way fail with bb.Unavailable; events
// that were published before are sent first. It waits, and may be called again.
func (m *Meta) Close() {
	m.mu.Lock()
	closed := m.mu.closed
	m.mu.closed = true
	m.mu.Unlock()
	if closed {
		return
	}
	m.stop()
	m.tends.Wait()
	m.events.close()
	m.conn.close()
}

// Stats counts what went wrong without failing an operation.
type Stats struct {
	Garbage       uint64 // records that could not be decoded, and were left out of listings
	EventsDropped uint64 // events that were published faster than the server took them
}

type counters struct {
	garbage, dropped atomic.Uint64
}

// Stats returns the counters since Connect.
func (m *Meta) Stats() Stats {
	return Stats{Garbage: m.counters.garbage.Load(), EventsDropped: m.counters.dropped.Load()}
}

// Status says how the connection stands, and whether the namespace answers.
func (m *Meta) Status() Status { return m.conn.currentStatus() }

// opError translates what the connection says into the errors of an operation.
func opError(op, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errConflict):
		return &bb.Error{Kind: bb.Busy, Op: op, Path: path, Err: ErrConflict, Remedy: "look it up and try again"}
	case errors.Is(err, errNoBucket):
		return bb.E(bb.NotFound, op, path, "the namespace has no entries of the buffer: it has been destroyed, or the namespace's server has lost them").
			WithRemedy("if bbctl buffer list shows the buffer, put a copy of the server's folder back: nodes keep what they hold")
	case errors.Is(err, errUncertain) && bb.KindOf(err) == bb.Internal:
		return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Err: err, Remedy: "look whether it was done"}
	}
	return bb.Wrap(op, path, err)
}

// ErrConflict is in the chain of the bb.Busy error of a change that was refused
// because somebody else changed the same thing first.
var ErrConflict = errors.New("it was changed by somebody else meanwhile")
