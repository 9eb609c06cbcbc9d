package lease

import (
	"sync/atomic"
	"time"
)

// Counts count the leases that a daemon has granted as an owner, also as one of before. It is safe for concurrent use.
type Counts struct {
	granted, revoked, silent atomic.Uint64
	waited                   atomic.Int64 // nanoseconds
}

// Stats are counts at one moment.
type Stats struct {
	Granted uint64        // look-ups and listings that were answered with a lease
	Held    int           // leases now, each of one reader on one directory
	Revoked uint64        // leases that a reader has dropped on request, before a change
	Silent  uint64        // revocations that a reader did not answer, so that the change waited for the end of its leases
	Waited  time.Duration // that these lasted, in sum
}

// Stats returns the counts, without the leases of now.
func (c *Counts) Stats() Stats {
	return Stats{Granted: c.granted.Load(), Revoked: c.revoked.Load(), Silent: c.silent.Load(), Waited: time.Duration(c.waited.Load())}
}

// ended counts a revocation that ended: dropped by the reader, or by the end of the leases.
func (c *Counts) ended(dropped bool, took time.Duration) {
	if dropped {
		c.revoked.Add(1)
		return
	}
	c.silent.Add(1)
	c.waited.Add(int64(took))
}

// Held returns how many leases there are, each of one reader on one directory.
func (g *Grants) Held() (n int) {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, s := range g.sessions {
		if !now.After(s.end) {
			n += len(s.dirs)
		}
	}
	return n
}
