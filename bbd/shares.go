package bbd

import (
	"math"

	"forebay/bbd/share"
	"forebay/internal/bb"
)

// userShares divides among users what sessions make the daemon hold. Root and the daemon's user are not
// counted: they get what they ask for, whatever the others have.
type userShares struct {
	requests *share.Pool // in flight
	bytes    *share.Pool // of what requests carry
	files    *share.Pool // open
	waiters  *share.Pool // writers in the line for memory
	pins     *share.Pool // bytes of the segments that readers keep where they are; sized once the store is open
}

func newShares(l *Limits) *userShares {
	return &userShares{
		requests: share.NewPool(int64(l.Requests)), bytes: share.NewPool(l.Bytes), files: share.NewPool(int64(l.OpenFiles)),
		waiters: share.NewPool(int64(l.Waiters)),
		pins:    share.NewPool(math.MaxInt64 / 4),
	}
}

// take takes n from a pool for the session's user, if the user's share has them.
func (s *session) take(p *share.Pool, n int64) bool { return s.cred.System || p.Take(s.cred.UID, n) }

// wait is take that waits until the share has them, or the session is over.
func (s *session) wait(p *share.Pool, n int64) error {
	if s.cred.System || n == 0 {
		return nil
	}
	return p.Wait(s.ctx, s.cred.UID, n)
}

// give gives back what take or wait has taken.
func (s *session) give(p *share.Pool, n int64) {
	if !s.cred.System && n > 0 {
		p.Give(s.cred.UID, n)
	}
}

// resize counts what the reader's buffer has beyond its usual size. No handshake needs more.
func (s *session) resize(from, to int) error {
	if !s.open.Load() {
		return bb.E(bb.Invalid, "handshake", "", "its first message is too long")
	}
	more := int64(to - from)
	if err := s.wait(s.d.shares.bytes, max(0, more)); err != nil {
		return err
	}
	s.give(s.d.shares.bytes, max(0, -more))
	s.messages += more
	return nil
}

// giveMessages gives back what resize has taken, at the end of the session.
func (s *session) giveMessages() {
	s.give(s.d.shares.bytes, s.messages)
	s.messages = 0
}

// release ends a pin.
func (s *session) release(p pin) {
	p.held.Release()
	s.give(s.d.shares.pins, p.bytes)
}
