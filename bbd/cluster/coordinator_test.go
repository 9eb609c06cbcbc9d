package cluster

import (
	"testing"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

func TestAcceptsTasks(t *testing.T) {
	t.Parallel()
	m := func(node bb.NodeID, state gossip.State, free int64) gossip.Member {
		return gossip.Member{Node: node, State: state, MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Memory: gossip.Tier{Capacity: 800, Free: free}}
	}
	older := m("b", gossip.Ready, 800)
	older.MaxVersion = wire.VersionJobs - 1
	for _, x := range []struct {
		name   string
		self   gossip.Member
		others []gossip.Member
		want   bool
	}{
		{"it has room", m("a", gossip.Ready, 100), []gossip.Member{m("b", gossip.Ready, 800)}, true},
		{"it is full, another is not", m("a", gossip.Ready, 99), []gossip.Member{m("b", gossip.Ready, 100)}, false},
		{"all are full", m("a", gossip.Ready, 99), []gossip.Member{m("b", gossip.Ready, 99)}, true},
		{"it is full, and the one with room is draining", m("a", gossip.Ready, 0), []gossip.Member{m("b", gossip.Draining, 800)}, true},
		{"it is full, and the one with room is older than jobs", m("a", gossip.Ready, 99), []gossip.Member{older}, true},
		{"it is being drained", m("a", gossip.Draining, 800), nil, false},
		{"it starts", m("a", gossip.Starting, 800), nil, false},
	} {
		if got := AcceptsTasks(x.self, append(x.others, x.self)); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}

// TestCoordinator: the first daemon by name that is ready and supports jobs coordinates.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	m := func(node bb.NodeID, state gossip.State, newest uint32) gossip.Member {
		return gossip.Member{Node: node, State: state, MinVersion: wire.MinVersion, MaxVersion: newest}
	}
	for _, x := range []struct {
		name    string
		members []gossip.Member
		want    bb.NodeID
	}{
		{"the first", []gossip.Member{m("a", gossip.Ready, wire.MaxVersion), m("b", gossip.Ready, wire.MaxVersion)}, "a"},
		{"the first starts, the second is drained", []gossip.Member{
			m("a", gossip.Starting, wire.MaxVersion), m("b", gossip.Draining, wire.MaxVersion), m("c", gossip.Ready, wire.MaxVersion),
		}, "c"},
		{"the first is of an older release", []gossip.Member{m("a", gossip.Ready, wire.VersionJobs-1), m("b", gossip.Ready, wire.MaxVersion)}, "b"},
		{"none is ready", []gossip.Member{m("a", gossip.Suspect, wire.MaxVersion)}, ""},
	} {
		if got := Coordinator(x.members); got != x.want {
			t.Errorf("%s: %q", x.name, got)
		}
	}
}
