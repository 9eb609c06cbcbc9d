package cluster

import (
	"sync"

	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// Incarnation is a node with the memory that it had at some time. Bytes that were put there may be there
// as long as the memory is. The zero value is no node's.
type Incarnation struct {
	Node   bb.NodeID
	Memory bb.InstanceID // 0: not known
}

// met has the memories that nodes had when sessions with them began, where gossip named others.
type met struct {
	sync.Mutex
	by map[bb.NodeID]meeting
}

// meeting is the beginning of a session. It counts for as long as gossip names the memory that it named then,
// which the node had before. The memory that gossip names next is the same, or a newer one.
type meeting struct {
	memory, gossiped bb.InstanceID
}

// meet notes which memory a node has with which a session has begun.
func (c *Cluster) meet(node bb.NodeID, memory bb.InstanceID) {
	m, _ := c.members.Member(node)
	c.met.Lock()
	defer c.met.Unlock()
	if memory == 0 || m.Instance == 0 || m.Instance == memory {
		delete(c.met.by, node)
		return
	}
	if c.met.by == nil {
		c.met.by = make(map[bb.NodeID]meeting)
	}
	c.met.by[node] = meeting{memory: memory, gossiped: m.Instance}
}

// memory returns the memory of a node, by gossip and sessions with it, or 0 if it is unknown.
func (c *Cluster) memory(m *gossip.Member) bb.InstanceID {
	c.met.Lock()
	defer c.met.Unlock()
	if last, ok := c.met.by[m.Node]; ok && last.gossiped == m.Instance {
		return last.memory
	}
	return m.Instance
}

// Incarnation returns the incarnation to record of a node that has been sent something.
func (c *Cluster) Incarnation(node bb.NodeID) Incarnation {
	m, _ := c.members.Member(node)
	return Incarnation{node, c.memory(&m)}
}

// Remains reports whether bytes that were sent to a node may be there still, by gossip and sessions
// with it.
func (c *Cluster) Remains(i Incarnation) bool {
	m, ok := c.members.Member(i.Node)
	if i.Node == "" || !ok || m.State.Gone() {
		return false
	}
	now := c.memory(&m)
	return i.Memory == 0 || now == 0 || now == i.Memory
}
