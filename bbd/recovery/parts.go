package recovery

import (
	"context"
	"log/slog"
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/reassert"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
)

// Store is the part of package store that recovery uses.
type Store interface {
	Adopt(file bb.FileID, n bb.Generation) error
	AdoptClean(file bb.FileID, n bb.Generation) error
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	Seal(file bb.FileID, n bb.Generation) error
	Void(file bb.FileID, n bb.Generation) error
	Drop(file bb.FileID)
	MemoryLost() bool
	Damage() []store.Damage
}

// Open has the open files of a buffer. Package file has the contracts.
type Open interface {
	Reopen(e *bb.Entry)
	Remake(e *bb.Entry) error
	IdentifyFound(e *bb.Entry, path string)
}

// Queue has the files of a buffer that wait for their flush. Its methods may be called concurrently.
type Queue interface {
	// Enqueue queues a dirty file for its flush.
	Enqueue(e bb.Entry, item flusher.Item)
	// ReconcileStale settles dirty bytes here of files that another node owns by now. Old has the
	// generations.
	ReconcileStale(ctx context.Context, files []bb.Entry, old map[bb.FileID]bb.Generation)
}

// Replicas has the second copies of a buffer's files.
type Replicas interface {
	// PromoteLater requests the node with the second copy of a file to become its owner, until it is. It
	// may be called concurrently, and does not wait.
	PromoteLater(e *bb.Entry)
}

// Entries reads the entries of a buffer, and restores those that the namespace has lost. Its methods
// are called once each at a start, by one goroutine.
type Entries interface {
	// Scan calls fn with each entry, and whether it is older than the file's content in memory.
	Scan(ctx context.Context, inv *fate.Inventory, fn func(e *bb.Entry, behind bool)) error
	// Recover settles the files without an entry in Scan.
	Recover(ctx context.Context, inv *fate.Inventory) (reassert.Recovered, error)
}

// Names is the part of a buffer's namespace that recovery uses.
type Names interface {
	Put(ctx context.Context, e bb.Entry) (uint64, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Options are the environment of the recoveries of all buffers. Its functions may be called concurrently.
type Options struct {
	Owners owner.Node
	Store  Store
	Lost   func(bytes int64) // counts a file that is lost
	Emit   func(bb.Event)
	Log    *slog.Logger
}

// Parts are the parts of a buffer that its recovery uses.
type Parts struct {
	Spec     func() bb.Buffer // its record
	Open     Open
	Queue    Queue
	Replicas Replicas
	Entries  Entries
	Names    Names
}

// Buffer recovers the files of one buffer. Its methods may be called concurrently, but for Recover.
type Buffer struct {
	o       Options
	name    string
	p       Parts
	earlier string // damage; see Suspect
}

// New returns the recovery of a buffer.
func New(o Options, name string, p Parts) *Buffer { return &Buffer{o: o, name: name, p: p} }

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}

// dirtySince returns since when a file counts as dirty. A file whose user has set its time back is no
// older here than its buffer.
func dirtySince(e *bb.Entry, spec *bb.Buffer) time.Time {
	if e.MTime.Before(spec.Created) {
		return spec.Created
	}
	return e.MTime
}
