// Package turn decides when a daemon claims the log of a namespace. It decides when a daemon tries, never which
// one is right. The log decides its owner, so views that differ cost a claim and no more. The package must
// never do I/O.
package turn

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"forebay/internal/bb"
)

const (
	// turnEvery is the delay after which, without a claim of those before it, the next daemon in
	// line claims a log.
	turnEvery = 500 * time.Millisecond
	lastTurn  = 8 // places in line; all that follow have one turn
	// startingIdle is the time without an append after which the owner of a log, while it starts as
	// this daemon does, counts as missing, since it may wait for the log of this daemon.
	startingIdle = 10 * time.Second
	// silentFor is the time for which the owner of a log may leave the calls of this daemon without
	// an answer, in any state by gossip, before it counts as missing.
	silentFor = 4 * time.Second
)

// Member is a daemon as gossip has it.
type Member struct {
	Node     bb.NodeID
	Away     bool // it is suspected, was declared dead, or stops
	Gone     bool // it was declared dead, or has stopped
	Starting bool // it cannot be called yet
	Leaving  bool // it is drained
}

// rank orders the daemons in line. Those that can be called and stay come first.
func (m *Member) rank() int {
	switch {
	case m.Leaving:
		return 2
	case m.Starting:
		return 1
	}
	return 0
}

// View is the input of a daemon's decision to claim a log.
type View struct {
	Self    bb.NodeID
	Serving bool          // this daemon owns the log
	Owner   bb.NodeID     // by the log; "": it was never claimed, or its owner released it
	Members []Member      // this daemon among them, unless gossip does not have it yet
	Missed  time.Duration // for how long the owner has been missing
	Silent  time.Duration // for how long it has answered no call
	Pause   time.Duration // Backoff.Pause of this daemon
}

// member returns a node's record in gossip.
func (v *View) member(node bb.NodeID) (Member, bool) {
	if i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Node == node }); i >= 0 {
		return v.Members[i], true
	}
	return Member{Node: node, Starting: node == v.Self}, false
}

// NeedsOwner reports whether the log should be claimed.
func (v *View) NeedsOwner() bool {
	if v.Owner == v.Self {
		return !v.Serving
	}
	m, known := v.member(v.Owner)
	switch {
	case v.Owner == "" || !known || m.Away || m.Starting || v.Silent >= silentFor:
		return true
	case m.Leaving:
		return slices.ContainsFunc(v.Members, func(m Member) bool { return !m.Away && m.rank() == 0 })
	}
	return false
}

// Line returns the daemons that may claim the log, in their order. The first is another one for each buffer.
func (v *View) Line(buffer string) []Member {
	var line []Member
	for _, m := range v.Members {
		if !m.Away && m.Node != v.Self && (m.Node != v.Owner || v.Silent < silentFor) {
			line = append(line, m)
		}
	}
	self, _ := v.member(v.Self) // this one is there, with any suspicion of the others
	line = append(line, self)
	slices.SortFunc(line, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(place(buffer, a.Node), place(buffer, b.Node)), cmp.Compare(a.Node, b.Node))
	})
	return line
}

// Turn decides whether this daemon claims the log of a buffer now, and if not, the time after which
// to decide again. 0 means when something has changed.
func (v *View) Turn(buffer string) (claim bool, again time.Duration) {
	if !v.NeedsOwner() {
		return false, 0
	}
	at := slices.IndexFunc(v.Line(buffer), func(m Member) bool { return m.Node == v.Self })
	after := time.Duration(min(at, lastTurn)) * turnEvery
	owner, known := v.member(v.Owner)
	if self, _ := v.member(v.Self); v.Owner != v.Self && known && !owner.Away && owner.Starting && self.Starting {
		after += startingIdle
	}
	if v.Owner != "" && v.Owner != v.Self {
		after = max(after, v.Pause)
	}
	missed := max(v.Missed, v.Silent-silentFor) // others may be answered, and the log grow by it
	return missed >= after, max(after-missed, 0)
}

// Backoff makes a daemon claim a log later that others have taken from it. Two daemons that do not
// reach each other, and both reach the log, would else own it by turns, each until the other counts
// as missing. Its methods are for one goroutine at a time.
type Backoff struct {
	taken []time.Time // when others took the log, oldest first
}

const (
	backoffFirst  = 2 * time.Second // of the pause after the second time; it doubles
	backoffMost   = 30 * time.Second
	backoffWindow = 5 * time.Minute // after which a time is dropped
)

// Taken records that another daemon has taken the log from this one, which had not released it.
func (b *Backoff) Taken(now time.Time) {
	b.taken = append(b.forget(now), now)
}

// Pause returns for how long the owner has to be missing before this daemon claims the log.
func (b *Backoff) Pause(now time.Time) time.Duration {
	n := len(b.forget(now))
	if n < 2 {
		return 0
	}
	return min(backoffFirst<<min(n-2, 10), backoffMost)
}

func (b *Backoff) forget(now time.Time) []time.Time {
	for len(b.taken) > 0 && now.Sub(b.taken[0]) > backoffWindow {
		b.taken = b.taken[1:]
	}
	return b.taken
}

func place(buffer string, node bb.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(buffer + "\x00" + string(node)))
	return h.Sum64()
}
