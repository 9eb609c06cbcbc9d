package share

import (
	"math/rand/v2"
	"testing"
)

const (
	alice, bob, carol = 1001, 1002, 1003
)

func TestMayTake(t *testing.T) {
	has := func(user uint32, n int) Holding { return Holding{User: user, Regions: n} }
	waits := func(user uint32, n int) Holding { return Holding{User: user, Regions: n, Waits: true} }
	for _, c := range []struct {
		name  string
		r     Regions
		user  uint32
		fixed bool
		want  bool
	}{
		{"two regions are not divided", Regions{2, 1, []Holding{has(alice, 1)}}, alice, true, true},
		{"alone up to the reserve", Regions{4, 2, []Holding{has(alice, 2)}}, alice, true, true},
		{"not the newcomer's", Regions{4, 1, []Holding{has(alice, 3)}}, alice, false, false},
		{"a newcomer's first", Regions{4, 1, []Holding{has(alice, 3)}}, bob, true, true},
		{"root's is kept of eight", Regions{8, 2, []Holding{has(alice, 6)}}, alice, false, false},
		{"root's is not a newcomer's", Regions{8, 1, []Holding{has(alice, 6), has(bob, 1)}}, carol, false, false},
		{"root's own", Regions{8, 1, []Holding{has(alice, 6), has(bob, 1)}}, root, false, true},
		{"root has got it", Regions{8, 1, []Holding{has(alice, 6), has(root, 1)}}, carol, false, true},
		{"borrow while nobody waits", Regions{10, 4, []Holding{has(alice, 5), has(bob, 1)}}, alice, false, true},
		{"lend no more while one below waits", Regions{10, 4, []Holding{has(alice, 5), waits(bob, 1)}}, alice, false, false},
		{"one at the share does not count", Regions{10, 4, []Holding{has(alice, 4), waits(bob, 4)}}, alice, false, true},
		{"what cannot be moved is not lent to", Regions{10, 4, []Holding{has(alice, 4), has(bob, 1)}}, alice, true, false},
		{"what cannot be moved has its share", Regions{10, 4, []Holding{has(alice, 3), has(bob, 1)}}, alice, true, true},
		{"what cannot be moved, with a newcomer in the line", Regions{10, 4, []Holding{has(alice, 4), waits(bob, 0)}}, alice, true, false},
		{"what cannot be moved, alone", Regions{10, 4, []Holding{has(alice, 5), has(bob, 0)}}, alice, true, true},
	} {
		if got := c.r.MayTake(Demand{c.user, c.fixed}); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestVacate(t *testing.T) {
	r := Regions{Total: 10, Free: 1, Users: []Holding{{alice, 7, false}, {bob, 1, true}, {carol, 1, false}}}
	for _, c := range []struct {
		name   string
		user   uint32
		pieces []Piece
		want   int
	}{
		{"the fewest bytes of the borrower", bob, []Piece{{alice, 8, 0, false, 1}, {alice, 4, 0, false, 2}, {carol, 0, 0, false, 0}}, 1},
		{"the longest unused", bob, []Piece{{alice, 0, 0, false, 2}, {alice, 0, 0, false, 1}}, 1},
		{"rather none that is held", bob, []Piece{{alice, 0, 1, false, 2}, {alice, 9, 0, false, 1}}, 1},
		{"none that cannot be emptied", bob, []Piece{{alice, 0, 0, true, 2}, {carol, 1, 0, false, 1}}, -1},
		{"idle memory of one with a share", bob, []Piece{{alice, 0, 0, true, 2}, {carol, 0, 0, false, 1}}, 1},
		{"none for a borrower while one below waits", alice, []Piece{{carol, 0, 0, false, 0}}, -1},
		{"anybody's for a newcomer", 1004, []Piece{{alice, 1, 0, true, 0}, {carol, 5, 0, false, 0}}, 1},
	} {
		if got := r.Vacate(Demand{User: c.user}, c.pieces); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// world is a node of regions whose users act at random.
type world struct {
	t     *testing.T
	r     *rand.Rand
	total int
	used  []Piece
	fixed map[uint32]bool // users whose bytes can be moved nowhere
	line  map[uint32]int  // rounds that a user has been in the line below the share, beside borrowed regions
}

func (w *world) regions() Regions {
	held := map[uint32]int{}
	for _, p := range w.used {
		held[p.User]++
	}
	r := Regions{Total: w.total, Free: w.total - len(w.used)}
	for u := range uint32(6) {
		if _, waits := w.line[u]; waits || held[u] > 0 {
			r.Users = append(r.Users, Holding{u, held[u], waits})
		}
	}
	return r
}

// serve lets a waiting user take a region, or has one emptied for the user.
func (w *world) serve(user uint32) {
	r := w.regions()
	if r.MayTake(Demand{user, w.fixed[user]}) {
		w.used = append(w.used, Piece{User: user, Move: w.r.Int64N(9), Held: w.r.Int64N(2), Fixed: w.fixed[user]})
		delete(w.line, user)
		return
	}
	i := r.Vacate(Demand{user, w.fixed[user]}, w.used)
	if i >= 0 {
		p := w.used[i]
		if p.Fixed || p.User == user {
			w.t.Fatalf("%+v is emptied for %d", p, user)
		}
		if r.of(p.User).Regions <= r.Share(user) && p.Move > 0 && r.of(user).Regions > 0 {
			w.t.Fatalf("%+v within its user's share is emptied for %d", p, user)
		}
		w.used = append(w.used[:i], w.used[i+1:]...)
		return
	}
	if r.Below(user) {
		for _, p := range w.used {
			if !p.Fixed && r.of(p.User).Regions > r.Share(user) {
				w.t.Fatalf("%d is below the share and waits, while %+v is borrowed: %+v", user, p, r)
			}
		}
	}
}

// TestNobodyBelowTheShareWaitsForEver: with any behaviour of users, a user below the share waits a
// bounded number of rounds while borrowers have bytes that can be moved, and bytes that cannot be
// moved never fill the reserve.
func TestNobodyBelowTheShareWaitsForEver(t *testing.T) {
	for seed := range uint64(500) {
		w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), fixed: map[uint32]bool{}, line: map[uint32]int{}}
		w.total = 3 + w.r.IntN(14)
		for u := range uint32(6) {
			w.fixed[u] = w.r.IntN(3) == 0
		}
		for range 200 {
			if u := uint32(w.r.IntN(6)); w.r.IntN(2) == 0 {
				w.line[u] = max(w.line[u], 0)
			}
			if n := len(w.used); n > 0 && w.r.IntN(6) == 0 { // removed by its user
				i := w.r.IntN(n)
				w.used = append(w.used[:i], w.used[i+1:]...)
			}
			for u := range uint32(6) {
				if _, waits := w.line[u]; waits {
					w.serve(u)
				}
			}
			w.check()
		}
	}
}

func (w *world) check() {
	r := w.regions()
	if r.Free < 0 {
		w.t.Fatalf("more regions are used than there are: %+v", r)
	}
	if len(r.Users) == 1 && r.Users[0].User != root && r.Free < r.Reserve() && r.Users[0].Regions > 1 {
		w.t.Fatalf("a user alone has taken the reserve: %+v", r)
	}
	for u := range w.line {
		movable := false
		for _, p := range w.used {
			movable = movable || !p.Fixed && r.of(p.User).Regions > r.Share(u)
		}
		if !movable || !r.Below(u) {
			w.line[u] = 0
			continue
		}
		if w.line[u]++; w.line[u] > 2*w.total {
			w.t.Fatalf("%d has waited for %d rounds below the share: %+v", u, w.line[u], r)
		}
	}
}
