// Package buffer joins a daemon's parts of one buffer: its open and its dirty files, and the parts that read,
// write, copy, move, flush and recover them. It connects each part with its needs of the others, and
// implements the interfaces by which drain, staging, txn and alloc use a buffer. It must never
// depend on a request, nor on the decisions of a part.
package buffer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/aside"
	"forebay/bbd/backings"
	"forebay/bbd/batch"
	"forebay/bbd/change"
	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/drain"
	"forebay/bbd/entries"
	"forebay/bbd/file"
	"forebay/bbd/flushrule"
	"forebay/bbd/forward"
	"forebay/bbd/freeze"
	"forebay/bbd/handle"
	"forebay/bbd/ids"
	"forebay/bbd/migrate"
	"forebay/bbd/observe"
	"forebay/bbd/origin"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/bbd/replica"
	"forebay/bbd/store"
	"forebay/bbd/txn"
	"forebay/bbd/writeback"
	"forebay/flusher"
	"forebay/internal/bb"
	metatxn "forebay/meta/txn"
)

// Host is the part of a daemon that all its buffers use. Its functions may be called concurrently.
type Host struct {
	Owners  owner.Node
	Cluster *cluster.Cluster // nil: this daemon is alone
	IDs     *ids.Claimed
	Observe *observe.Observer

	Store       *store.Store
	Alloc       *alloc.Allocator
	Bypass      readcache.Bypass
	Flusher     *flusher.Flusher
	Stores      *backings.Pool
	Drains      *drain.Service
	DamageNotes aside.DamageNotes // about buffers that were set aside

	Find       func(ctx context.Context, name string) (*Buffer, error) // bb.NotFound: there is no such buffer
	RaiseIDs   func(ctx context.Context) error                         // makes the namespace count the ids as claimed that are used here
	Unreadable func() bool                                             // records of the namespace cannot be read
	Draining   func() bool                                             // this node is being emptied
	Short      func() bool                                             // memory is short

	Settings Settings
	Emit     func(bb.Event)
	Go       func(func()) // starts a goroutine that ends with the daemon
	Log      *slog.Logger
}

// Settings are those of the daemon's configuration that concern buffers.
type Settings struct {
	Inline       int64         // bytes: content of at most this size travels in messages
	ResumeGrace  time.Duration // how long a file waits for a writer that lost its daemon
	DirtyAge     time.Duration // oldest a dirty byte may get before its flush begins
	DrainTimeout time.Duration
	Silence      time.Duration // of another daemon, after which no request waits for it any more
	Since        time.Time     // when the daemon was started
}

// Buffer is a daemon's state of one buffer while it runs. Each part has a lock of its own. Their order
// is that of bbd.Daemon. Its methods may be called concurrently.
type Buffer struct {
	h    *Host
	ctx  context.Context // ends when the daemon stops
	name string
	ns   *metatxn.Tree

	current atomic.Pointer[bb.Buffer] // its record in the namespace; replaced, never changed

	open  *file.Files
	dirty *dirty.Files
	parts

	gate         *freeze.Gate // of changes
	usage        batch.Usage
	due          atomic.Int64 // Unix nanoseconds: when its job ends; 0: none
	materializer *txn.Materializer
	paths        *paths.Tree
}

// parts are the parts of a buffer that other packages implement.
type parts struct {
	writers     *alloc.Writers
	sources     *origin.Sources
	cache       *readcache.Cache
	forward     *forward.Buffer
	writeback   *writeback.Buffer
	replicas    *replica.Buffer
	migrations  *migrate.Buffer
	reassertion *reassert.Buffer
	recovery    *recovery.Buffer
	entries     *entries.Buffer
	handles     *handle.Buffer
	changes     *change.Buffer
	rules       *flushrule.Buffer
}

// New joins the parts of a buffer, whose work ends with ctx.
func New(ctx context.Context, h *Host, spec bb.Buffer, ns *metatxn.Tree) *Buffer {
	b := &Buffer{h: h, ctx: ctx, name: spec.Name, ns: ns, gate: freeze.New(bb.Address{Buffer: spec.Name}.String())}
	b.current.Store(&spec)
	b.dirty = dirty.New()
	b.writers, b.sources = alloc.NewWriters(h.Alloc, b), newSources(b)
	b.cache, b.forward = newCache(b), newForward(b)
	b.writeback, b.replicas, b.reassertion = newWriteback(b), newReplicas(b), newReassertion(b)
	b.materializer = txn.NewMaterializer(ctx, ns, b.Mover(), h.Go, h.Log.With("buffer", b.name))
	b.paths = paths.New(b.Spec, ns, b.materializer.Wait)
	b.open = newOpen(b)
	b.recovery = newRecovery(b)
	b.migrations = newMigrations(b)
	b.rules = newRules(b, spec)
	b.entries = newEntries(b)
	b.handles, b.changes = newHandles(b), newChanges(b)
	return b
}

