package shared

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"forebay/internal/bb"
)

// turnEvery is how much later the next daemon in line claims a log, if those before it do not.
const turnEvery = 500 * time.Millisecond

// Member is a daemon as gossip has it.
type Member struct {
	Node    bb.NodeID
	Away    bool // it is suspected, or was declared dead
	Leaving bool // it is drained
}

// view is the input of a daemon's decision to claim a log.
type view struct {
	self    bb.NodeID
	serving bool      // this daemon owns the log
	owner   bb.NodeID // by the log; "": it was never claimed, or its owner released it
	members []Member
	missed  time.Duration // for how long the owner has been missing
}

// needsOwner reports whether the log should be claimed.
func (v *view) needsOwner() bool {
	if v.owner == v.self {
		return !v.serving
	}
	i := slices.IndexFunc(v.members, func(m Member) bool { return m.Node == v.owner })
	return v.owner == "" || i < 0 || v.members[i].Away || v.members[i].Leaving
}

// turn decides whether this daemon claims the log of a buffer now, and if not, after how long to
// decide again; 0: when something has changed. It sets the time of a try only. The log decides
// about its owner, so views that differ cost a claim and no more. The first in line is another
// daemon for each buffer.
func (v *view) turn(buffer string) (claim bool, again time.Duration) {
	if !v.needsOwner() {
		return false, 0
	}
	var line []bb.NodeID
	for _, m := range v.members {
		if !m.Away && !m.Leaving {
			line = append(line, m.Node)
		}
	}
	slices.SortFunc(line, func(a, b bb.NodeID) int {
		return cmp.Or(cmp.Compare(place(buffer, a), place(buffer, b)), cmp.Compare(a, b))
	})
	at := slices.Index(line, v.self)
	if at < 0 {
		return false, 0
	}
	after := time.Duration(at) * turnEvery
	return v.missed >= after, max(after-v.missed, 0)
}

func place(buffer string, node bb.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(buffer + "\x00" + string(node)))
	return h.Sum64()
}
