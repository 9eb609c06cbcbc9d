package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"forebay/internal/bb"
)

func TestPlaceOrder(t *testing.T) {
	peers := []Peer{
		{Node: "full", Ready: true},
		{Node: "small", Free: 10, Ready: true},
		{Node: "large", Free: 100, Ready: true},
		{Node: "used", Free: 100, Sent: 95, Ready: true},
		{Node: "gone", Free: 1000},
		{Node: "other", Free: 50, Ready: true},
	}
	before := slices.Clone(peers)
	random := rand.New(rand.NewPCG(1, 2))
	first := map[bb.NodeID]int{}
	for range 1000 {
		order := Place(peers, 20, random.Float64)
		sorted := slices.Sorted(slices.Values(order))
		if !slices.Equal(sorted, []bb.NodeID{"full", "large", "other", "small", "used"}) {
			t.Fatalf("got %v", order)
		}
		if room := slices.Sorted(slices.Values(order[:2])); !slices.Equal(room, []bb.NodeID{"large", "other"}) {
			t.Fatalf("those with room are not first: %v", order)
		}
		if !slices.Equal(order[2:], []bb.NodeID{"small", "used", "full"}) {
			t.Fatalf("those without come in the order %v", order[2:])
		}
		first[order[0]]++
	}
	if first["large"] < 700 || first["other"] < 50 {
		t.Errorf("first were %v", first)
	}
	if !slices.Equal(peers, before) {
		t.Error("the caller's peers have changed")
	}
	if room := Room(peers); room != 10+100+5+50 {
		t.Errorf("there is room for %d", room)
	}
	if order := Place(nil, 1, random.Float64); len(order) != 0 {
		t.Errorf("nobody is there and %v are chosen", order)
	}
	if order := Place(peers[:1], 0, random.Float64); len(order) != 1 {
		t.Errorf("a file of no bytes goes to %v", order)
	}
}

func TestAmong(t *testing.T) {
	peers := []Peer{{Node: "a", Ready: true}, {Node: "b", Free: 9, Ready: true}, {Node: "c"}, {Node: "d", Free: 9, Ready: true}}
	before := slices.Clone(peers)
	order := Place(Among(peers, []bb.NodeID{"c", "b", "a", "x"}), 1, rand.New(rand.NewPCG(1, 2)).Float64)
	if !slices.Equal(order, []bb.NodeID{"b", "a"}) {
		t.Errorf("got %v", order)
	}
	if len(Among(peers, nil)) != 0 || !slices.Equal(peers, before) {
		t.Error("nobody was named, or the input was changed")
	}
}

func TestPlaceNear(t *testing.T) {
	peers := make([]Peer, 10)
	for i := range peers {
		peers[i] = Peer{Node: bb.NodeID(fmt.Sprint(i)), Free: 100, Ready: true, Near: i == 3}
	}
	random := rand.New(rand.NewPCG(1, 2))
	near := 0
	for range 10_000 {
		if Place(peers, 1, random.Float64)[0] == "3" {
			near++
		}
	}
	// Its weight is 4 of 13. The better of two has 1 - (9/13)².
	if near < 4900 || near > 5500 {
		t.Errorf("the near one was first %d times of 10000", near)
	}
}

// The same numbers give the same order, of any values.
func TestPlaceIsPure(t *testing.T) {
	peers := []Peer{{Node: "a", Free: 1 << 62, Ready: true, Near: true}, {Node: "b", Free: 1 << 62, Ready: true}, {Node: "c", Free: 3, Sent: 1 << 62, Ready: true}}
	for _, r := range []float64{0, 0.5, 0.9999999999999999} {
		rnd := func() float64 { return r }
		if a, b := Place(peers, 2, rnd), Place(peers, 2, rnd); len(a) != 3 || !slices.Equal(a, b) {
			t.Errorf("got %v and %v", a, b)
		}
	}
}

// emptiest is the choice that Place must not make, the counter-example.
func emptiest(peers []Peer, _ int64, _ func() float64) []bb.NodeID {
	peers = slices.Clone(peers)
	slices.SortStableFunc(peers, func(a, b Peer) int { return int(b.believed() - a.believed()) })
	var order []bb.NodeID
	for _, p := range peers {
		order = append(order, p.Node)
	}
	return order
}

