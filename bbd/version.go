package bbd

import (
	"context"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// While a cluster is being upgraded, its daemons speak different versions (internal/wire,
// version.go). What two of them say to each other is their session's business. What
// needs all of them is done as the oldest member can: jobs, which tasks of an older
// member would never end, and buffers with second copies, of which it would keep one.
// That is decided anew each time, by what gossip says then: no vote, and no switch that
// somebody has to throw when the last one is upgraded.
//
// A daemon that has no version in common with another one is not asked anything, and
// what would need it fails and says what to upgrade. Which of the two goes on is decided
// by who was there first: a daemon does not begin to serve, or to change anything, as
// long as one serves that it cannot speak with.

// versions are those that a member speaks.
func versions(m *gossip.Member) wire.Versions {
	return wire.Versions{Min: m.MinVersion, Max: m.MaxVersion}
}

// speaks reports whether this release and a member have a version in common.
func speaks(m *gossip.Member) bool {
	_, common := wire.Own().Common(versions(m))
	return common
}

// asks reports whether it is worth asking a member anything.
func asks(m *gossip.Member) bool { return answers(m.State) && speaks(m) }

// knows reports whether a member answers and speaks a version.
func knows(m *gossip.Member, version uint32) bool {
	return asks(m) && m.MaxVersion >= version
}

// allKnow is nil if all daemons of the cluster speak the version that something came
// with, else an error of kind unsupported that names one which does not.
func (c *cluster) allKnow(what string, since uint32) error {
	if wire.MaxVersion < since {
		return wire.Lacks(what, since, c.d.side().Name, wire.MaxVersion)
	}
	for _, m := range c.members.Members() {
		if asks(&m) && m.MaxVersion < since {
			return wire.Lacks(what, since, nameOf(&m), m.MaxVersion)
		}
	}
	return nil
}

// nameOf is a member, for errors.
func nameOf(m *gossip.Member) string { return m.Server + " of node " + string(m.Node) }

// side is this daemon, for errors about versions.
func (d *Daemon) side() wire.Side {
	return wire.Side{Name: "bbd " + d.cfg.Version + " of node " + string(d.cfg.Node), Versions: wire.Own()}
}

// refusal says why this daemon does not work with a member; nil: it does.
func (d *Daemon) refusal(m *gossip.Member) *bb.Error {
	switch {
	case m.Node == d.cfg.Node:
		return nil
	case m.State == gossip.Unknown:
		return bb.E(bb.Unsupported, "reach", "", "node "+string(m.Node)+" speaks a gossip that this release, "+d.side().Name+", cannot read").
			WithRemedy("upgrade " + d.side().Name)
	case speaks(m):
		return nil
	}
	e := wire.NoCommon("reach", "", wire.Side{Name: nameOf(m), Versions: versions(m)}, d.side())
	e.Node = m.Node
	return e
}

// strangerLook is how often a daemon that waits looks again whether it still has to.
const strangerLook = 200 * time.Millisecond

// waitForStrangers waits until nobody serves whom this daemon cannot speak with.
func (d *Daemon) waitForStrangers(ctx context.Context) error {
	if d.cluster == nil {
		return nil
	}
	defer d.waitsFor.Store(nil)
	var said bb.NodeID
	for {
		e := d.stranger()
		if e == nil {
			return nil
		}
		d.waitsFor.Store(e)
		if said != e.Node {
			said = e.Node
			d.log.Error("waiting, and serving nobody, as long as that daemon serves", "node", e.Node, "err", e)
		}
		select {
		case <-time.After(strangerLook):
		case <-ctx.Done():
			return e
		}
	}
}

// stranger says why this daemon does not work with one that serves; nil: there is none.
func (d *Daemon) stranger() *bb.Error {
	for _, m := range d.cluster.members.Members() {
		if e := d.refusal(&m); e != nil && answers(m.State) && m.State != gossip.Starting {
			return e
		}
	}
	return nil
}
