package bbd

import (
	"fmt"
	"time"

	"forebay/bbd/admit"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Waits for room that have no end are found and refused: see admit.Stuck. The writers of one session
// and buffer are one claim. Those of other daemons' sessions, which act for many clients, and of the
// daemon itself are not: what they hold counts as what may become free.

const (
	stuckAfter = 2 * time.Second        // so long nothing changes before a writer is refused
	askAfter   = 100 * time.Millisecond // so long it waits before it is asked to commit
	stuckEvery = 100 * time.Millisecond // how often waits are looked into
)

type claimKey struct {
	session *rpc.Session
	buffer  *buffer
}

// claimant is a claim with its writers in the line.
type claimant struct {
	key   claimKey
	claim admit.Claim
	said  bool // its client says how many of its files wait
}

// seen is a claim as it was last looked at, and since when it has been so: a client returns its leases a
// moment after a file is closed, and a file that is committed is no longer the same claim.
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

// unstick refuses writers in the line whose wait has no end, and has others commit.
func (r *room) unstick(waiting map[uint64]*waiter, state *admit.State) {
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
		asked[i] = c.key.holds()
	}
	held, rest := r.d.store.Claims(asked)
	before := r.claims
	r.claims = make(map[claimKey]seen, len(all))
	for i, c := range all {
		claims[i] = c.claim
		claims[i].Files = writes(c.key.session, c.key.buffer)
		claims[i].Leased, claims[i].Open = held[i].Leased, held[i].Open
		b := state.Buffers[c.key.buffer.name]
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

// claimants returns the claims of the writers in the line.
func claimants(waiting map[uint64]*waiter, now time.Time) []*claimant {
	var all []*claimant
	by := make(map[claimKey]*claimant)
	for id, w := range waiting {
		if w.session == nil || w.session.Peer() != "" || now.Sub(w.since) < askAfter {
			continue
		}
		key := claimKey{w.session, w.buffer}
		c := by[key]
		if c == nil {
			c = &claimant{key: key}
			by[key], all = c, append(all, c)
		}
		c.claim.Request = max(c.claim.Request, id)
		c.count(w)
		c.claim.Commits = c.claim.Commits || w.commits
	}
	return all
}

// count adds the files of a waiter. A client that says how many of its files wait says it of all: its
// earlier request, which it has replaced by this one, may be in the line still.
func (c *claimant) count(w *waiter) {
	switch {
	case w.said && !c.said:
		c.claim.Waiting, c.said = w.files, true
	case w.said:
		c.claim.Waiting = min(c.claim.Waiting, w.files)
	case !c.said:
		c.claim.Waiting += w.files
	}
}

// holds names what a session has of a buffer: its leases, and the files that it has open for writing.
func (k claimKey) holds() store.Claim {
	var c store.Claim
	k.session.Each(leases, func(_ uint64, r rpc.Resource) {
		if l := r.(*heldLease); l.buffer.Load() == k.buffer {
			c.Leases = append(c.Leases, l.id)
		}
	})
	for _, f := range k.buffer.open.all() {
		f.mu.Lock()
		if f.clients[k.session] > 0 && f.writers == f.clients[k.session] {
			c.Files = append(c.Files, f.file)
		}
		f.mu.Unlock()
	}
	return c
}

// writes returns the number of files of a buffer that a session has open for writing.
func writes(s *rpc.Session, b *buffer) (n int) {
	s.Each(handles, func(_ uint64, r rpc.Resource) {
		if r.(*handle).writes == b.name {
			n++
		}
	})
	return n
}

func (r *room) stuckError(w *waiter, verdict admit.Verdict, p *admit.Pool) error {
	at := w.buffer.address("")
	if verdict == admit.Commit {
		return bb.E(bb.Busy, "lease", at, "memory is full of what is written and not committed").WithRemedy("commit it, and ask again")
	}
	stats, spec := r.d.store.Stats(), w.buffer.spec()
	if spec.Capacity > 0 && spec.Capacity-stats.Buffers[spec.Name].Dirty < admit.Unit {
		return bb.E(bb.NoSpace, "lease", at, "the files being written are larger than the buffer's capacity of "+mebibytes(spec.Capacity)+
			", and an open file is not flushed").WithRemedy("write smaller files, or make a buffer with a larger --capacity")
	}
	room, of := stats.Memory.Capacity, "memory"
	if p.DiskFree >= admit.Unit || stats.Disk.Used > 0 {
		room, of = room+stats.Disk.Capacity, "memory and disk"
	}
	return bb.E(bb.NoSpace, "lease", at, "the files being written fill all that they can have of "+mebibytes(room)+" of "+of+
		", and an open file is not flushed").
		WithRemedy("write smaller files or fewer at once, or give the daemon more memory (memory.size) or a disk tier (disk.dir)")
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
