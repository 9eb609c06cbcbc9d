package store

import (
	"forebay/internal/leaselock"
)

// A writer that lost its lease, with its session or with the daemon, may still be copying into the
// segment, and may have bytes there that it has not committed. While it has the segment locked
// (package leaselock) the segment is occupied. It is neither freed nor evicted nor spilled, so that
// its memory has no other user. Committed bytes there are read as ever. Once the lock is gone it
// does not come back, since the lease has ended.

// isWritten reports whether a writer without a lease may still write to a segment. The
// caller holds mu of the store and of the segment. The check is a system call that does not wait.
// It is made only for segments whose lease did not end with Release.
func (s *Store) isWritten(g *segment) bool {
	if !g.mu.left {
		return false
	}
	held, err := leaselock.Held(g.mu.region.File, g.mu.offset, g.length)
	if err != nil {
		s.log.Warn("ask for the lock of a writer that lost its lease", "path", g.mu.region.Path, "error", err)
	}
	g.mu.left, g.mu.occupied = held, held
	if held {
		s.mu.occupied[g] = struct{}{}
	} else {
		delete(s.mu.occupied, g)
	}
	return held
}

// isOccupied is isWritten for a caller that holds no lock.
func (s *Store) isOccupied(g *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return s.mu.closed || g.mu.state == segFree || s.isWritten(g)
}

// findWriters searches for the writers of segments that recovery found. Those that have
// locked theirs need no grace: FreeOccupied frees the segment once they have left.
func (s *Store) findWriters(list dead) {
	for _, g := range list {
		g.mu.Lock()
		s.isWritten(g)
		g.mu.Unlock()
	}
}

// occupiedStep bounds the segments that one call of FreeOccupied checks.
const occupiedStep = 64

// FreeOccupied checks some occupied segments for their writers again, and returns the bytes
// of memory that it freed. Segments that a writer has left and that hold committed bytes can
// be evicted and spilled from now on. It is to be called from time to time.
func (s *Store) FreeOccupied() (freed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := 0
	for g := range s.mu.occupied {
		if looked++; looked > occupiedStep || s.mu.closed {
			break
		}
		g.mu.Lock()
		written := s.isWritten(g)
		g.mu.Unlock()
		if written {
			continue
		}
		s.freeIfDead(g)
		if g.freed() {
			freed += g.length
		}
	}
	return freed
}

func (g *segment) freed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.state == segFree
}
