// Package call is the request as a service gets it: who makes it, its bytes and its answers on the way.
// It must never know a session, a connection or a handle, and imports no package that does: rpc implements
// it, and so may a test.
package call

import (
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/internal/wire"
)

// Visitor is the client whose rights decide about entering a buffer.
type Visitor interface {
	// Caller returns the user that the client acts for.
	Caller() *access.Caller
	// Token returns the token to which the client's session is restricted, or nil if it may do all that its
	// caller may.
	Token() *wire.TokenClaims
}

// Request is a request whose answer its handler returns.
type Request interface {
	Visitor
	// ID returns the request's number, which its session has not had before.
	ID() uint64
	// SessionID returns the number of the request's session, which no other one of this daemon has had since its start.
	SessionID() uint64
	// SessionEnded reports whether the session is over, so that its client gets no answer.
	SessionEnded() bool
	// Data returns the bytes behind the message. They are the handler's.
	Data() []byte
	// More sends an answer before the last one. An error means that the client is gone.
	More(m proto.Message, data []byte) error
}
