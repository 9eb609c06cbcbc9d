package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// entryStore is what is needed of memory, whose contracts these are.
type entryStore interface {
	Size(file bb.FileID, n bb.Generation) (int64, error)
	Snapshot(file bb.FileID, n bb.Generation) (*store.Snapshot, error)
}

// entryCluster is what is needed of the other nodes, whose contract this is.
type entryCluster interface {
	Ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error
}

// entryNames is what is needed of a buffer's namespace, whose contracts these are.
type entryNames interface {
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// entryDirty has the files that wait for their flush.
type entryDirty interface {
	// Reason returns why the last flush of a file failed; "": it did not. It may be called concurrently.
	Reason(file bb.FileID) string
}

// entryOptions are what requests about entries of all buffers use. Its functions may be called concurrently.
type entryOptions struct {
	// Enter returns a buffer that the session's user may enter.
	Enter   func(ctx context.Context, s *rpc.Session, op, buffer string) (*entryBuffer, error)
	Owners  owner.Node
	Cluster entryCluster // nil: this daemon is alone
	Store   entryStore
}

// entryParts are what requests about the entries of a buffer need of the rest of it.
type entryParts struct {
	Paths *paths.Tree
	Names entryNames
	Dirty entryDirty
	// AsideDir returns the directory of the files that were set aside; 0: there is none.
	AsideDir func(ctx context.Context) (bb.DirID, error)
}

// entryService answers requests about entries. Its methods may be called concurrently.
type entryService struct{ o entryOptions }

// newEntryService returns what answers requests about entries.
func newEntryService(o entryOptions) *entryService { return &entryService{o} }

// entryBuffer has the entries of one buffer. Its methods may be called concurrently.
type entryBuffer struct {
	o    entryOptions
	name string
	p    entryParts
}

// newEntryBuffer returns what describes the entries of a buffer.
func newEntryBuffer(o entryOptions, name string, p entryParts) *entryBuffer {
	return &entryBuffer{o, name, p}
}

func (b *entryBuffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// pathAt returns the path of a place now.
func (b *entryBuffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
