package cluster

import (
	"math/rand/v2"
	"sync"
	"time"

	"forebay/bbd/admit"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// The nodes that receive bytes of this node are chosen by admit.Place alone: for files that move
// because memory is full or the node is drained, for second copies, and for files that
// are begun on a node that is drained. Its input is the gossip of the others, the bytes that
// this node has sent them since, and the last user of a file among them.

// Candidates returns the nodes to request room for so many bytes from, in the order of the
// requests. near is the node that has used the file last, "" if none but this one.
func (c *Cluster) Candidates(bytes int64, near bb.NodeID) []bb.NodeID {
	return admit.Place(c.peers(near), bytes, rand.Float64)
}

// CandidatesAmong is Candidates of some nodes only.
func (c *Cluster) CandidatesAmong(bytes int64, nodes []bb.NodeID) []bb.NodeID {
	return admit.Place(admit.Among(c.peers(""), nodes), bytes, rand.Float64)
}

// FreeElsewhere returns how many bytes other nodes seem to have room for.
func (c *Cluster) FreeElsewhere() int64 { return admit.Room(c.peers("")) }

// peers returns the records of the other nodes.
func (c *Cluster) peers(near bb.NodeID) []admit.Peer {
	members := c.members.Members()
	sent := c.sent.since(members, time.Now())
	peers := make([]admit.Peer, 0, len(members))
	for _, m := range members {
		if m.Node != c.o.Node {
			peers = append(peers, admit.Peer{
				Node: m.Node, Free: m.Memory.Free, Sent: sent[m.Node], Near: m.Node == near,
				Ready: AcceptsFiles(m.State) && Compatible(&m),
			})
		}
	}
	return peers
}

// Sending notes that bytes are on their way to a node. arrived must be called with their fate.
func (c *Cluster) Sending(node bb.NodeID, bytes int64) (arrived func(error)) {
	m, ok := c.members.Member(node)
	if !ok {
		return func(error) {}
	}
	c.sent.add(&m, bytes, time.Now())
	return func(err error) {
		switch {
		case bb.KindOf(err) == bb.NoSpace:
			c.sent.add(&m, m.Memory.Free, time.Now()) // with any gossip
		case err != nil:
			c.sent.add(&m, -bytes, time.Now())
		}
	}
}

// sent counts the bytes that this node has sent others since their last report of free memory.
type sent struct {
	sync.Mutex
	to map[bb.NodeID]sending
}

// sending counts the bytes sent to one node. It counts until that node reports another
// amount of free memory, or so much later that its report is true again, since it has freed
// as much meanwhile.
type sending struct {
	free  int64 // the node's last report
	bytes int64
	began time.Time
}

const (
	// Gossip spreads a small change after eight seconds, or in large clusters after eightfold a
	// hundredth of one for each member (gossip/publish.go), and a large one earlier. Far apart
	// (WAN) it takes longer. Then a request to a node is in vain.
	sentLeast  = 10 * time.Second
	sentMember = 100 * time.Millisecond
)

// counts reports whether a node's last report may not include the sent bytes.
func (s *sending) counts(m *gossip.Member, members int, now time.Time) bool {
	return s.free == m.Memory.Free && now.Sub(s.began) < max(sentLeast, time.Duration(members)*sentMember)
}

// add adds bytes that a member is sent, or takes some back.
func (s *sent) add(m *gossip.Member, bytes int64, now time.Time) {
	s.Lock()
	defer s.Unlock()
	old, ok := s.to[m.Node]
	if !ok || old.free != m.Memory.Free {
		old = sending{free: m.Memory.Free, began: now}
	}
	old.bytes = max(0, old.bytes+bytes)
	if s.to == nil {
		s.to = make(map[bb.NodeID]sending)
	}
	s.to[m.Node] = old
}

// since returns the bytes that count, and drops the rest.
func (s *sent) since(members []gossip.Member, now time.Time) map[bb.NodeID]int64 {
	s.Lock()
	defer s.Unlock()
	kept, bytes := make(map[bb.NodeID]sending), make(map[bb.NodeID]int64)
	for i := range members {
		m := &members[i]
		if of, ok := s.to[m.Node]; ok && of.counts(m, len(members), now) {
			kept[m.Node], bytes[m.Node] = of, of.bytes
		}
	}
	s.to = kept
	return bytes
}
