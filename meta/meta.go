// Package meta keeps everything that the daemons agree on: buffers, the namespace of each, ids and
// events, in the buckets of meta/kv. It must never depend on the place of a file's bytes, nor the way of
// a flush.
package meta

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/batch"
	"forebay/meta/conn"
	"forebay/meta/events"
	"forebay/meta/ids"
	"forebay/meta/kv"
	"forebay/meta/leaders"
	"forebay/meta/ops"
)

// Options are the server of the namespace and the ways of using it.
type Options struct {
	URLs        []string // nats://host:port or tls://host:port; ignored with InProcess
	Credentials string   // file with a user's JWT and key; "" for none
	CA          string   // file with the certificates that the server's must descend from; "" for the system's
	Cert, Key   string   // files of the client's own certificate; "" for none
	ClusterKey  []byte   // the cluster key of servers embedded in daemons (see clustertls); nil: they are not embedded
	// ClusterKeys, if not nil, returns the keys that are in use now, ClusterKey at first.
	ClusterKeys func() [][]byte
	InProcess   conn.InProcess

	Name       string    // of this client, for the server's administrators; default "forebay"
	Node       bb.NodeID // that the StoreOps of this Meta's changes name as theirs
	Replicas   int       // copies of each bucket: 1, 3 or 5; default 1
	SoleWriter bool      // this Meta alone changes the namespace, so it answers from a write-through cache
	// Engine is that of the namespaces of buffers which are made from now on. "" means
	// EngineAuto. EngineLog needs SoleWriter or Peers.
	Engine Engine
	// Peers are the daemons that share namespaces that are kept in logs, this one among them, or
	// nil if there are none. Not with SoleWriter.
	Peers Peers
	// Revision returns the highest revision of a buffer's entries that is kept outside of the
	// namespace. It is nil if none is kept.
	Revision func(of *bb.Buffer) uint64
	// CacheEntries bounds that cache, about 600 bytes each. The default is 32,768.
	CacheEntries int
	// Health, if not nil, keeps how the namespace answers. So it can be read while Connect
	// waits for an answer.
	Health *conn.Health
	Logger *slog.Logger // default: discard
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	c := o.connection()
	if err := o.validateEngine(); err != nil {
		return errors.Join(c.Validate(), err)
	}
	return c.Validate()
}

func (o *Options) validateEngine() error {
	switch o.Engine {
	case "", EngineAuto, EngineBuckets:
		return nil
	case EngineLog:
		if o.servesLogs() {
			return nil
		}
		return bb.E(bb.Unsupported, "namespace engine", string(o.Engine), "a log is served by daemons of a cluster, or by one that stands alone and runs its own NATS server").
			WithRemedy("set cluster.listen, or set namespace.engine to buckets")
	}
	return bb.E(bb.Invalid, "namespace engine", string(o.Engine), "there is no such engine").WithRemedy("use auto, buckets or log")
}

// servesLogs reports whether this Meta serves namespaces that are logs.
func (o *Options) servesLogs() bool { return o.SoleWriter || o.Peers != nil }

// connection returns the options of the connection.
func (o *Options) connection() conn.Options {
	return conn.Options{
		URLs: o.URLs, Credentials: o.Credentials, CA: o.CA, Cert: o.Cert, Key: o.Key,
		ClusterKey: o.ClusterKey, ClusterKeys: o.ClusterKeys, InProcess: o.InProcess,
		Name: o.Name, Replicas: o.Replicas, Health: o.Health, Logger: o.Logger,
	}
}

