package alloc

import (
	"fmt"
	"time"

	"forebay/bbd/admit"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Waits for memory that have no end are found and refused (see admit.Stuck). The writers of one
// session and buffer are one claim. Those of other daemons' sessions, which act for many clients,
// and of the daemon itself are not, since their memory counts as memory that may become free.

const (
	stuckAfter = 2 * time.Second        // so long nothing changes before a writer is refused
	askAfter   = 100 * time.Millisecond // time it waits before its commit is requested
	stuckEvery = 100 * time.Millisecond // how often waits are looked into
)

type claimKey struct {
	of     Claimant
	buffer Buffer
}

// claimant is a claim with its writers in the queue.
type claimant struct {
	key      claimKey
	claim    admit.Claim
	allFiles bool // its client reports how many of its files wait
}

// seen is a claim as the last check found it, and the time since which it has been so. A client
// returns its leases a moment after a file is closed, and a file that is committed is no longer the
// same claim.
type seen struct {
	claim admit.Claim
	since time.Time
}

func (s seen) next(c admit.Claim, now time.Time) seen {
	c.Due = false
	if s.claim != c {
		s = seen{c, now}
	}
	return s
}

// unstick refuses writers in the queue whose wait has no end, and has others commit.
func (r *Allocator) unstick(waiting map[uint64]*waiter, state *admit.State) {
	now := time.Now()
	if now.Sub(r.looked) < stuckEvery {
		return
	}
	r.looked = now
	all := claimants(waiting, now)
	if len(all) == 0 {
		r.claims = nil
		return
	}
	asked, claims := make([]store.Claim, len(all)), make([]admit.Claim, len(all))
	for i, c := range all {
		claims[i] = c.claim
		asked[i], claims[i].Files = c.key.of.Claim(c.key.buffer)
	}
	held, rest := r.o.Store.Claims(asked)
	before := r.claims
	r.claims = make(map[claimKey]seen, len(all))
	for i, c := range all {
		claims[i].Leased, claims[i].Open = held[i].Leased, held[i].Open
		b := state.Buffers[c.key.buffer.Spec().Name]
		claims[i].Spent = b.Capacity > 0 && b.Capacity-b.Used < admit.Unit
		claims[i].Others = max(0, b.Used-held[i].Dirty)
		r.claims[c.key] = before[c.key].next(claims[i], now)
		claims[i].Due = now.Sub(r.claims[c.key].since) >= stuckAfter
	}
	tiers := admit.Rest{Memory: rest.Memory, Spillable: state.Pool.Spillable, Disk: rest.Disk, DiskFree: state.Pool.DiskFree, Growing: rest.Growing}
	for id, verdict := range admit.Stuck(tiers, claims) {
		w := waiting[id]
		r.finish(w, grant{err: r.stuckError(w, verdict, &state.Pool)})
	}
}

// claimants returns the claims of the writers in the queue.
func claimants(waiting map[uint64]*waiter, now time.Time) []*claimant {
	var all []*claimant
	by := make(map[claimKey]*claimant)
	for id, w := range waiting {
		if w.Claimant == nil || now.Sub(w.since) < askAfter {
			continue
		}
		key := claimKey{w.Claimant, w.Buffer}
		c := by[key]
		if c == nil {
			c = &claimant{key: key}
			by[key], all = c, append(all, c)
		}
		c.claim.Request = max(c.claim.Request, id)
		c.count(w)
		c.claim.Commits = c.claim.Commits || w.Commits
	}
	return all
}

// count adds the files of a waiter. A client that reports how many of its files wait reports all of
// them, since its earlier request, which it has replaced by this one, may still be in the queue.
func (c *claimant) count(w *waiter) {
	switch {
	case w.AllFiles && !c.allFiles:
		c.claim.Waiting, c.allFiles = w.Files, true
	case w.AllFiles:
		c.claim.Waiting = min(c.claim.Waiting, w.Files)
	case !c.allFiles:
		c.claim.Waiting += w.Files
	}
}

func (r *Allocator) stuckError(w *waiter, verdict admit.Verdict, p *admit.Pool) error {
	at := address(w.Buffer)
	if verdict == admit.Commit {
		return bb.E(bb.Busy, "lease", at, "memory is full of bytes that were written and not committed").WithRemedy("commit them, and try again")
	}
	stats, spec := r.o.Store.Stats(), w.Buffer.Spec()
	if spec.Capacity > 0 && spec.Capacity-stats.Buffers[spec.Name].Dirty < admit.Unit {
		return bb.E(bb.NoSpace, "lease", at, "the files being written are larger than the buffer's capacity of "+mebibytes(spec.Capacity)+
			", and an open file is not flushed").WithRemedy("write smaller files, or make a buffer with a larger --capacity")
	}
	room, of := stats.Memory.Capacity, "memory"
	if p.DiskFree >= admit.Unit || stats.Disk.Used > 0 {
		room, of = room+stats.Disk.Capacity, "memory and disk"
	}
	return bb.E(bb.NoSpace, "lease", at, "the open files fill their whole share of "+mebibytes(room)+" of "+of+
		", and an open file is not flushed").
		WithRemedy("write smaller files or fewer at once, or give the daemon more memory (memory.size) or a disk tier (disk.dir)")
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