// herd is the behaviour of many placers with hints that grow old.
type herd struct {
	worst   float64 // most that a node got in a round, of its share by free bytes
	asked   float64 // nodes that got a request for each placement
	starved int     // nodes with room that got nothing at all
}

// stampede has placers place files of one unit. Hints are renewed once a round.
func stampede(place func([]Peer, int64, func() float64) []bb.NodeID, free []int64, placers, each, rounds int) herd {
	random := rand.New(rand.NewPCG(3, 4))
	free = slices.Clone(free)
	index, got := map[bb.NodeID]int{}, make([]int64, len(free))
	for i := range free {
		index[bb.NodeID(fmt.Sprint(i))] = i
	}
	var h herd
	var asked, placed int
	for range rounds {
		hints := make([]Peer, len(free))
		var sum int64
		for i, f := range free {
			hints[i] = Peer{Node: bb.NodeID(fmt.Sprint(i)), Free: f, Ready: true}
			sum += f
		}
		views := make([][]Peer, placers)
		for p := range views {
			views[p] = slices.Clone(hints)
		}
		round := make([]int64, len(free))
		for range each {
			for p := range views {
				for _, node := range place(views[p], 1, random.Float64) {
					asked++
					if i := index[node]; free[i] > 0 {
						free[i]--
						round[i]++
						got[i]++
						placed++
						views[p][i].Sent++
						break
					}
					views[p][index[node]].Free = 0 // it refused
				}
			}
		}
		for i, n := range round {
			if hints[i].Free > 0 {
				share := float64(placers*each) * float64(hints[i].Free) / float64(sum)
				h.worst = max(h.worst, float64(n)/max(share, 1))
			}
		}
	}
	for i := range got {
		if got[i] == 0 {
			h.starved++
		}
	}
	h.asked = float64(asked) / float64(max(placed, 1))
	return h
}

func TestPlaceMakesNoHerd(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	even, mixed, one := make([]int64, 100), make([]int64, 100), make([]int64, 100)
	for i := range even {
		even[i], mixed[i], one[i] = 200, 20+random.Int64N(400), 100
	}
	one[7] = 1000 // the emptiest, by far
	for name, free := range map[string][]int64{"even": even, "mixed": mixed, "one empty": one} {
		ours, theirs := stampede(Place, free, 100, 5, 5), stampede(emptiest, free, 100, 5, 5)
		t.Logf("%s: two choices %+v, the emptiest %+v", name, ours, theirs)
		// Twice its share in the mean, plus chance. With about five a node and round, the most of
		// 500 is 2.5 times as much.
		if ours.worst > 4 {
			t.Errorf("%s: a node got %.1f times its share", name, ours.worst)
		}
		if ours.worst > theirs.worst/2 {
			t.Errorf("%s: a node got %.1f times its share, not far from %.1f without choice", name, ours.worst, theirs.worst)
		}
		if ours.asked > 1.1 {
			t.Errorf("%s: %.2f nodes were asked for each placement", name, ours.asked)
		}
		if ours.starved > theirs.starved/4 {
			t.Errorf("%s: %d nodes got nothing, of %d without choice", name, ours.starved, theirs.starved)
		}
	}
}

// Every byte finds its place, down to the last one that is free anywhere.
func TestPlaceUntilFull(t *testing.T) {
	free := []int64{100, 1, 50, 0, 49}
	h := stampede(Place, free, 10, 4, 5) // 200 placements for 200 free
	if h.asked > 3 {
		t.Errorf("%.2f nodes were asked for each placement", h.asked)
	}
	if h.starved != 1 { // the one that has nothing
		t.Errorf("%d nodes got nothing: the last bytes were not found", h.starved)
	}
}

func BenchmarkPlace(b *testing.B) {
	peers := make([]Peer, 10_000)
	for i := range peers {
		peers[i] = Peer{Node: bb.NodeID(fmt.Sprint(i)), Free: rand.Int64N(1 << 40), Ready: true}
	}
	for b.Loop() {
		Place(peers, 1<<20, rand.Float64)
	}
}
