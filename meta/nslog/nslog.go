// Package nslog is an engine under namespace.Tree that keeps the namespace of a buffer in a log: a table in the
// memory of one process, its owner (package owner), and a stream with the records that it was made by. No key
// of a server stands for a name, look-ups send no request, changes that wait at one time share a message, and
// removed names leave nothing. It must never depend on the bytes of files.
//
//	nslog    files, renames, operations: the effects of a change
//	owner    who may append: claims, rounds of changes, checkpoints
//	table    the result of the effects: directories, names in order, operations, outcomes
//	record   how they are encoded; pages: where they lie in memory
//
// A change that comes with an ID is carried out once. Its outcome is an effect of the same record,
// and a repetition, to this owner or to the next, gets that. Outcomes go when the client has answered
// for them, in batches.
//
// Nothing is left of removed files. If the table covers a revision that a file's entry had, a file
// without an entry was removed, and not lost with the end of a log. The keeper of a file's bytes
// keeps such a revision.
//
// # State of the engine
//
// It serves the namespaces of a daemon that stands alone (package meta). By package shared, one of several
// daemons owns the log, and the others carry their calls to it. A log that is split among several owners,
// with renames between two of them, is not there.
package nslog

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/journal"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/tail"
)

// changeBytes bounds the effects of a change that can be done in parts.
const changeBytes = 128 << 10

// Options are the identity and the environment of a namespace.
type Options struct {
	Buffer string    // its name
	Node   bb.NodeID // that StoreOps of its changes name as theirs
	// CheckpointBytes is by how much the log grows between checkpoints, about. A start reads so
	// much besides the pages. Default 16 MiB.
	CheckpointBytes int
	// Lease is for how long reads are answered without an append to the log. A new owner waits so
	// long before it answers anything. 0: no other process claims the log.
	Lease time.Duration
	// Ended is that of owner.Options, and shortens the wait of a new owner.
	Ended func(owner.Holder) time.Time
	// Held and Keep are those of owner.Options. Other daemons hold the end of the log.
	Held       func(ctx context.Context, from uint64) owner.Held
	Keep       func(context.Context, tail.Record)
	Short      func()                      // is that of owner.Options as well
	Floor      func() uint64               // the highest revision that is kept outside of the log; nil: none is
	Remake     func(context.Context) error // is that of owner.Options, as Unanswered
	Unanswered func(ctx context.Context, op string, cause error) error
	// Settle is after which time a message that was stored survives a loss of power.
	Settle time.Duration
	Leases *lease.Grants // is that of owner.Options
	Reopen bool          // after an error has ended the engine, the next call opens the log again
	Logger *slog.Logger  // default: discard
	// Unreadable, if not nil, is called with other packages' records that cannot be decoded.
	Unreadable func(key string, err error)
}

// Engine is the namespace of a buffer, owned by this process. It is safe for concurrent use.
type Engine struct {
	owner   *owner.Keeper
	ids     namespace.IDs
	o       Options
	journal *journal.Journal // of operations, locked with the table
	refused once.Refusals    // of the owner's goroutine

	incarnation Incarnation
}

// Incarnation distinguishes an engine from all others, of other processes and of other times.
type Incarnation [16]byte

var _ namespace.Tree = (*Engine)(nil)

// Open claims a log, which must exist, and reads the namespace. The context is for that alone.
// Close ends it.
func Open(ctx context.Context, log owner.Log, ids namespace.IDs, o Options) (*Engine, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{ids: ids, o: o, journal: &journal.Journal{}, refused: once.Refusals{}}
	_, _ = rand.Read(e.incarnation[:])
	var err error
	e.owner, err = owner.Keep(ctx, log, owner.Options{
		Buffer: o.Buffer, Node: o.Node, CheckpointBytes: o.CheckpointBytes, Lease: o.Lease, Ended: o.Ended, Held: o.Held, Keep: o.Keep, Short: o.Short, Floor: o.Floor, Remake: o.Remake, Unanswered: o.Unanswered, Settle: o.Settle, Leases: o.Leases, Reopen: o.Reopen, Logger: o.Logger, Applied: e.note,
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Close ends the engine. Changes that are under way have an unknown outcome. Acknowledged changes
// are in the log.
func (e *Engine) Close() { e.owner.Close() }

// Leases returns the leases of other daemons on directories.
func (e *Engine) Leases() *lease.Grants { return e.o.Leases }

// Incarnation returns which engine this is.
func (e *Engine) Incarnation() Incarnation { return e.incarnation }

// As returns the engine for the changes of a node. StoreOps name it as theirs.
func (e *Engine) As(node bb.NodeID) *Engine {
	of := *e
	of.o.Node = node
	return &of
}

// Release ends the engine so that the next owner need not wait for the end of the lease. Changes
// that are under way are refused. Close follows.
func (e *Engine) Release(ctx context.Context) error { return e.owner.Release(ctx) }

// Ended is closed when the engine does not serve any more. Err returns the reason.
func (e *Engine) Ended() <-chan struct{} { return e.owner.Ended() }

// Err returns the reason why the engine does not serve any more, or nil.
func (e *Engine) Err() error { return e.owner.Err() }

// Checkpoint writes all that has changed. When it returns, a start needs no log for changes that
// were acknowledged before the call.
func (e *Engine) Checkpoint(ctx context.Context) error { return e.owner.Checkpoint(ctx) }

// MarkDestroyed makes the namespace answer that it is gone.
func (e *Engine) MarkDestroyed() { e.owner.MarkDestroyed() }

// Buffer returns the name of the namespace's buffer.
func (e *Engine) Buffer() string { return e.o.Buffer }

// Distrust does nothing, since no answer comes from a server.
func (e *Engine) Distrust() {}

// RootOf returns the entry of the root of a new buffer.
func RootOf(b *bb.Buffer) bb.Entry {
	return bb.Entry{Type: bb.TypeDirectory, Dir: bb.RootDir, Mode: b.Mode.Perm(), UID: b.UID, GID: b.GID, MTime: b.Created}
}

// Prepare makes the root directory, with the attributes of a buffer, where it is not there.
func (e *Engine) Prepare(ctx context.Context, b *bb.Buffer) error {
	root := RootOf(b)
	key, value, err := encode(&root)
	if err != nil {
		return err
	}
	return e.owner.Do(ctx, "prepare", e.o.Buffer, func(b *owner.Round) error {
		if !b.Touch(key) {
			return owner.ErrPostponed
		}
		if _, ok := b.Table.Get(key); !ok {
			b.Store(key, value)
		}
		return nil
	})
}
