package bbd

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

func TestEnded(t *testing.T) {
	now := time.Unix(1000, 0)
	before := now.Add(-time.Second)
	long := now.Add(-stragglers)
	here := bb.LifetimeNode{Node: "here", Attached: true}
	dead := bb.LifetimeNode{Node: "dead", Attached: true}
	left := bb.LifetimeNode{Node: "left", Since: before}
	leftLong := bb.LifetimeNode{Node: "left", Since: long}
	failed := bb.LifetimeNode{Node: "left", Since: before, Failed: true}
	type nodes = []bb.LifetimeNode
	for name, c := range map[string]struct {
		nodes        nodes
		expect       int
		over, failed bool
	}{
		"it has not come anywhere":         {nodes{}, 1, false, false},
		"it is there":                      {nodes{here}, 1, false, false},
		"its only node is gone":            {nodes{dead}, 1, false, false},
		"it has left":                      {nodes{left}, 1, true, false},
		"it has failed and left":           {nodes{failed}, 1, true, true},
		"one to go":                        {nodes{left, here}, 2, false, false},
		"one to go, long ago":              {nodes{leftLong, here}, 2, false, false},
		"one to come":                      {nodes{left}, 2, false, false},
		"one that never came":              {nodes{leftLong}, 2, true, false},
		"the other is gone":                {nodes{left, dead}, 2, false, true},
		"the other is gone, long ago":      {nodes{leftLong, dead}, 2, true, true},
		"nobody said how many":             {nodes{left}, 0, true, false},
		"one has failed, one is still on":  {nodes{failed, here}, 2, false, true},
		"one left, one is gone, one there": {nodes{leftLong, dead, here}, 3, false, false},
	} {
		l := &bb.Lifetime{Nodes: c.nodes, Expect: c.expect}
		over, bad := ended(l, now, func(n *bb.LifetimeNode) bool { return n.Node == "dead" })
		if over != c.over || over && bad != c.failed {
			t.Errorf("%s: over %v, failed %v", name, over, bad)
		}
	}
}
