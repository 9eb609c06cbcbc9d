package meta

import (
	"context"
	"errors"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nsbucket"
	"forebay/meta/nslog"
	"forebay/meta/nslog/shared"
	"forebay/meta/stream"
	"forebay/meta/txn"
)

// Engine is the way in which the namespace of a buffer is kept. The buffer's record names it.
type Engine string

// The engines.
const (
	EngineBuckets Engine = "buckets" // a bucket with a key for each name: package nsbucket
	EngineLog     Engine = "log"     // a log, and a table in the memory of its owner: package nslog
	// EngineAuto is in no record. A new buffer gets a log wherever all daemons can serve it, and else a
	// bucket.
	EngineAuto Engine = "auto"
)

// logPrefix begins the names of the streams that are logs.
const logPrefix = "NS_"

// space is the namespace of a buffer that is in use.
type space struct {
	in        keptIn
	tree      *txn.Tree
	shared    *shared.Tree                // nil: it is no log, or of this process alone
	prepare   func(context.Context) error // nil: it is done
	destroyed func()                      // makes it answer that it is gone
	end       func()
}

// Namespace returns the namespace of a buffer with its transactions. It returns NotFound if there
// is no such buffer, or if it is being destroyed, and Unsupported if it is a log and this Meta is
// not the only writer.
func (m *Meta) Namespace(ctx context.Context, buffer string) (*txn.Tree, error) {
	const op = "namespace"
	b, in, err := m.buffer(ctx, op, buffer)
	if err != nil {
		return nil, err
	}
	if b.State == bb.BufferDestroying {
		return nil, bb.E(bb.NotFound, op, buffer, "the buffer is being destroyed")
	}
	if m.sharesLogs() && in.engine == EngineLog {
		return m.sharedNamespace(ctx, &b, in)
	}
	if in.engine == EngineLog {
		// Of a log there is one owner. Two of this process would end each other.
		select {
		case m.opening <- struct{}{}:
			defer func() { <-m.opening }()
		case <-ctx.Done():
			return nil, bb.Wrap(op, buffer, context.Cause(ctx))
		}
	}
	if old := m.spaceOf(buffer, in); old != nil {
		return old.tree, nil
	}
	s, opened := m.openSpace(ctx, &b, in)
	if opened != nil && !errors.Is(opened, kv.ErrNoBucket) && !errors.Is(opened, errLogLost) {
		return nil, kv.Wrap(op, buffer, opened)
	}
	if s != nil {
		s = m.keepSpace(buffer, s)
	}
	// The buffer may have been destroyed before its bucket was made above, or meanwhile. A
	// destruction from now on ends the namespace that is kept.
	again, now, err := m.buffer(ctx, op, buffer)
	there := err == nil && now == in && again.State != bb.BufferDestroying
	switch {
	case there && opened == nil:
		return s.tree, nil
	case s != nil:
		m.dropSpace(buffer, s)
	}
	if there {
		return nil, kv.Wrap(op, buffer, opened)
	}
	if err != nil && !errors.Is(err, bb.NotFound) {
		return nil, err
	}
	return nil, errors.Join(bb.E(bb.NotFound, op, buffer, "the buffer is being destroyed"), m.stored(in.engine, bucketName(buffer, in.id)).Destroy(ctx))
}

// errLogLost: the server does not have the log of a buffer's namespace.
var errLogLost = errors.New("the namespace's server has neither the log nor records that it refused to read at its start")

// logDamaged is an error of opening a log of which a needed part is missing or damaged.
type logDamaged struct{ error }

// Unwrap returns the cause.
func (e logDamaged) Unwrap() error { return e.error }

// Damaged reports whether an error of Namespace is that a log is gone, or lacks a required part, so
// that BeginAnew has to begin it anew.
func Damaged(err error) bool {
	var damaged logDamaged
	return errors.As(err, &damaged)
}

// openSpace opens the namespace of a buffer. Where a bucket is not there, it is made.
func (m *Meta) openSpace(ctx context.Context, b *bb.Buffer, in keptIn) (*space, error) {
	switch {
	case in.engine != EngineLog:
		return m.openBucket(ctx, b, in)
	case !m.opts.SoleWriter:
		return nil, bb.E(bb.Unsupported, "open", b.Name, "its namespace is a log, which is served by daemons of a cluster, or by one that stands alone and runs its own NATS server").
			WithRemedy("set cluster.listen, or start the daemon without nats.servers and nats.url")
	}
	return m.openLog(ctx, b, in)
}

func (m *Meta) openBucket(ctx context.Context, b *bb.Buffer, in keptIn) (*space, error) {
	ns := nsbucket.Open(m.bufferBucket(b.Name, in), m.ids, nsbucket.Options{
		Buffer: b.Name, Node: m.opts.Node, SoleWriter: m.opts.SoleWriter, CacheEntries: m.opts.CacheEntries,
	})
	if err := ns.Prepare(ctx, b); err != nil {
		return nil, err
	}
	tree := &txn.Tree{Tree: ns, Transactions: txn.New(ns, ns.Bucket())}
	return &space{in: in, tree: tree, destroyed: ns.MarkDestroyed, end: func() {}}, nil
}

