package cluster

import (
	"slices"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// AcceptsTasks reports whether a daemon should accept tasks that any daemon may do. It accepts
// files, and has room, or no other daemon has either.
func AcceptsTasks(self gossip.Member, members []gossip.Member) bool {
	if !AcceptsFiles(self.State) {
		return false
	}
	other := func(m gossip.Member) bool {
		return m.Node != self.Node && AcceptsFiles(m.State) && Supports(&m, wire.VersionJobs) && roomy(&m)
	}
	return roomy(&self) || !slices.ContainsFunc(members, other)
}

// roomy reports whether an eighth of a daemon's memory is free, or can be freed at once.
func roomy(m *gossip.Member) bool { return m.Memory.Free >= m.Memory.Capacity/8 }

// Coordinator returns the daemon that does the work of one daemon for all, the first by name that
// is ready. Gossip may show two daemons different members for a while, and so two coordinators. "":
// there is none.
func Coordinator(members []gossip.Member) bb.NodeID {
	for _, m := range members {
		if m.State == gossip.Ready && Supports(&m, wire.VersionJobs) {
			return m.Node
		}
	}
	return ""
}
