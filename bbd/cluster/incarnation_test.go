package cluster

import (
	"testing"

	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// one is a cluster of which only the other node is known.
type one struct{ other gossip.Member }

func (o *one) Member(node bb.NodeID) (gossip.Member, bool) {
	if node != o.other.Node {
		return gossip.Member{}, false
	}
	return o.other, true
}
func (o *one) Members() []gossip.Member { return []gossip.Member{o.other} }
func (o *one) Addr() string             { return "" }

// TestRemains: bytes put into a memory count until a newer one appears in gossip or in a session.
func TestRemains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before bb.InstanceID // in gossip, when the session begins; its state is ready
		met    bb.InstanceID // in the session; 0: there is none
		now    gossip.Member // in gossip, now
		in     bb.InstanceID // where it was put
		want   bool
	}{
		"the memory of gossip":                   {3, 0, gossip.Member{Instance: 3}, 3, true},
		"one before it":                          {4, 0, gossip.Member{Instance: 4}, 3, false},
		"not known which":                        {4, 0, gossip.Member{Instance: 4}, 0, true},
		"a session was first":                    {3, 4, gossip.Member{Instance: 3}, 4, true},
		"a session was first, and one before it": {3, 4, gossip.Member{Instance: 3}, 3, false},
		"gossip has caught up":                   {3, 4, gossip.Member{Instance: 4}, 4, true},
		"gossip has overtaken it":                {3, 4, gossip.Member{Instance: 5}, 4, false},
		"gossip has overtaken it, and the next":  {3, 4, gossip.Member{Instance: 5}, 5, true},
		"both agreed, and gossip has gone on":    {4, 4, gossip.Member{Instance: 5}, 4, false},
		"a session was first, and it is gone":    {3, 4, gossip.Member{Instance: 3, State: gossip.Dead}, 4, false},
	} {
		members := &one{other: gossip.Member{Node: "n2", State: gossip.Ready, Instance: c.before}}
		cl := New(Options{Node: "n1", Members: members})
		if c.met != 0 {
			cl.meet("n2", c.met)
		}
		members.other = c.now
		members.other.Node = "n2"
		if c.now.State == gossip.Unknown {
			members.other.State = gossip.Ready
		}
		if got := cl.Remains(Incarnation{"n2", c.in}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if in := cl.Incarnation("n2"); c.now.State == gossip.Unknown && !cl.Remains(in) {
			t.Errorf("%s: what is put there now, into %v, is not there", name, in)
		}
		cl.Close()
	}
}