func (m *Meta) openLog(ctx context.Context, b *bb.Buffer, in keptIn) (*space, error) {
	log := m.logOf(b.Name, in)
	e, err := nslog.Open(ctx, log, m.ids, m.logOptions(b, in))
	if errors.Is(err, stream.ErrGone) {
		return nil, logDamaged{&bb.Error{
			Kind: bb.Lost, Op: "open", Path: b.Name, Err: errLogLost,
			Remedy: "see the warnings of the namespace server (nats:) at its start, and its disk; put a copy of the namespace server's folder back",
		}}
	}
	if kind := bb.KindOf(err); kind == bb.Lost || kind == bb.Checksum {
		return nil, logDamaged{err}
	}
	if err != nil {
		return nil, err
	}
	if err := e.Prepare(ctx, b); err != nil {
		e.Close()
		return nil, err
	}
	tree := &txn.Tree{Tree: e, Transactions: txn.New(e, e.Records())}
	return &space{in: in, tree: tree, end: e.Close, destroyed: func() { e.MarkDestroyed(); e.Close() }}, nil
}

// logOf returns the log of a buffer.
func (m *Meta) logOf(buffer string, in keptIn) *stream.Stream {
	return stream.New(m.conn, logPrefix+bucketName(buffer, in.id))
}

func (m *Meta) logOptions(b *bb.Buffer, in keptIn) nslog.Options {
	floor := func() uint64 {
		if m.opts.Revision == nil {
			return 0
		}
		return m.opts.Revision(b)
	}
	return nslog.Options{
		Buffer: b.Name, Node: m.opts.Node, Floor: floor, Remake: func(ctx context.Context) error { return m.remake(ctx, b.Name, in) },
		Unanswered: m.conn.Unavailable, Logger: m.log, Unreadable: m.conn.Unreadable, Settle: m.settle(), Reopen: true,
	}
}

// remake makes the log of a buffer again that the server does not have any more. A buffer that was destroyed, or has
// another log by now, has none to be made.
func (m *Meta) remake(ctx context.Context, buffer string, in keptIn) error {
	b, now, err := m.buffer(ctx, "namespace", buffer)
	switch {
	case errors.Is(err, bb.NotFound) || err == nil && (now != in || b.State == bb.BufferDestroying):
		return stream.ErrGone
	case err != nil:
		return err
	}
	return m.logOf(buffer, in).Remake(ctx)
}

// settles is a server in this process that reports the time after which its stored messages survive a loss
// of power.
type settles interface{ Settle() time.Duration }

// unknownSettle is that of other servers: NATS servers sync every two minutes by default.
const unknownSettle = 5 * time.Minute

func (m *Meta) settle() time.Duration {
	if server, ok := m.opts.InProcess.(settles); ok {
		return server.Settle()
	}
	return unknownSettle
}

// keepSpace keeps a namespace for all users, unless another one was opened meanwhile, and returns
// the kept one.
func (m *Meta) keepSpace(buffer string, s *space) *space {
	if m.keeping != nil {
		m.keeping()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.mu.spaces[buffer]; old != nil && old.in == s.in {
		return old
	}
	m.mu.spaces[buffer] = s
	return s
}

// dropSpace ends a namespace, which is not handed out any more.
func (m *Meta) dropSpace(buffer string, s *space) {
	m.mu.Lock()
	if m.mu.spaces[buffer] == s {
		delete(m.mu.spaces, buffer)
	}
	m.mu.Unlock()
	s.end()
}

// spaceOf returns the namespace of a buffer if it is in use, and kept there.
func (m *Meta) spaceOf(buffer string, in keptIn) *space {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.spaces[buffer]; s != nil && s.in == in {
		return s
	}
	return nil
}

// endSpaces ends all namespaces.
func (m *Meta) endSpaces() {
	m.mu.Lock()
	all := m.mu.spaces
	m.mu.spaces = map[string]*space{}
	m.mu.Unlock()
	for _, s := range all {
		s.end()
	}
}

// bufferBucket returns the bucket of the namespace of a buffer.
func (m *Meta) bufferBucket(buffer string, in keptIn) *kv.Bucket {
	return kv.New(m.conn, bucketName(buffer, in.id), kv.BucketOptions{
		Absent: m.opts.Replicas <= 1,
		Gone: func(ctx context.Context) (bool, error) {
			b, now, err := m.buffer(ctx, "namespace", buffer)
			if errors.Is(err, bb.NotFound) {
				return true, nil
			}
			return now != in || b.State == bb.BufferDestroying, err
		},
	})
}

// stored is the bucket or the log of a namespace.
type stored interface {
	// Created returns when it was made.
	Created(ctx context.Context) (at time.Time, found bool, err error)
	// Unused reports whether it is there and nothing was ever stored in it.
	Unused(ctx context.Context) (bool, error)
	Destroy(ctx context.Context) error
}

// stored returns the bucket or the log of a name that bucketName has returned.
func (m *Meta) stored(engine Engine, name string) stored {
	if engine == EngineLog {
		return stream.New(m.conn, logPrefix+name)
	}
	return bucket{kv.New(m.conn, name, kv.BucketOptions{})}
}

// bucket is a bucket that may be an orphan.
type bucket struct{ *kv.Bucket }

// Unused is false, since the record of a bucket was put before it was made.
func (bucket) Unused(context.Context) (bool, error) { return false, nil }

// allStored returns the names of all buckets, or logs, of namespaces.
func (m *Meta) allStored(ctx context.Context, engine Engine) (names []string, err error) {
	if engine != EngineLog {
		return kv.Names(ctx, m.conn, systemBucket+"-")
	}
	names, err = stream.Names(ctx, m.conn, logPrefix+systemBucket+"-")
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], logPrefix)
	}
	return names, err
}
