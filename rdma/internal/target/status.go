package target

import "forebay/rdma"

// Status is how a refusal crosses the wire.
type Status uint8

// The statuses. Their values are part of the wire format of tcp.
const (
	OK Status = iota
	Denied
	OutOfBounds
	Revoked
)

// StatusOf translates the errors of Find, Check and Acquire.
func StatusOf(err error) Status {
	switch err {
	case nil:
		return OK
	case rdma.ErrBounds:
		return OutOfBounds
	case rdma.ErrRevoked:
		return Revoked
	}
	return Denied
}

// Err translates back. An undefined status is a broken protocol.
func (s Status) Err() error {
	switch s {
	case OK:
		return nil
	case Denied:
		return rdma.ErrAccess
	case OutOfBounds:
		return rdma.ErrBounds
	case Revoked:
		return rdma.ErrRevoked
	}
	return rdma.ErrProtocol
}
