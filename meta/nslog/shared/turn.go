package shared

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"forebay/internal/bb"
)

const (
	// turnEvery is how much later the next daemon in line claims a log, if those before it do not.
	turnEvery = 500 * time.Millisecond
	lastTurn  = 8 // places in line: all that follow have one turn
	// startingIdle is for how long the owner of a log, which starts as this daemon does, has to append nothing
	// before it counts as missing, since it may wait for the log of this daemon.
	startingIdle = 10 * time.Second
	// silentFor is for how long the owner of a log may leave the calls of this daemon without an answer, whatever
	// gossip says of it, before it counts as missing.
	silentFor = 4 * time.Second
)

// Member is a daemon as gossip has it.
type Member struct {
	Node     bb.NodeID
	Away     bool // it is suspected, was declared dead, or stops
	Starting bool // it cannot be called yet
	Leaving  bool // it is drained
}

// rank orders those in line: daemons that can be called and stay come first.
func (m *Member) rank() int {
	switch {
	case m.Leaving:
		return 2
	case m.Starting:
		return 1
	}
	return 0
}

// view is the input of a daemon's decision to claim a log.
type view struct {
	self    bb.NodeID
	serving bool          // this daemon owns the log
	owner   bb.NodeID     // by the log; "": it was never claimed, or its owner released it
	members []Member      // this daemon among them, unless gossip does not have it yet
	missed  time.Duration // for how long the owner has been missing
	silent  time.Duration // for how long it has answered no call
}

// member returns what gossip has of a node.
func (v *view) member(node bb.NodeID) (Member, bool) {
	if i := slices.IndexFunc(v.members, func(m Member) bool { return m.Node == node }); i >= 0 {
		return v.members[i], true
	}
	return Member{Node: node, Starting: node == v.self}, false
}

// needsOwner reports whether the log should be claimed.
func (v *view) needsOwner() bool {
	if v.owner == v.self {
		return !v.serving
	}
	m, known := v.member(v.owner)
	switch {
	case v.owner == "" || !known || m.Away || m.Starting || v.silent >= silentFor:
		return true
	case m.Leaving:
		return slices.ContainsFunc(v.members, func(m Member) bool { return !m.Away && m.rank() == 0 })
	}
	return false
}

// line returns the daemons that may claim the log, in their order. The first is another one for each buffer.
func (v *view) line(buffer string) []Member {
	var line []Member
	for _, m := range v.members {
		if !m.Away && m.Node != v.self && (m.Node != v.owner || v.silent < silentFor) {
			line = append(line, m)
		}
	}
	self, _ := v.member(v.self) // this one is there, whatever the others suspect
	line = append(line, self)
	slices.SortFunc(line, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(place(buffer, a.Node), place(buffer, b.Node)), cmp.Compare(a.Node, b.Node))
	})
	return line
}

// turn decides whether this daemon claims the log of a buffer now, and if not, after how long to
// decide again. 0 means when something has changed. It is about when somebody tries. The log
// decides who owns it, so that views that differ cost a claim and no more.
func (v *view) turn(buffer string) (claim bool, again time.Duration) {
	if !v.needsOwner() {
		return false, 0
	}
	at := slices.IndexFunc(v.line(buffer), func(m Member) bool { return m.Node == v.self })
	after := time.Duration(min(at, lastTurn)) * turnEvery
	owner, known := v.member(v.owner)
	if self, _ := v.member(v.self); v.owner != v.self && known && !owner.Away && owner.Starting && self.Starting {
		after += startingIdle
	}
	missed := max(v.missed, v.silent-silentFor) // others may be answered, and the log grow by it
	return missed >= after, max(after-missed, 0)
}

func place(buffer string, node bb.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(buffer + "\x00" + string(node)))
	return h.Sum64()
}
