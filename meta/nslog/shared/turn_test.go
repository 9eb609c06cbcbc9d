package shared

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	nodes := []bb.NodeID{"n1", "n2", "n3"}
	all := func(change func(m *Member)) []Member {
		var members []Member
		for _, n := range nodes {
			m := Member{Node: n}
			change(&m)
			members = append(members, m)
		}
		return members
	}
	here := all(func(*Member) {})
	away := all(func(m *Member) { m.Away = m.Node == "n1" })
	leaving := all(func(m *Member) { m.Leaving = m.Node == "n1" })
	// claimers returns the daemons that claim the log at once, and after the turn of all.
	claimers := func(v view) (first, later []bb.NodeID) {
		for _, v.self = range nodes {
			v.missed = 0
			claim, again := v.turn("buf")
			if claim {
				first = append(first, v.self)
			}
			if v.missed = again; again > 0 {
				if again > startingIdle+2*turnEvery {
					t.Errorf("%s waits for %v", v.self, again)
				}
				if claim, _ = v.turn("buf"); claim {
					later = append(later, v.self)
				}
			}
		}
		return first, later
	}
	for what, c := range map[string]struct {
		view         view
		first, later int
	}{
		"a log that nobody claimed":                {view{members: here}, 1, 2},
		"an owner that is there":                   {view{owner: "n1", members: here, serving: true}, 0, 0},
		"an owner that is suspected":               {view{owner: "n1", members: away, serving: true}, 1, 1},
		"an owner that is drained":                 {view{owner: "n1", members: leaving, serving: true}, 1, 1},
		"an owner that nobody knows":               {view{owner: "n9", members: here}, 1, 2},
		"an owner that was restarted":              {view{owner: "n1", members: here[:1]}, 1, 0},
		"a cluster that is all drained":            {view{owner: "n9", members: all(func(m *Member) { m.Leaving = true })}, 1, 2},
		"an owner that is drained with all others": {view{owner: "n1", members: all(func(m *Member) { m.Leaving = true }), serving: true}, 0, 0},
		"an owner that does not answer":            {view{owner: "n1", members: here, silent: silentFor, serving: true}, 1, 1},
		"an owner that answered lately":            {view{owner: "n1", members: here, silent: silentFor - 1, serving: true}, 0, 0},
		"an owner that starts":                     {view{owner: "n1", members: all(func(m *Member) { m.Starting = m.Node == "n1" })}, 1, 2},
		"a cluster that starts":                    {view{owner: "n9", members: all(func(m *Member) { m.Starting = true })}, 1, 2},
		"an owner that starts with all others":     {view{owner: "n1", members: all(func(m *Member) { m.Starting = true }), serving: true}, 0, 2},
	} {
		first, later := claimers(c.view)
		if len(first) != c.first || len(later) != c.later {
			t.Errorf("%s: %v claim it at once and %v later, want %d and %d", what, first, later, c.first, c.later)
		}
	}
	first := map[bb.NodeID]bool{}
	for _, buffer := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		for _, n := range nodes {
			v := view{self: n, members: here}
			if claim, _ := v.turn(buffer); claim {
				first[n] = true
			}
		}
	}
	if len(first) < 2 {
		t.Error("one daemon would own all buffers")
	}
	v := view{self: "n2", owner: "n1", members: away, missed: time.Hour}
	if claim, _ := v.turn("buf"); !claim {
		t.Error("the last in line never claims the log")
	}
}
