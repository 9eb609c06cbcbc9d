package share

import "slices"

// Regions is the memory of a node as it is divided among users. A region belongs to one user at a
// time, so all figures are whole regions, of any size.
//
//	│◀─────────────────────────────── Total ───────────────────────────────▶│
//	├──────────────────────────┬──────────────────────────┬────────┬────────┤
//	│ share of a               │ share of b               │ new-   │ root   │
//	│                          │        borrowed by a ──▶ │ comer  │        │
//	└──────────────────────────┴──────────────────────────┴────────┴────────┘
//
// One region stays free for a user without any, and from rootFrom regions on one for root. The rest
// is divided by the number of active users: those with a region, or in the line for one. A user
// borrows beyond the share as long as no user below it is in the line, and as long as the bytes
// could be moved out again. Bytes that can neither be flushed nor spilled stay within the share. An
// owner gets borrowed memory back by Vacate, one region at a time.
type Regions struct {
	Total int
	Free  int // without any bytes. The last user does not count
	Users []Holding
}

// Holding is one user's part of the regions.
type Holding struct {
	User    uint32
	Regions int  // with bytes of the user's
	Waits   bool // in the line for memory
}

// Piece is a region with bytes, as input of Vacate.
type Piece struct {
	User  uint32
	Move  int64 // bytes to flush or to spill before the region is empty; 0: eviction does
	Held  int64 // bytes that writers or readers hold now
	Fixed bool  // some bytes can be moved nowhere, so the region cannot be emptied
	Use   int64 // when it was last used, on any clock
}

const (
	dividedFrom = 3 // fewer regions are not divided, since a share of one region each has no reserve
	rootFrom    = 8 // with fewer, a region of root's own would be too large a part
	root        = 0
)

// Divided reports whether there are enough regions for shares.
func (r *Regions) Divided() bool { return r.Total >= dividedFrom }

func (r *Regions) of(user uint32) Holding {
	if i := slices.IndexFunc(r.Users, func(h Holding) bool { return h.User == user }); i >= 0 {
		return r.Users[i]
	}
	return Holding{User: user}
}

// Reserve returns how many regions have to stay free at least: one for a newcomer, one for root.
func (r *Regions) Reserve() int {
	if !r.Divided() {
		return 0
	}
	return 1 + r.forRoot()
}

// forRoot is root's reserve, until root makes use of it.
func (r *Regions) forRoot() int {
	if r.Total < rootFrom || r.of(root).Regions > 0 {
		return 0
	}
	return 1
}

// Share returns the regions that are guaranteed to each active user, if user is one of them.
func (r *Regions) Share(user uint32) int {
	active := 1
	for _, h := range r.Users {
		if h.User != user && (h.Regions > 0 || h.Waits) {
			active++
		}
	}
	return max(1, (r.Total-r.Reserve())/active)
}

// Below reports whether a user has less than the share.
func (r *Regions) Below(user uint32) bool { return r.of(user).Regions < r.Share(user) }

// Demand is a user's demand for a region.
type Demand struct {
	User  uint32
	Fixed bool // no other place is there for the bytes that are to lie in it
}

// MayTake reports whether a user may take a free region.
func (r *Regions) MayTake(d Demand) bool {
	if !r.Divided() {
		return true
	}
	h, kept := r.of(d.User), 0
	if h.Regions > 0 {
		kept++ // for a newcomer
	}
	if d.User != root {
		kept += r.forRoot()
	}
	return r.Free > kept && (r.Below(d.User) || r.mayBorrow(d))
}

// mayBorrow reports whether a user may have more than the share.
func (r *Regions) mayBorrow(d Demand) bool {
	return !slices.ContainsFunc(r.Users, func(h Holding) bool {
		return h.User != d.User && (d.Fixed && h.Regions > 0 || h.Waits && (d.Fixed || r.Below(h.User)))
	})
}

// Vacate returns the index of the region to empty for a user in the line, or -1. Below the share it is
// the cheapest of the users with more than theirs. A user without any region gets one even where every
// user has a share at most, as there are more users than regions then. Others get memory that its user
// has left idle. It has to be clean.
func (r *Regions) Vacate(d Demand, pieces []Piece) int {
	best := func(may func(*Piece) bool) int {
		best := -1
		for i := range pieces {
			p := &pieces[i]
			if p.User != d.User && !p.Fixed && may(p) && (best < 0 || p.cheaper(&pieces[best])) {
				best = i
			}
		}
		return best
	}
	h := r.of(d.User)
	if r.Below(d.User) {
		if i := best(func(p *Piece) bool { return r.of(p.User).Regions > r.Share(d.User) }); i >= 0 {
			return i
		}
		if h.Regions == 0 {
			return best(func(*Piece) bool { return true })
		}
	}
	if !r.mayBorrow(d) {
		return -1
	}
	return best(func(p *Piece) bool { return p.Move == 0 && p.Held == 0 && !r.of(p.User).Waits })
}

// cheaper reports whether p is emptied sooner than q. No writer or reader holds bytes of it, then the fewest
// bytes to move, then the longest unused.
func (p *Piece) cheaper(q *Piece) bool {
	switch {
	case p.Held != q.Held:
		return p.Held < q.Held
	case p.Move != q.Move:
		return p.Move < q.Move
	}
	return p.Use < q.Use
}
