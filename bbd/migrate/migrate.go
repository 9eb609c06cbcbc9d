// Package migrate moves closed files whole from one node to another, which becomes their owner: off a node
// that is emptied, or that has too little memory. It must never depend on the writers that wait for
// memory, nor on the way of bytes between nodes.
package migrate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A file moves to another node when its owner is drained, or has too little memory:
//
//	owner                                  new owner
//	 hold the file's flush
//	 Take ────────────────────────────────▶ read it from the owner, one-sided
//	                                        compare its checksum
//	                                        put itself into the entry (compare-and-set)
//	 drop the bytes ◀────────────────────── done
//
// Until the compare-and-set the owner is the owner. Afterwards the new one has everything,
// recorded. Readers that have the file open keep their generation.

// Files are the files of a buffer at this node.
type Files interface {
	// Hold keeps a file from being flushed, until release is called. Flushes of it have ended when it
	// returns.
	Hold(ctx context.Context, path string) (release func(), err error)
	// Fetch brings all of a file in from its owner as this node's own, verified, without waiting for
	// memory that others hold. After an error a part of it may be there.
	Fetch(ctx context.Context, e *bb.Entry) error
	// Flush saves this node's files, and ends with ctx.
	Flush(ctx context.Context) error
}

// Open are the files of a buffer that are open for writing at this node.
type Open interface {
	// Reserve keeps a closed file from being opened for writing, renamed and removed at a place, until
	// release is called. False: it is open for writing, or is being changed.
	Reserve(at bb.Place, path string) (release func(), ok bool)
}

// Replicas are the second copies that this node has of a buffer's files.
type Replicas interface {
	// Lock keeps this node's bytes of a file from being promoted, discarded, or replaced as a second copy,
	// until unlock is called. The error is that of ctx.
	Lock(ctx context.Context, file bb.FileID) (unlock func(), err error)
	// Complete reports whether this node has the second copy of a closed file, all of it.
	Complete(e *bb.Entry) bool
	// Promote makes this node, which has the second copy, the owner of a file.
	Promote(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error
}

// Queue has the files that wait for their flush.
type Queue interface {
	// Requeue queues a dirty file for its flush that this node has become the owner of. Its place is reserved.
	Requeue(ctx context.Context, e *bb.Entry)
}

// Readers are the readers of a buffer's files at this daemon, whose contracts these are.
type Readers interface {
	BeginRestore(ctx context.Context, file bb.FileID) error
	EndRestore(file bb.FileID)
	DropCopies(file bb.FileID) error
	SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error
}

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
}

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	Stats() store.Stats
	Size(file bb.FileID, n bb.Generation) (int64, error)
	MarkClean(file bb.FileID, n bb.Generation) error
	DropGeneration(file bb.FileID, n bb.Generation)
}

// Allocator grants writers memory.
type Allocator interface {
	// Evict frees so much memory, as far as clean bytes go.
	Evict(bytes int64) int64
	// Wake checks again whether writers can have memory.
	Wake()
}

// Cluster are the required methods of the other nodes, whose contracts these are.
type Cluster interface {
	Candidates(bytes int64, near bb.NodeID) []bb.NodeID
	CandidatesAmong(bytes int64, nodes []bb.NodeID) []bb.NodeID
	Sending(node bb.NodeID, bytes int64) (arrived func(error))
	Ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error
}

// Options are the environment of all buffers of a daemon. Its functions may be called concurrently.
type Options struct {
	Owners   owner.Node
	Cluster  Cluster // nil: this daemon is alone, and moves nothing
	Store    Store
	Alloc    Allocator
	Forget   func(flusher.Key) // takes a generation out of the flusher's queue
	Draining func() bool       // this node is being emptied
	Flush    time.Duration     // how long a node that is emptied flushes its files, before it moves them
	Log      *slog.Logger
}

// Parts are the other parts of a buffer that moves of its files need.
type Parts struct {
	Spec     func() bb.Buffer // its record
	Files    Files
	Open     Open
	Replicas Replicas
	Queue    Queue
	Readers  Readers
	Names    Names
	Dirty    *dirty.Files // those that may move
}

// Buffer moves the files of one buffer. Its methods may be called concurrently.
type Buffer struct {
	o    Options
	ctx  context.Context // ends when the daemon stops
	name string
	p    Parts
}

// New returns the migration of a buffer's files, which works until ctx ends.
func New(ctx context.Context, o Options, name string, p Parts) *Buffer {
	return &Buffer{o: o, ctx: ctx, name: name, p: p}
}

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// errNotConcerned ends an update of an entry that has changed.
var errNotConcerned = errors.New("the entry has changed")
