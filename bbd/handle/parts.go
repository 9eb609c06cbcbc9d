package handle

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/call"
	"forebay/bbd/fabric"
	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/bbd/share"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// The resources of sessions, in the order in which one that ends releases them.
const (
	Pins    rpc.Kind = iota // ranges that a client reads in place
	Handles                 // files that a client has open
	Leases                  // segments that a client fills
)

// Shares divides among users the memory and places that sessions make the daemon hold, besides requests (package rpc).
// Root and the daemon's user are not counted. They get all that they request, at any use by others.
type Shares struct {
	Files *share.Pool // open
	Pins  *share.Pool // bytes of the segments that readers keep where they are

	MaxPinned int64 // bytes that one answer to a reader pins
}

// Limits bound the resources that clients may make the daemon hold.
type Limits struct {
	Handles  int   // open files of one session
	Leases   int   // of one session
	LeaseMin int64 // bytes
	LeaseMax int64
	Inline   int64 // bytes; reads of at most this size are answered with data
}

// Memory are the required methods of the store of bytes, whose contracts these are.
type Memory interface {
	LeasedBytes(id bb.LeaseID, offset, length int64) ([]byte, error)
	Region(id bb.RegionID) (store.RegionInfo, []byte, error)
	Linearise(ctx context.Context, file bb.FileID, n bb.Generation) error
}

// Options are the environment of requests on all buffers. Its functions may be called concurrently.
type Options struct {
	// Enter returns a buffer that the session's user may enter.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) (*Buffer, error)
	// BufferOf returns the buffer whose memory this is.
	BufferOf func(alloc.Buffer) *Buffer
	// Admission returns the client's way to region memory over the network, or nil if there is none.
	Admission func(*rpc.Session) *fabric.Admission
	Stopping  func() bool                               // leases of lost clients stay for the next start
	Read      func(extents []store.Extent, bytes int64) // counts a read
	NextID    func() uint64                             // a unique number
	Store     Memory
	Alloc     *alloc.Allocator
	Shares    Shares
	Limits    Limits
}

// Forwarded is a file of another owner that is open for writing. Its methods are called one after the other.
type Forwarded interface {
	Generation() (bb.FileID, bb.Generation)
	// Commit carries a commit out at the owner. Holds reports whether the client has a lease for the buffer.
	Commit(ctx context.Context, m *wire.Commit, data []byte, holds func(bb.LeaseID) bool) (*wire.Committed, error)
	// Abandon abandons uncommitted writes.
	Abandon(ctx context.Context)
}

// Gate keeps a buffer from changes while it is about to be destroyed. Its methods may be called concurrently.
type Gate interface {
	Enter(ctx context.Context, op string) error
	TryEnter() bool
	Leave()
}

// Entries are the required methods of a buffer's namespace, whose contract this is.
type Entries interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
}

// Parts are the other parts of a buffer that requests on its files need. Its functions may be called
// concurrently.
type Parts struct {
	Spec   func() bb.Buffer // its record
	Owners owner.Node
	Files  *file.Files // open for writing
	Names  Entries
	Cache  *readcache.Cache
	Gate   Gate

	Memory   alloc.Buffer
	Segments *alloc.Writers // that the daemon fills

	// Lookup returns the entry of a path as readers see it.
	Lookup func(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
	// Tier returns where the bytes of the file at a path belong.
	Tier func(ctx context.Context, path string) bb.Tier
	// Describe makes the message of an entry, with this daemon's own facts of it.
	Describe func(*bb.Entry) *wire.Entry
	// UsedFrom notes that another node, if it is not "", has opened a file.
	UsedFrom func(file bb.FileID, node bb.NodeID)
	// Forward opens a file for writing at the node that owns it.
	Forward func(ctx context.Context, c access.Caller, node bb.NodeID, tier bb.Tier, writer uint64, m *wire.Open) (Forwarded, *wire.Opened, error)
	// Flushed waits until a generation is in no queue of the flusher.
	Flushed  func(ctx context.Context, e *bb.Entry) error
	DirtyAge time.Duration // oldest that a dirty byte gets before its flush begins
}

// Service answers requests that open, read, write and close files. Its methods may be called concurrently.
type Service struct {
	o   Options
	ctx context.Context // ends when the daemon stops
}

// New returns the service that answers requests on files until ctx ends.
func New(ctx context.Context, o Options) *Service { return &Service{o: o, ctx: ctx} }

// Buffer has the state that requests on the files of one buffer use.
type Buffer struct {
	name string
	p    Parts
}

// NewBuffer returns a buffer of a name for requests.
func NewBuffer(name string, p Parts) *Buffer { return &Buffer{name, p} }

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// CommitHandler returns the handler of commits, in the order of their handle. One that waits for nothing is
// carried out at once.
func CommitHandler() rpc.Handler {
	return rpc.InOrder(Handles, (*handle).mayCommitQuickly, (*handle).commitRequest)
}

// ExtentsHandler returns the handler that answers with the place of a range of a file, or with its bytes.
func ExtentsHandler() rpc.Handler {
	return rpc.InOrder(Handles, (*handle).mayReadQuickly, (*handle).extentsRequest)
}

// CloseHandler returns the handler of closes.
func CloseHandler() rpc.Handler {
	return rpc.InOrder(Handles, (*handle).mayCloseQuickly, (*handle).closeRequest)
}
