package entries

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	Size(file bb.FileID, n bb.Generation) (int64, error)
	Snapshot(file bb.FileID, n bb.Generation) (*store.Snapshot, error)
}

// Cluster are the required methods of the other nodes, whose contract this is.
type Cluster interface {
	Ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error
	// Expected reports whether a node's daemon may answer soon, by gossip.
	Expected(node bb.NodeID) bool
	// AllSupport returns an error that names a node that is too old for features of a version.
	AllSupport(what string, since uint32) error
}

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Dirty has the files that wait for their flush.
type Dirty interface {
	// Reason returns why the last flush of a file failed, or "" if it did not. It may be called concurrently.
	Reason(file bb.FileID) string
}

// Options are the environment of requests about entries of all buffers. Its functions may be called concurrently.
type Options struct {
	// Enter returns a buffer that the session's user may enter.
	Enter   func(ctx context.Context, v call.Visitor, op, buffer string) (*Buffer, error)
	Owners  owner.Node
	Cluster Cluster // nil: this daemon is alone
	Store   Store
}

// Parts are the other parts of a buffer that requests about its entries need.
type Parts struct {
	Paths *paths.Tree
	Names Names
	Dirty Dirty
	// Make stores a new entry that has no bytes, with ids, and queues a symbolic link for its flush.
	Make func(ctx context.Context, e bb.Entry) (bb.Entry, error)
	// ReadSize sets the size of a file that is open for writing, as its owner or its second copy has it now.
	ReadSize func(ctx context.Context, e *bb.Entry, path string) error
	// Flushed waits until the store has the files at a path, in a buffer of durability flushed.
	Flushed func(ctx context.Context, c access.Caller, op, path string) error
	// AsideDir returns the directory of the files that were set aside, or 0 if there is none.
	AsideDir func(ctx context.Context) (bb.DirID, error)
	// MarkSteps sets the state and reason of a directory's dirty entries that lie in a superseded step.
	MarkSteps func(ctx context.Context, dir string, entries ...*wire.Entry)
	// Changed announces that the attributes of the entry at a path have changed.
	Changed func(path string)
}

// Service answers requests about entries. Its methods may be called concurrently.
type Service struct{ o Options }

// New returns the service that answers requests about entries.
func New(o Options) *Service { return &Service{o} }

// Buffer has the entries of one buffer. Its methods may be called concurrently.
type Buffer struct {
	o    Options
	name string
	p    Parts
}

// NewBuffer returns the part that describes the entries of a buffer.
func NewBuffer(o Options, name string, p Parts) *Buffer {
	return &Buffer{o, name, p}
}

func (b *Buffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
