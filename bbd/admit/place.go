package admit

import (
	"cmp"
	"slices"

	"forebay/internal/bb"
)

// Peer is another node by the hints about it and our dealings with it.
type Peer struct {
	Node  bb.NodeID
	Free  int64 // bytes, by gossip of some time ago
	Sent  int64 // bytes we have sent it since that gossip
	Ready bool  // it accepts files of which it is not the owner, and has our protocol version
	Near  bool  // it is where the bytes are needed, or close by
}

const (
	// nearer is how many times its free bytes a node that is near counts.
	nearer = 4
	// draws is how many places of the order are drawn by weight. Each takes a pass over all peers.
	// So many refusals in a row mean that the hints are worth nothing.
	draws = 8
)

// believed is our estimate of the free bytes there.
func (p *Peer) believed() int64 { return max(0, p.Free-p.Sent) }

func (p *Peer) weight() float64 {
	w := float64(p.believed())
	if p.Near {
		w *= nearer
	}
	return w
}

// Room returns how many bytes peers seem to have room for.
func Room(peers []Peer) (bytes int64) {
	for i := range peers {
		if peers[i].Ready {
			bytes += peers[i].believed()
		}
	}
	return bytes
}

// Among returns those of peers that have one of the names.
func Among(peers []Peer, names []bb.NodeID) []Peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return !slices.Contains(names, p.Node) })
}

// Place returns the nodes to request room for need bytes from, in the order of the requests: first
// those that seem to have it, then, since hints are old, the others that are ready. rnd returns
// numbers in [0, 1), and all randomness comes from it.
//
// Each of the first is the better of two, drawn with a probability in proportion to their free
// bytes (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001). Many nodes
// read the same old hints at once. If all chose the emptiest node, it would be overrun. So no node
// is to get more than twice its share of the free bytes, and nodes with few of these are left alone
// until the others have as few. No request is left without a place while there is one. All get a
// request in the end.
func Place(peers []Peer, need int64, rnd func() float64) []bb.NodeID {
	var room, rest []Peer
	for _, p := range peers {
		switch {
		case !p.Ready:
		case p.believed() >= max(need, 1):
			room = append(room, p)
		default:
			rest = append(rest, p)
		}
	}
	order := make([]bb.NodeID, 0, len(room)+len(rest))
	for range min(draws, len(room)) {
		i := draw(room, rnd)
		if k := draw(room, rnd); room[k].weight() > room[i].weight() {
			i = k
		}
		order = append(order, room[i].Node)
		room[i] = room[len(room)-1]
		room = room[:len(room)-1]
	}
	shuffle(room, rnd)
	shuffle(rest, rnd)
	// If no node has room by the hints, those with most of it follow, whose hints are most likely
	// wrong.
	slices.SortStableFunc(rest, func(a, b Peer) int { return cmp.Compare(b.believed(), a.believed()) })
	for _, p := range slices.Concat(room, rest) {
		order = append(order, p.Node)
	}
	return order
}

// draw returns the index of a peer, each with a probability in proportion to its weight.
func draw(peers []Peer, rnd func() float64) int {
	var sum float64
	for i := range peers {
		sum += peers[i].weight()
	}
	at := rnd() * sum
	for i := range peers {
		if at -= peers[i].weight(); at < 0 {
			return i
		}
	}
	return len(peers) - 1 // by rounding
}

func shuffle(peers []Peer, rnd func() float64) {
	for i := len(peers) - 1; i > 0; i-- {
		k := min(int(rnd()*float64(i+1)), i)
		peers[i], peers[k] = peers[k], peers[i]
	}
}
