// Package replica keeps second copies of a buffer's dirty files at other nodes. It brings them up to date with
// each commit, replaces lost ones, promotes a node with one to a file's owner, and drops copies that do
// not count any more. It must never depend on a commit's order of writers, nor on the steps of a
// flush.
package replica

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/namelock"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// If a buffer requires two copies, each commit is also recorded at a second node before it is
// acknowledged. That node is the second of the entry's Holders.
//
//	owner                                       second node
//	 record here
//	 write the bytes into leased segments ────▶ memory
//	 Replicate(extents) ──────────────────────▶ record under the same generation
//	 acknowledge ◀───────────────────────────── done
//
// The first commit of a generation, and the first after the second node was changed,
// sends all that the generation shows. The second copy goes when the file is flushed. One
// that is lost is made again (rereplicate.go). When the owner is gone for good, the second node becomes the
// owner, with its copy.

// Files are the files of a buffer at this daemon. Its methods may be called concurrently.
type Files interface {
	Spec() bb.Buffer
	// Open returns the files that are being written.
	Open() []OpenFile
	// Pin keeps all of a snapshot of a file in memory.
	Pin(ctx context.Context, e *bb.Entry, snap *store.Snapshot) (*store.Pinned, []store.Extent, error)
	// Stage writes the bytes of extents into memory that is leased in a session with another node, and
	// returns where they are. Done is called after the commit, or instead of it.
	Stage(ctx context.Context, s *peer.Session, extents []*wire.NewExtent, bytes [][]byte) (staged []*wire.NewExtent, done func(), err error)
	// ForgetIdle drops the copy of a generation that is kept for readers. False: it is being read.
	ForgetIdle(file bb.FileID, n bb.Generation) bool
	// Reserve bars a place from being opened for writing, renamed or removed, until release
	// is called. False: it is open for writing, or is being changed.
	Reserve(at bb.Place, path string) (release func(), ok bool)
	// Requeue queues a dirty file for its flush that this node has become the owner of. Its place is reserved.
	Requeue(ctx context.Context, e *bb.Entry)
	// DropFile drops all bytes of a file that has no entry any more.
	DropFile(e *bb.Entry)
	// ReportLost marks a file lost, for the reason that e names, and publishes that.
	ReportLost(ctx context.Context, e *bb.Entry) error
}

// OpenFile is a file that is being written at this daemon. Its methods may be called concurrently.
type OpenFile interface {
	File() bb.FileID
	// Published reports whether the namespace has the generation that is being written.
	Published() bool
	// Replica returns where its second copy is.
	Replica() *Copy
	// Rereplicate makes the second copy again, and returns how many bytes that took. While a writer
	// commits, the commit makes it, and nothing is done. Commits wait for it, and it ends with ctx.
	Rereplicate(ctx context.Context) (bytes int64, err error)
}

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
}

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	LeasedBytes(id bb.LeaseID, offset, length int64) ([]byte, error)
	Commit(...store.Commit) error
	Size(file bb.FileID, n bb.Generation) (int64, error)
	Snapshot(file bb.FileID, n bb.Generation) (*store.Snapshot, error)
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	Seal(file bb.FileID, n bb.Generation) error
	Void(file bb.FileID, n bb.Generation) error
	DropGeneration(file bb.FileID, n bb.Generation)
	IdentityOf(file bb.FileID) (store.Identity, bool)
}

// Cluster are the required methods of the other nodes, whose contracts these are.
type Cluster interface {
	Candidates(bytes int64, near bb.NodeID) []bb.NodeID
	Member(node bb.NodeID) (gossip.Member, bool)
	Incarnation(node bb.NodeID) cluster.Incarnation
	Remains(cluster.Incarnation) bool
	Sending(node bb.NodeID, bytes int64) (arrived func(error))
	Session(ctx context.Context, node bb.NodeID, who peer.Who) (*peer.Session, error)
	Ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error
}

// Options are the environment of all buffers of a daemon. Its functions may be called concurrently.
type Options struct {
	Owners  owner.Node
	Cluster Cluster // nil: this daemon is alone
	Store   Store
	Inline  int64             // bytes of a commit that travel in the message
	NextID  func() uint64     // a unique number
	Forget  func(flusher.Key) // takes a generation out of the flusher's queue
	Go      func(func())      // starts a goroutine that ends soon, or with the daemon
	Log     *slog.Logger
}

// Buffer has the second copies of one buffer's files, and those of others' files that this node has. Its
// methods may be called concurrently.
type Buffer struct {
	o     Options
	ctx   context.Context // ends when the daemon stops
	name  string
	files Files
	names Names
	dirty *dirty.Files
	locks namelock.Locks // by file: see Lock
}

// New returns the replication of a buffer's files, which works until ctx ends. Closed has those that wait for
// their flush.
func New(ctx context.Context, o Options, name string, files Files, names Names, closed *dirty.Files) *Buffer {
	return &Buffer{o: o, ctx: ctx, name: name, files: files, names: names, dirty: closed}
}

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// errNotConcerned ends an update of an entry that has changed.
var errNotConcerned = errors.New("the entry has changed")

// Lock waits for the lock that is held from the decision about a file's bytes on this node until it
// is carried out. One request may discard a second copy that another one makes the file. The error
// is that of ctx.
func (b *Buffer) Lock(ctx context.Context, file bb.FileID) (unlock func(), err error) {
	return b.locks.Lock(ctx, strconv.FormatUint(uint64(file), 16))
}
