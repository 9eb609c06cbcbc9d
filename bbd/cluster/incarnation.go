package cluster

import "forebay/internal/bb"

// Incarnation is a node with the memory that it had at some time: what was put there may be there
// as long as the memory is. The zero value is no node's.
type Incarnation struct {
	Node   bb.NodeID
	Memory bb.InstanceID // 0: not known
}

// Incarnation returns what is to be remembered of a node that has been sent something.
func (c *Cluster) Incarnation(node bb.NodeID) Incarnation {
	m, _ := c.members.Member(node)
	return Incarnation{node, m.Instance}
}

// Remains reports whether what was sent to a node may be there still, as far as gossip knows.
func (c *Cluster) Remains(i Incarnation) bool {
	m, ok := c.members.Member(i.Node)
	return i.Node != "" && ok && !m.State.Gone() && (i.Memory == 0 || m.Instance == 0 || m.Instance == i.Memory)
}
