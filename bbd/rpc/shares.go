package rpc

import (
	"forebay/bbd/share"
	"forebay/internal/bb"
)

// The memory and places that sessions make the daemon hold are divided among users. Root and the daemon's
// user are not counted. They get all that they request, at any use by others.

// Take takes n from a pool for the session's user, if the user's share has them.
func (s *Session) Take(p *share.Pool, n int64) bool {
	return s.caller.System || p.Take(s.caller.UID, n)
}

// Wait is Take that waits until the share has them, or the session is over.
func (s *Session) Wait(p *share.Pool, n int64) error {
	if s.caller.System || n == 0 {
		return nil
	}
	return p.Wait(s.ctx, s.caller.UID, n)
}

// Give returns the amount of a Take or Wait.
func (s *Session) Give(p *share.Pool, n int64) {
	if !s.caller.System && n > 0 {
		p.Give(s.caller.UID, n)
	}
}

// resize counts the size of the reader's buffer beyond its usual one. No handshake needs more.
func (s *Session) resize(from, to int) error {
	if !s.open.Load() {
		return bb.E(bb.Invalid, "handshake", "", "its first message is too long")
	}
	more := int64(to - from)
	if err := s.Wait(s.server.bytes, max(0, more)); err != nil {
		return err
	}
	s.Give(s.server.bytes, max(0, -more))
	s.messages += more
	return nil
}

// giveMessages returns the amount that resize has counted, at the end of the session.
func (s *Session) giveMessages() {
	s.Give(s.server.bytes, s.messages)
	s.messages = 0
}
