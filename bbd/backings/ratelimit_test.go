package backings

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"forebay/internal/bb"
	"forebay/meta/gossip"
)

func TestFairShare(t *testing.T) {
	t.Parallel()
	m := func(node bb.NodeID, state gossip.State, dirty int64) gossip.Member {
		return gossip.Member{Node: node, State: state, Memory: gossip.Tier{Dirty: dirty}}
	}
	four := []gossip.Member{m("a", gossip.Ready, 1), m("b", gossip.Ready, 1), m("c", gossip.Ready, 0), m("d", gossip.Suspect, 0)}
	for _, x := range []struct {
		name    string
		busy    time.Duration
		members []gossip.Member
		want    int64
	}{
		{"it is alone", time.Hour, nil, 1000},
		{"it is alone and idle", 0, nil, 1000},
		{"two of four flush, for long", time.Hour, four, 500},
		{"it has just begun", time.Second, four, 250},
		{"it has nothing to flush", 0, four, 250},
		{"who is dead uses nothing", time.Hour, append(four, m("e", gossip.Dead, 9), m("f", gossip.Left, 9)), 500},
		{"who leaves flushes still", time.Hour, append(four, m("e", gossip.Leaving, 9)), 333},
		{"a disk is dirty, too", time.Hour, []gossip.Member{{Node: "b", State: gossip.Ready, Disk: gossip.Tier{Dirty: 1}}}, 500},
	} {
		if got := fairShare(1000, "a", x.busy, x.members); got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
	if got := fairShare(3, "a", 0, append(four, make([]gossip.Member, 9)...)); got < 1 {
		t.Errorf("a share of %d would never end", got)
	}
}

// TestShareHolds has daemons write as fast as they may while some begin and end, each with an idea
// of the others that is a second old. Together they keep to the limit, and use most of it.
func TestShareHolds(t *testing.T) {
	t.Parallel()
	const (
		limit   = 100 << 20
		daemons = 8
		chunk   = 64 << 10
	)
	start := time.Unix(1e9, 0)
	// When each has something to flush, in seconds.
	from := [daemons]int{0, 0, 0, 0, 20, 20, 40, 40}
	to := [daemons]int{60, 60, 30, 30, 60, 60, 60, 60}
	members := func(second int) (all []gossip.Member) {
		for i := range daemons {
			m := gossip.Member{Node: bb.NodeID(fmt.Sprint(i)), State: gossip.Ready}
			if second >= from[i] && second < to[i] {
				m.Memory.Dirty = 1
			}
			all = append(all, m)
		}
		return all
	}

	var bytes [60]int64
	for i := range daemons {
		l := clusterLimiter(limit)
		for second := from[i]; second < to[i]; second++ {
			now := start.Add(time.Duration(second) * time.Second)
			busy := time.Duration(second-from[i]) * time.Second
			l.SetLimitAt(now, rate.Limit(fairShare(limit, bb.NodeID(fmt.Sprint(i)), busy, members(second-1))))
			for tick := range 1000 {
				for l.AllowN(now.Add(time.Duration(tick)*time.Millisecond), chunk) {
					bytes[second] += chunk
				}
			}
		}
	}

	var total int64
	for second, n := range bytes {
		total += n
		moment := from[4] == second || from[6] == second // others have no news yet
		if n > limit*13/10 && !moment || n > 2*limit {
			t.Errorf("second %d: %d bytes, the limit is %d", second, n, limit)
		}
	}
	if total > 60*limit*11/10 || total < 60*limit*6/10 {
		t.Errorf("%d bytes in a minute, of %d", total, int64(60*limit))
	}
}
