package rpc

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"forebay/bbd/access"
	"forebay/bbd/share"
	"forebay/internal/bb"
	"forebay/internal/unixsocket"
)

// places bounds the connections that others make the daemon keep open, so that no user can take
// them all:
//
//	who                                  how many
//	root, the daemon's user, by the      any number: an administrator always gets in
//	unix socket; other daemons
//	any other user                       the user's share of limits.sessions
//	nobody yet, over TCP                 limits.unproven; a further one takes the place of the oldest
//	users beyond their share, until      maxTurnedAway; further ones are closed at once
//	they have got the error
type places struct {
	users *share.Pool

	mu       sync.Mutex
	unproven []*Session // oldest first
	most     int
	turned   int // being turned away
}

// maxTurnedAway is how many connections at a time receive the reason why they are turned away.
const maxTurnedAway = 32

func newPlaces(l *Limits) *places {
	return &places{users: share.NewPool(int64(l.Sessions)), most: l.Unproven}
}

// placeKind is the kind of place that a session occupies.
type placeKind int

const (
	placeNone placeKind = iota
	placeUnproven
	placeUser
	placeTurnedAway
)

var errNoPlace = errors.New("no place")

// enter assigns an accepted connection its place. After errNoPlace it is to be closed.
// A session that s.refused is set for receives that error and ends.
func (p *places) enter(s *Session) error {
	conn, ok := s.conn.(*net.UnixConn)
	if !ok {
		p.enterUnproven(s)
		return nil
	}
	ucred, err := unixsocket.Peer(conn)
	if err != nil {
		return errNoPlace
	}
	if access.IsOwner(ucred.Uid) {
		return nil
	}
	s.caller.UID = ucred.Uid // all of it follows with the handshake
	return p.enterUser(s)
}

// enterUser takes one of a user's places, or sets s.refused.
func (p *places) enterUser(s *Session) error {
	if p.users.Take(s.caller.UID, 1) {
		s.place = placeUser
		return nil
	}
	has, _ := p.users.Of(s.caller.UID)
	s.refused = bb.E(bb.Busy, "handshake", "", fmt.Sprintf("this user has %s with the daemon, and the rest is reserved for others", bb.Count(has, "session"))).
		WithRemedy("end some of this user's programs, or raise limits.sessions")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turned >= maxTurnedAway {
		return errNoPlace
	}
	p.turned++
	s.place = placeTurnedAway
	return nil
}

// enterUnproven occupies a place until the handshake is over. The connection that has had its place for
// longest loses it. A client with a valid proof has shown it by then, however many others come.
func (p *places) enterUnproven(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.place = placeUnproven
	p.unproven = append(p.unproven, s)
	if len(p.unproven) > p.most {
		p.unproven[0].conn.Close() // its reader ends the session
		p.unproven = slices.Delete(p.unproven, 0, 1)
	}
}

// proven moves a session over TCP, whose cred and peer are known now, to its user's places.
func (p *places) proven(s *Session) error {
	if s.place != placeUnproven {
		return nil
	}
	p.leave(s)
	if s.peer != "" {
		return nil
	}
	if p.enterUser(s) == errNoPlace || s.refused != nil {
		return s.refused
	}
	return nil
}

// leave frees a session's place.
func (p *places) leave(s *Session) {
	was := s.place
	s.place = placeNone
	switch was {
	case placeUser:
		p.users.Give(s.caller.UID, 1)
	case placeTurnedAway:
		p.mu.Lock()
		p.turned--
		p.mu.Unlock()
	case placeUnproven:
		p.mu.Lock()
		if i := slices.Index(p.unproven, s); i >= 0 {
			p.unproven = slices.Delete(p.unproven, i, i+1)
		}
		p.mu.Unlock()
	}
}
