package gossip

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"forebay/internal/bb"
)

// delegate has the methods that memberlist calls. Most calls come with its lock held. They take
// g.mu and nothing else, and never call memberlist. Some come after Close.
type delegate struct{ g *Gossip }

// NodeMeta returns our record.
func (d *delegate) NodeMeta(int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.mu.said, d.g.mu.saidAt = d.g.mu.self, d.g.later()
	record, _ := encode(&d.g.mu.said, d.g.mu.saidAt) // set has checked that it fits
	return record
}

// NotifyMsg receives the usage of some members.
func (d *delegate) NotifyMsg(b []byte) { d.g.hear(b, true) }

// GetBroadcasts returns a message of received usage, if there is room.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	all := d.g.mu.rumours.take(max(0, limit-overhead-usageHead-usageTail) / usageEntry)
	if len(all) == 0 {
		return nil
	}
	return [][]byte{encodeUsage(all)}
}

// LocalState adds all recorded usage to memberlist's own state.
func (d *delegate) LocalState(bool) []byte { return d.g.allUsage() }

// MergeRemoteState adopts the state of another member.
func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.g.hear(b, false) }

// NotifyAlive is called with every message that a member is alive, before memberlist judges
// its age: enough to end a suspicion of ours, which is a hint.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == "" || len(n.Name) > bb.MaxName || len(n.Meta) > MaxRecord {
		d.g.stats.garbage.Add(1)
		return fmt.Errorf("a name of %d bytes with a record of %d", len(n.Name), len(n.Meta))
	}
	d.g.heard(bb.NodeID(n.Name))
	return nil
}

// NotifyPingComplete is called when a member answered us.
func (d *delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.g.heard(bb.NodeID(n.Name))
}

// AckPayload adds nothing to our answers.
func (d *delegate) AckPayload() []byte { return nil }

// NotifyJoin is called for a member that is new, or back.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.g.learn(n) }

// NotifyUpdate is called for a new record.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.g.learn(n) }

// NotifyLeave is called when a member is gone, with or without a goodbye.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.g.lose(bb.NodeID(n.Name)) }

// NotifyConflict is called when two addresses claim one name.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.g.conflict(existing, other)
}

// learn adopts a member's record. If the record is unreadable, the member's state is unknown.
func (g *Gossip) learn(n *memberlist.Node) {
	node := bb.NodeID(n.Name)
	if node == g.options.Node {
		return
	}
	m, at, err := decode(node, n.Meta)
	if err != nil {
		g.stats.garbage.Add(1)
		m = Member{Node: node}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.members[node]
	isNew := s == nil
	if isNew {
		s = g.add(node)
	}
	if err != nil && !s.readErr {
		g.log.Warn("gossip: a member's record is not read", "node", node, "error", err)
	}
	m.Since = s.Since
	if s.State != m.State || s.Instance != m.Instance || m.Since.IsZero() {
		m.Since = time.Now()
	}
	if s.State.Gone() || isNew {
		g.mu.there++
		g.log.Info("gossip: a member joined", "node", node, "state", m.State.String(), "address", n.Address())
	}
	u := usageOf(&m, at)
	if s.Instance == m.Instance && m.State != Starting && newer(s.usage.at, at) { // its bytes were overtaken
		u = s.usage
		m.apply(u)
	}
	*s = seen{Member: m, said: m.State, address: n.Address(), usage: u, readErr: err != nil}
	g.announce()
}

// lose records that a member is gone.
func (g *Gossip) lose(node bb.NodeID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.members[node]
	if s == nil || s.State.Gone() {
		return
	}
	state := Dead
	if s.said == Leaving {
		state = Left
	}
	g.become(s, state)
	g.mu.there--
	g.log.Info("gossip: a member left or failed", "node", node, "state", state.String())
	g.forget(time.Now())
}

// forget drops the members that have been gone for too long, and the oldest of too
// many. g.mu must be held.
func (g *Gossip) forget(now time.Time) {
	var gone []*seen
	for node, s := range g.mu.members {
		switch {
		case !s.State.Gone():
		case now.Sub(s.Since) > remember:
			g.drop(node)
		default:
			gone = append(gone, s)
		}
	}
	for len(gone) > maxGone {
		oldest := 0
		for i := range gone {
			if gone[i].Since.Before(gone[oldest].Since) {
				oldest = i
			}
		}
		g.drop(gone[oldest].Node)
		gone[oldest] = gone[len(gone)-1]
		gone = gone[:len(gone)-1]
	}
}

// become sets a member's state in our view. g.mu must be held.
func (g *Gossip) become(s *seen, state State) {
	if s.State != state {
		s.State, s.Since = state, time.Now()
		g.announce()
	}
}

// suspected records that a member did not answer us, nor the members we asked to probe it.
func (g *Gossip) suspected(name string) {
	g.stats.suspicions.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.mu.members[bb.NodeID(name)]; s != nil && !s.State.Gone() {
		g.become(s, Suspect)
	}
}

// heard ends a suspicion.
func (g *Gossip) heard(node bb.NodeID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.mu.members[node]; s != nil && s.State == Suspect {
		g.become(s, s.said)
	}
}

// conflict records that two daemons have one name. If it is ours and we are just joining, this
// member is refused.
func (g *Gossip) conflict(existing, other *memberlist.Node) {
	g.stats.conflicts.Add(1)
	node := bb.NodeID(existing.Name)
	if node != g.options.Node {
		g.log.Warn("gossip: two daemons have one name", "node", node, "kept", existing.Address(), "ignored", other.Address())
		return
	}
	g.mu.Lock()
	instance := g.mu.self.Instance
	g.mu.Unlock()
	if m, _, err := decode(node, other.Meta); err == nil && m.Instance == instance && instance != 0 {
		// Our own life before, at another address, which will be found dead.
		g.log.Info("gossip: other members have an older address of this daemon", "address", other.Address())
		return
	}
	if g.joining.Load() {
		g.refuse(other.Address())
		return
	}
	g.log.Error("gossip: another daemon has this node's name", "node", node, "address", other.Address())
}