// Meta is a connection to the server that holds the namespace. It is safe for
// concurrent use. While the server is away, operations wait for it until their
// context ends, and then fail with bb.Unavailable naming the server.
type Meta struct {
	opts   Options
	log    *slog.Logger
	conn   *conn.Conn
	system *kv.Bucket
	ids    *ids.Source
	events *events.Publisher
	ops    *ops.Operations
	batch  *batch.Jobs

	stop      context.CancelFunc // ends the goroutines of tends
	tends     sync.WaitGroup
	opening   chan struct{} // has an element while a log is opened
	orphanAge time.Duration // see Repair
	keeping   func()        // of tests, called before a namespace is kept; nil: nothing

	mu struct {
		sync.Mutex
		closed bool
		spaces map[string]*space // by buffer: all users share one cache
	}
}

// Connect connects, makes the system bucket if it is missing, and finishes changes of buffers that a
// crash left half done. A block of ids is claimed when one is needed.
func Connect(ctx context.Context, opts Options) (*Meta, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c, err := conn.Dial(ctx, opts.connection())
	if err != nil {
		return nil, err
	}
	m := &Meta{opts: opts, log: c.Logger(), conn: c, opening: make(chan struct{}, 1), orphanAge: orphanAge}
	// The goroutines that tend the connection run from here to Close. ctx bounds only the connecting.
	var tending context.Context
	tending, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.mu.spaces = map[string]*space{}
	m.system = kv.New(c, systemBucket, kv.BucketOptions{Gone: kv.NeverGone})
	m.events, m.ids = events.NewPublisher(c), ids.New(m.system)
	m.ops, m.batch = ops.New(c, m.ids.Next), batch.New(c)
	m.system.ProbeAlways()
	m.tends.Go(func() { c.Probe(tending) })
	if err := m.start(ctx); err != nil {
		m.Close()
		return nil, err
	}
	if server, ok := opts.InProcess.(leaders.Server); ok && opts.Replicas > 1 {
		m.tends.Go(func() { leaders.Keep(tending, c, server, ourStream) })
	}
	return m, nil
}

// ourStream reports whether a stream belongs to the namespace or to its records.
func ourStream(name string) bool {
	return strings.HasPrefix(name, "KV_"+systemBucket) || name == ops.Stream
}

// EvenLeaders makes servers that lead more than twice their share of the streams hand some over to
// others that have copies of them, and returns the number of requests.
func (m *Meta) EvenLeaders(ctx context.Context) (moved int, err error) {
	return leaders.Even(ctx, m.conn, ourStream)
}

// IDs returns the source of ids.
func (m *Meta) IDs() *ids.Source { return m.ids }

// Operations returns the operations of the cluster.
func (m *Meta) Operations() *ops.Operations { return m.ops }

// BatchJobs returns the batch jobs of the cluster.
func (m *Meta) BatchJobs() *batch.Jobs { return m.batch }

// Publish sends an event to all subscribers of the events of its buffer. It never waits. An event
// that cannot be sent is dropped and counted in Stats.
func (m *Meta) Publish(e bb.Event) { m.events.Publish(e) }

// Subscribe returns a subscription to the events of a buffer, or of all for "".
// Events published after it returns are received.
func (m *Meta) Subscribe(ctx context.Context, buffer string) (*events.Subscription, error) {
	return events.Subscribe(ctx, m.conn, buffer)
}

func (m *Meta) start(ctx context.Context) error {
	if err := m.system.Ensure(ctx); err != nil {
		return err
	}
	return m.Repair(ctx)
}

// Close ends the connection. Operations under way fail with bb.Unavailable. Events that were
// published before are sent first. It waits, and may be called again.
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
	m.endSpaces()
	m.events.Close()
	m.conn.Close()
}

// Stats counts faults that failed no operation.
type Stats struct {
	Garbage       uint64 // records that could not be decoded, and were left out of listings
	EventsDropped uint64 // events that were published faster than the server accepted them
}

// Stats returns the counters since Connect.
func (m *Meta) Stats() Stats {
	return Stats{Garbage: m.conn.UnreadableCount(), EventsDropped: m.events.Dropped()}
}

// Status returns the state of the connection, and whether the namespace answers.
func (m *Meta) Status() conn.Status { return m.conn.Status() }
