package bb

import "testing"

// TestSaved: figures that were not measured are not shown.
func TestSaved(t *testing.T) {
	node := func(f Usage) Attachment { return Attachment{Usage: f} }
	for name, c := range map[string]struct {
		l        Lifetime
		want     float64
		measured bool
	}{
		"nothing flushed": {Lifetime{Nodes: []Attachment{node(Usage{Absorbed: 1 << 30})}}, 0, false},
		"too little":      {Lifetime{Nodes: []Attachment{node(Usage{Absorbed: 1 << 30, Flushed: 1000, Flushing: 1})}}, 0, false},
		"too fast":        {Lifetime{Nodes: []Attachment{node(Usage{Absorbed: 1 << 30, Flushed: 1 << 30, Flushing: 0.01})}}, 0, false},
		"one node":        {Lifetime{Nodes: []Attachment{node(Usage{Absorbed: 8 << 20, Flushed: 4 << 20, Flushing: 2, Blocked: 1})}}, 3, true},
		"two at once": {Lifetime{Nodes: []Attachment{
			node(Usage{Absorbed: 4 << 20, Flushed: 4 << 20, Flushing: 2}), node(Usage{Absorbed: 4 << 20, Flushed: 4 << 20, Flushing: 4}),
		}}, 4, true},
		"staged out": {Lifetime{
			Nodes: []Attachment{node(Usage{Absorbed: 4 << 20, Blocked: 10})}, Out: []LifetimeStage{{Bytes: 2 << 20, Seconds: 1}, {Bytes: 2 << 20, Seconds: 3}},
		}, -6, true},
	} {
		if got, measured := c.l.Saved(); got != c.want || measured != c.measured {
			t.Errorf("%s: %v, %v", name, got, measured)
		}
	}
}
