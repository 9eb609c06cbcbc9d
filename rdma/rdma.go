package rdma

import (
	"context"
	"io"
)

// Fabric is one instance of a provider, a protection domain that owns regions, listeners and
// connections. All methods may be called concurrently.
type Fabric interface {
	// Name is the provider's: "tcp", "ofi".
	Name() string
	// Limits returns the limits of this instance. They never change.
	Limits() Limits
	// Register makes memory reachable for peers as access allows. The memory stays the caller's,
	// must stay mapped until the region is closed, and may be registered more than once.
	Register(mem []byte, access Access) (Region, error)
	// Listen accepts connections at an address in the provider's own notation. The context
	// bounds the call, not the listener.
	Listen(ctx context.Context, addr string) (Listener, error)
	// Dial connects to a listener. The context bounds the call, not the connection.
	Dial(ctx context.Context, addr string) (Conn, error)
	// Close closes every listener, connection and region of this instance, and waits for them.
	// It is idempotent.
	io.Closer
}

// Limits are the bounds of a Fabric's operations and the traits of its behaviour.
type Limits struct {
	// MaxOp is the largest length in bytes of one operation.
	MaxOp int
	// Depth is how many operations one Conn has in flight before Post waits.
	Depth int
	// NeedsLocal: Op.Local must lie in a Region of the same Fabric (verbs and their like).
	NeedsLocal bool
	// ErrorEndsConn: an operation that the target refuses breaks its Conn. The operations behind it
	// complete with ErrPeerGone, and ErrAccess may stand for ErrBounds and ErrRevoked, because
	// hardware does not distinguish them.
	ErrorEndsConn bool
}

// Access is the rights of peers to a region. Its owner may always use it as Op.Local.
type Access uint8

const (
	// AccessLocal grants peers nothing.
	AccessLocal Access = 0
	// AccessRemoteRead allows peers to read.
	AccessRemoteRead Access = 1
	// AccessRemoteWrite allows peers to write.
	AccessRemoteWrite Access = 2
)

// Allows reports whether a grants everything that an operation of this kind needs.
func (a Access) Allows(kind OpKind) bool {
	switch kind {
	case OpRead:
		return a&AccessRemoteRead != 0
	case OpWrite:
		return a&AccessRemoteWrite != 0
	}
	return false
}

// Region is registered memory. All methods may be called concurrently.
type Region interface {
	// Bytes is the registered memory.
	Bytes() []byte
	// Key is the key by which a peer reaches it.
	Key() RemoteKey
	// Access is the set of operations that peers may do.
	Access() Access
	// Close revokes the key. When it returns, no operation of any peer touches the memory any more.
	// Operations under way complete with ErrRevoked, or finished before. It waits for transfers on
	// the wire, a bounded time, then disconnects the peers that stall them. It is idempotent.
	io.Closer
}

// Listener accepts connections. All methods may be called concurrently.
type Listener interface {
	// Accept waits for a connection that finished its handshake. ErrClosed after Close.
	Accept(ctx context.Context) (Conn, error)
	// Addr is where it listens, in a form that Dial takes.
	Addr() string
	// Close stops listening, unblocks Accept, closes connections that were not accepted, and waits.
	// Accepted connections stay open. It is idempotent.
	io.Closer
}

// Conn is a reliable connection to one peer. All methods may be called concurrently.
type Conn interface {
	// Post hands over operations, in order, and returns how many it accepted. It waits while the
	// connection or the queue is full until at least one fits, and then accepts as many as fit.
	// Fewer than len(ops) without an error means "drain the queue and post the rest". With an
	// error, the first n are posted all the same. Each posted operation completes exactly once, in
	// any order, into q. Until then Op.Local belongs to the provider. The slice ops stays the
	// caller's. A malformed operation is refused here, with ErrInvalid or ErrTooLarge.
	Post(ctx context.Context, q *Queue, ops []Op) (n int, err error)
	// Done is closed when the connection has ended, by a Close of either side or because the peer
	// cannot be reached any more. From then on every posted operation has completed, and the
	// provider touches no memory of the caller's for this connection.
	Done() <-chan struct{}
	// Err is the reason of the end: ErrPeerGone, or ErrClosed if this side closed first. It is
	// nil until Done is closed, and never changes after that.
	Err() error
	// Peer names the other side, for logs.
	Peer() string
	// Close breaks the connection at once. Blocked calls return ErrClosed, and operations in flight
	// complete with ErrClosed. When it returns, Done is closed. It is idempotent.
	io.Closer
}

// OpKind is the direction of a one-sided operation.
type OpKind uint8

const (
	// OpRead copies from the remote region to local memory.
	OpRead OpKind = iota + 1
	// OpWrite copies from local memory to the remote region.
	OpWrite
)

// Op is one one-sided operation of len(Local) bytes. Zero bytes are allowed and checked alike.
type Op struct {
	Kind   OpKind
	Local  []byte
	Remote Remote
	// ID comes back in the Completion and means nothing to the provider.
	ID uint64
}

// Remote is a place in a peer's region.
type Remote struct {
	Key    RemoteKey
	Offset uint64
}

// Completion reports the end of an operation. After an error, the destination's contents
// are undefined within the operation's range.
type Completion struct {
	ID  uint64
	Err error
}

// CheckOp refuses operations that no target could carry out: an unknown kind, or more than max
// bytes.
func CheckOp(op *Op, max int) error {
	switch {
	case op.Kind != OpRead && op.Kind != OpWrite:
		return ErrInvalid
	case len(op.Local) > max:
		return ErrTooLarge
	}
	return nil
}
