package bbd

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

func TestEnded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	before := now.Add(-time.Second)
	long := now.Add(-stragglers)
	here := bb.LifetimeNode{Node: "here", Attached: true}
	dead := bb.LifetimeNode{Node: "dead", Attached: true}
	left := bb.LifetimeNode{Node: "left", Since: before}
	leftLong := bb.LifetimeNode{Node: "left", Since: long}
	failed := bb.LifetimeNode{Node: "left", Since: before, Failed: true}
	visited := bb.LifetimeNode{Node: "visited"} // by bytes alone
	type nodes = []bb.LifetimeNode
	for name, c := range map[string]struct {
		nodes        nodes
		expect       int
		over, failed bool
		governed     bool
		said         bool // by the batch system
	}{
		"it has not come anywhere":         {nodes: nodes{}, expect: 1},
		"it is there":                      {nodes: nodes{here}, expect: 1},
		"its only node is gone":            {nodes: nodes{dead}, expect: 1},
		"it has left":                      {nodes: nodes{left}, expect: 1, over: true},
		"it has failed and left":           {nodes: nodes{failed}, expect: 1, over: true, failed: true},
		"one to go":                        {nodes: nodes{left, here}, expect: 2},
		"one to go, long ago":              {nodes: nodes{leftLong, here}, expect: 2},
		"one to come":                      {nodes: nodes{left}, expect: 2},
		"one that never came":              {nodes: nodes{leftLong}, expect: 2, over: true},
		"the other is gone":                {nodes: nodes{left, dead}, expect: 2, failed: true},
		"the other is gone, long ago":      {nodes: nodes{leftLong, dead}, expect: 2, over: true, failed: true},
		"nobody said how many":             {nodes: nodes{left}, expect: 0, over: true},
		"one has failed, one is still on":  {nodes: nodes{failed, here}, expect: 2, failed: true},
		"one left, one is gone, one there": {nodes: nodes{leftLong, dead, here}, expect: 3},
		"only bytes came":                  {nodes: nodes{visited}},
		"bytes came besides":               {nodes: nodes{left, visited}, expect: 2},
		"governed: it has left":            {nodes: nodes{left}, expect: 1, governed: true},
		"governed: it is said to be over":  {nodes: nodes{left}, expect: 1, over: true, governed: true, said: true},
		"governed: it has not left":        {nodes: nodes{left, here}, expect: 2, governed: true, said: true},
		"governed: on a node that is gone": {nodes: nodes{dead}, expect: 1, over: true, governed: true, said: true},
		"governed: it never came":          {nodes: nodes{visited}, over: true, governed: true, said: true},
	} {
		l := &bb.Lifetime{Nodes: c.nodes, Expect: c.expect, Governed: c.governed}
		if c.said {
			l.Over = now
		}
		over, bad := ended(l, now, func(n *bb.LifetimeNode) bool { return n.Node == "dead" })
		if over != c.over || over && bad != c.failed {
			t.Errorf("%s: over %v, failed %v", name, over, bad)
		}
	}
}
