package turn

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
	claimers := func(v View) (first, later []bb.NodeID) {
		for _, v.Self = range nodes {
			v.Missed = 0
			claim, again := v.Turn("buf")
			if claim {
				first = append(first, v.Self)
			}
			if v.Missed = again; again > 0 {
				if again > startingIdle+2*turnEvery {
					t.Errorf("%s waits for %v", v.Self, again)
				}
				if claim, _ = v.Turn("buf"); claim {
					later = append(later, v.Self)
				}
			}
		}
		return first, later
	}
	for what, c := range map[string]struct {
		view         View
		first, later int
	}{
		"a log that nobody claimed":                {View{Members: here}, 1, 2},
		"an owner that is there":                   {View{Owner: "n1", Members: here, Serving: true}, 0, 0},
		"an owner that is suspected":               {View{Owner: "n1", Members: away, Serving: true}, 1, 1},
		"an owner that is drained":                 {View{Owner: "n1", Members: leaving, Serving: true}, 1, 1},
		"an owner that nobody knows":               {View{Owner: "n9", Members: here}, 1, 2},
		"an owner that was restarted":              {View{Owner: "n1", Members: here[:1]}, 1, 0},
		"a cluster that is all drained":            {View{Owner: "n9", Members: all(func(m *Member) { m.Leaving = true })}, 1, 2},
		"an owner that is drained with all others": {View{Owner: "n1", Members: all(func(m *Member) { m.Leaving = true }), Serving: true}, 0, 0},
		"an owner that does not answer":            {View{Owner: "n1", Members: here, Silent: silentFor, Serving: true}, 1, 1},
		"an owner that answers others, in a pause": {View{Owner: "n1", Members: here, Silent: silentFor, Serving: true, Pause: 5 * time.Second}, 0, 2},
		"an owner that answered lately":            {View{Owner: "n1", Members: here, Silent: silentFor - 1, Serving: true}, 0, 0},
		"an owner that starts":                     {View{Owner: "n1", Members: all(func(m *Member) { m.Starting = m.Node == "n1" })}, 1, 2},
		"a cluster that starts":                    {View{Owner: "n9", Members: all(func(m *Member) { m.Starting = true })}, 1, 2},
		"an owner that starts with all others":     {View{Owner: "n1", Members: all(func(m *Member) { m.Starting = true }), Serving: true}, 0, 2},
	} {
		first, later := claimers(c.view)
		if len(first) != c.first || len(later) != c.later {
			t.Errorf("%s: %v claim it at once and %v later, want %d and %d", what, first, later, c.first, c.later)
		}
	}
	first := map[bb.NodeID]bool{}
	for _, buffer := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		for _, n := range nodes {
			v := View{Self: n, Members: here}
			if claim, _ := v.Turn(buffer); claim {
				first[n] = true
			}
		}
	}
	if len(first) < 2 {
		t.Error("one daemon would own all buffers")
	}
	v := View{Self: "n2", Owner: "n1", Members: away, Missed: time.Hour}
	if claim, _ := v.Turn("buf"); !claim {
		t.Error("the last in line never claims the log")
	}
}

// Two daemons that do not reach each other, and both reach the log, own it for longer and longer.
func TestBackoff(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	members := []Member{{Node: "n1"}, {Node: "n2"}}
	backoff := map[bb.NodeID]*Backoff{"n1": {}, "n2": {}}
	owner, other := bb.NodeID("n1"), bb.NodeID("n2")
	var lasted []time.Duration
	for range 12 {
		v := View{Self: other, Owner: owner, Members: members}
		began := now
		for claim := false; !claim; now = now.Add(100 * time.Millisecond) {
			v.Silent, v.Pause = now.Sub(began), backoff[other].Pause(now)
			claim, _ = v.Turn("buf")
		}
		lasted = append(lasted, now.Sub(began))
		backoff[owner].Taken(now)
		owner, other = other, owner
	}
	if lasted[0] > 5*time.Second {
		t.Errorf("the first claim comes after %v", lasted[0])
	}
	if last := lasted[len(lasted)-1]; last < 20*time.Second || last > backoffMost+silentFor+time.Second {
		t.Errorf("owners last for %v", lasted)
	}
	for _, b := range backoff {
		if pause := b.Pause(now.Add(2 * backoffWindow)); pause != 0 {
			t.Errorf("the pause is %v after a long time", pause)
		}
	}
}
