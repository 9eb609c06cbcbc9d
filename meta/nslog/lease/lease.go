// Package lease has the leases under which a daemon answers look-ups and listings from its memory, while another one
// owns the namespace's log. Grants is the owner's part, Cache that of a reader. It must never depend on the log, nor on the
// way in which a message travels.
//
//	reader                           owner
//	  │── look-up, wants a lease ─────▶│ notes that the reader has leases on the directory, then reads the entry
//	  │◀── entry, session, term ───────│
//	  │  answers from memory           │
//	  │                                │◀── a change in the directory
//	  │◀── revoke ─────────────────────│    waits
//	  │  drops the directory           │
//	  │── done ───────────────────────▶│    is appended to the log, applied and answered
//
// # Rules
//
// A reader answers from an entry only while no owner can have applied a change of that entry:
//
//   - The owner notes a lease before it reads the entry. A change is appended when no daemon has leases on its
//     directories, and none is granted from that check until the change is applied (Grants.Change, Grants.Done).
//   - A reader that does not acknowledge a revocation is waited for until its leases are over. Its term began at the
//     reader when that sent the look-up, and at the owner later, when it answered. The owner waits a sixteenth
//     longer, for clocks of different rates.
//   - A term ends at the latest with the owner's own lease on the log, which the next owner waits out. So a lease
//     never outlives its owner's ownership, and the next owner need not know of it. An owner that releases the log
//     revokes all leases first.
//   - An answer that a revocation has overtaken is not kept (Ticket).
//
// # Sessions
//
// All leases of a reader are one session, with one end, and each grant extends all of them. So a reader in use needs
// one message in a term, regardless of how much it has in memory. If the owner has to let a session end, because the
// reader does not answer, the next one has another number, and the reader drops all that it had. A session that is
// over, and was not ended, goes on with the next grant, since nothing has changed in its directories.
//
// # Absent names
//
// An answer that there is no such name is kept as an entry is. A change that makes the name is a change in its directory.
//
// # Listings
//
// A listing is kept from its first name on, as far as it was requested. In that part, the reader knows all names, and
// all that are absent. The removal of a directory changes the one above it, and ends the leases on both, since a
// listing of it is refused from then on.
//
// # Directories that change
//
// After a revocation, a directory is not leased for a pause, which grows while leases on it do not last (Pauses). So
// changes in a directory that is both changed and read all the time wait for a revocation once in a while.
package lease

import (
	"time"

	"forebay/internal/bb"
)

// Reader is a daemon that has leases. After a restart it is another one.
type Reader struct {
	Node bb.NodeID
	Life [16]byte
}

// Grant is what a reader gets besides the entry. With a term of 0 it is no lease.
type Grant struct {
	Session uint64
	Term    time.Duration // of all leases of the session, from the moment at which the look-up was sent
	Listing bool          // a listing may be kept, too. Owners of older releases do not revoke it when the directory is removed.
}

// Pauses are the times for which a directory is not leased after a revocation.
type Pauses struct {
	First   time.Duration // after the first revocation; it doubles with each one that follows soon
	Longest time.Duration
}

// calm is how many times as long as the pause before it a lease lasts on a directory that changes seldom.
const calm = 10

// after returns the pause after the revocation of a row.
func (p Pauses) after(row int) time.Duration {
	return min(p.First<<min(row, 20), max(p.First, p.Longest))
}

// next returns the place in a row of a revocation, by that of the one before, and by how long leases on the directory
// had lasted. The first of a row is 0.
func (p Pauses) next(row int, lasted time.Duration) int {
	if lasted >= calm*p.after(row) {
		return 0
	}
	return row + 1
}
