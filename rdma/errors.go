package rdma

import "errors"

// The closed set of reasons for which this package's interfaces fail. Providers wrap them, with
// their own cause beside them, so that errors.Is finds both. The error of an operation that a
// provider does not support wraps errors.ErrUnsupported. A cancelled context is its own error.
var (
	// ErrAccess: no region has this key, or the region does not grant this kind of access.
	ErrAccess = errors.New("rdma: access denied")
	// ErrBounds: offset and length do not lie within the region.
	ErrBounds = errors.New("rdma: out of the region's bounds")
	// ErrRevoked: the region was closed by its owner, before or during the operation.
	ErrRevoked = errors.New("rdma: region revoked")
	// ErrPeerGone: the peer cannot be reached, died, closed the connection, or went silent.
	ErrPeerGone = errors.New("rdma: peer gone")
	// ErrClosed: this side closed the object before its use.
	ErrClosed = errors.New("rdma: closed")
	// ErrTooLarge: an operation exceeds Limits.
	ErrTooLarge = errors.New("rdma: too large")
	// ErrInvalid: the caller passed something no provider accepts.
	ErrInvalid = errors.New("rdma: invalid argument")
	// ErrProtocol: the peer has another version, or broke the protocol.
	ErrProtocol = errors.New("rdma: protocol violation")
)
