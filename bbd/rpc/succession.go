package rpc

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A client whose connection breaks goes on in another session. Requests of the session before may
// still be on their way, in a socket or a proxy, and the daemon may not have detected the end of
// that session. If they were carried out later, an old open and commit would replace bytes that
// were acknowledged since. So a client names its sessions as a succession. As soon as one begins,
// no further request of those before is started, and a change waits until they have ended, with
// their requests.

// connection names a client's succession of sessions.
type connection struct {
	uid uint32
	id  [wire.ConnectionSize]byte
}

// succession is a session's position among those of its client's connection. It does not change once the
// handshake is over.
type succession struct {
	of     connection
	number uint64            // 0: the session has no successor
	before []<-chan struct{} // of sessions before, each closed at a session's end
}

// succeed makes a session, whose user is known, the last one of its client's connection, and ends those before.
func (s *Server) succeed(n *Session, hello *wire.Hello) error {
	if len(hello.Connection) == 0 || n.peer != "" {
		return nil
	}
	next := succession{of: connection{uid: n.caller.UID}, number: hello.Succession}
	if copy(next.of.id[:], hello.Connection) != len(hello.Connection) || len(hello.Connection) < wire.ConnectionSize || next.number == 0 {
		return bb.E(bb.Invalid, "handshake", hello.Client, "the client's connection has no valid name or number")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.mu.last[next.of]; last != nil {
		if last.number >= next.number {
			return bb.E(bb.Invalid, "handshake", hello.Client, "a later session of the client's connection has begun")
		}
		next.before = append(last.pending(), last.ended)
		last.cancel()
	}
	n.succession = next
	s.mu.last[next.of] = n
	return nil
}

// pending returns the ends of sessions before this one that have not come yet.
func (p *succession) pending() []<-chan struct{} {
	return slices.DeleteFunc(slices.Clone(p.before), isClosed)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// departed drops a connection whose last session has ended, and all before. It is called after each end of one of
// them. mu is held.
func (s *Server) departed(n *Session) {
	last := s.mu.last[n.of]
	if last != nil && isClosed(last.ended) && len(last.pending()) == 0 {
		delete(s.mu.last, n.of)
	}
}

// inTurn waits, with a request that changes more than its session, until the sessions before have ended.
func (r *Request) inTurn(ctx context.Context, m proto.Message) error {
	if len(r.session.before) == 0 || !wire.Changes(r.head.Type, m) {
		return nil
	}
	for _, ended := range r.session.before {
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
