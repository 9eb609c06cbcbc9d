package cluster

import (
	"context"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// While a cluster is being upgraded, its daemons have different versions (internal/wire,
// version.go). The messages between two of them depend on their session. Work that needs all of
// them is done as the oldest member can: jobs, which tasks of an older member would never end, and
// buffers with second copies, of which it would keep one. That is decided anew each time, by the
// gossip of that time. There is no vote, and no switch to throw after the last upgrade.
//
// A daemon that has no version in common with another one gets no request, and requests that would
// need it fail with an error that names the daemon to upgrade. The earlier of the two continues. A
// daemon does not begin to serve, or to change anything, as long as one without a common version
// serves.

// versions are a member's protocol versions.
func versions(m *gossip.Member) wire.Versions {
	return wire.Versions{Min: m.MinVersion, Max: m.MaxVersion}
}

// Compatible reports whether this release and a member have a version in common.
func Compatible(m *gossip.Member) bool {
	_, common := wire.Own().Common(versions(m))
	return common
}

// Reachable reports whether it is worth sending requests to a member.
func Reachable(m *gossip.Member) bool { return Serving(m.State) && Compatible(m) }

// Supports reports whether a member answers and supports a version.
func Supports(m *gossip.Member, version uint32) bool {
	return Reachable(m) && m.MaxVersion >= version
}

// AllSupport is nil if all daemons of the cluster support the version that something came with,
// else an error of kind unsupported that names one which does not.
func (c *Cluster) AllSupport(what string, since uint32) error {
	if wire.MaxVersion < since {
		return wire.Lacks(what, since, c.side().Name, wire.MaxVersion)
	}
	for _, m := range c.members.Members() {
		if Reachable(&m) && m.MaxVersion < since {
			return wire.Lacks(what, since, nameOf(&m), m.MaxVersion)
		}
	}
	return nil
}

// nameOf is a member, for errors.
func nameOf(m *gossip.Member) string { return m.Server + " of node " + string(m.Node) }

// side is this daemon, for errors about versions.
func (c *Cluster) side() wire.Side {
	return Side(c.o.Version, c.o.Node)
}

// Side is a daemon of this release, for errors about versions.
func Side(version string, node bb.NodeID) wire.Side {
	return wire.Side{Name: "bbd " + version + " of node " + string(node), Versions: wire.Own()}
}

// Refusal returns why this daemon does not work with a member, or nil if it does.
func (c *Cluster) Refusal(m *gossip.Member) *bb.Error {
	switch {
	case m.Node == c.o.Node:
		return nil
	case m.State == gossip.Unknown:
		return bb.E(bb.Unsupported, "reach", "", "node "+string(m.Node)+" uses a gossip format that this release, "+c.side().Name+", cannot read").
			WithRemedy("upgrade " + c.side().Name)
	case Compatible(m):
		return nil
	}
	e := wire.NoCommon("reach", "", wire.Side{Name: nameOf(m), Versions: versions(m)}, c.side())
	e.Node = m.Node
	return e
}

// strangerLook is how often a daemon that waits checks again whether it still has to.
const strangerLook = 200 * time.Millisecond

// WaitForCompatible waits until no daemon without a common version serves. It calls why with the
// reason whenever it checks and has to wait, and with nil at its end.
func (c *Cluster) WaitForCompatible(ctx context.Context, why func(*bb.Error)) error {
	if c == nil {
		return nil
	}
	defer why(nil)
	var said bb.NodeID
	for {
		e := c.incompatible()
		if e == nil {
			return nil
		}
		why(e)
		if said != e.Node {
			said = e.Node
			c.o.Log.Error("the start waits, without clients, until that daemon stops or is upgraded", "node", e.Node, "err", e)
		}
		select {
		case <-time.After(strangerLook):
		case <-ctx.Done():
			return e
		}
	}
}

// incompatible returns why this daemon does not work with one that serves, or nil if there is none.
func (c *Cluster) incompatible() *bb.Error {
	for _, m := range c.members.Members() {
		if e := c.Refusal(&m); e != nil && Serving(m.State) && m.State != gossip.Starting {
			return e
		}
	}
	return nil
}