// later are parts of a buffer for the parts that are made before them.
type later struct{ b *Buffer }

// Spec returns the buffer's record.
func (l later) Spec() bb.Buffer { return l.b.Spec() }

// Lock keeps others from changing the entry at a place. A rename has it locked until the daemon has followed.
func (l later) Lock(at bb.Place) (unlock func()) { return l.b.open.Lock(at) }

// Reserve keeps others from changing the file or directory at a place, until release is called.
func (l later) Reserve(at bb.Place, path string) (release func(), ok bool) {
	return l.b.open.Reserve(at, path)
}

// Requeue queues a dirty file for its flush.
func (l later) Requeue(ctx context.Context, e *bb.Entry) { l.b.recovery.Requeue(ctx, e) }

// ReportLost marks a file lost, and publishes that.
func (l later) ReportLost(ctx context.Context, e *bb.Entry) error {
	return l.b.recovery.ReportLost(ctx, e)
}

// Name returns the buffer's name.
func (b *Buffer) Name() string { return b.name }

// Spec returns the buffer's record, as this daemon has it.
func (b *Buffer) Spec() bb.Buffer { return *b.current.Load() }

// Replace replaces the buffer's record by a newer one.
func (b *Buffer) Replace(spec bb.Buffer) { b.current.Store(&spec) }

// The parts that the daemon's requests, loops and figures are for.

// Tree returns the buffer's namespace with its transactions.
func (b *Buffer) Tree() *metatxn.Tree { return b.ns }

// Files returns the files that are open for writing.
func (b *Buffer) Files() *file.Files { return b.open }

// Dirty returns the files that wait for their flush.
func (b *Buffer) Dirty() *dirty.Files { return b.dirty }

// Sources returns the sources of files that are not in memory.
func (b *Buffer) Sources() *origin.Sources { return b.sources }

// Gate returns the gate that keeps changes apart from the end of the buffer.
func (b *Buffer) Gate() *freeze.Gate { return b.gate }

// Usage returns the counts of the buffer.
func (b *Buffer) Usage() *batch.Usage { return &b.usage }

// Entries returns the part that describes entries.
func (b *Buffer) Entries() *entries.Buffer { return b.entries }

// Handles returns the part that requests on files use.
func (b *Buffer) Handles() *handle.Buffer { return b.handles }

// Changes returns the part that changes names.
func (b *Buffer) Changes() *change.Buffer { return b.changes }

// Replicas returns the part that keeps second copies.
func (b *Buffer) Replicas() *replica.Buffer { return b.replicas }

// Migrations returns the part that moves files to other nodes.
func (b *Buffer) Migrations() *migrate.Buffer { return b.migrations }

// Writeback returns the part that carries dirty files to the store.
func (b *Buffer) Writeback() *writeback.Buffer { return b.writeback }

// Reassertion returns the part that restores entries that the namespace has forgotten.
func (b *Buffer) Reassertion() *reassert.Buffer { return b.reassertion }

// Recovery returns the part that recovers files.
func (b *Buffer) Recovery() *recovery.Buffer { return b.recovery }

// Rules returns the holds of the buffer's flush rules.
func (b *Buffer) Rules() *flushrule.Buffer { return b.rules }

// Due returns when the buffer's job ends, or the zero time if there is none.
func (b *Buffer) Due() time.Time {
	if due := b.due.Load(); due != 0 {
		return time.Unix(0, due)
	}
	return time.Time{}
}

// SetDue sets the result of Due.
func (b *Buffer) SetDue(due time.Time) {
	if due.IsZero() {
		b.due.Store(0)
	} else {
		b.due.Store(due.UnixNano())
	}
}

// Failed notes why a file's last flush failed, for lists of files. nil means that it did not, or that there is nothing
// to flush.
func (b *Buffer) Failed(file bb.FileID, err error) {
	if err == nil {
		b.dirty.Failed(file, "")
		return
	}
	b.usage.Failed()
	b.dirty.Failed(file, err.Error())
}

// ForgetFiles drops the files that are open or dirty.
func (b *Buffer) ForgetFiles() {
	b.open.Clear()
	b.dirty.Clear()
	b.writers.Clear()
}

// address returns bb://buffer/path.
func (b *Buffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

func (b *Buffer) key(e *bb.Entry) flusher.Key {
	return flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation}
}

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.ns.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
