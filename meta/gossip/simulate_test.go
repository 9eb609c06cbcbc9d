package gossip

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// The simulation's flags; docs/scaling.md says how its figures were got.
var (
	simMembers = flag.Int("members", 100, "members of the simulation")
	simLoss    = flag.Uint64("loss", 0, "one packet of so many is lost")
	simMinutes = flag.Float64("minutes", 0.5, "how long to count false suspicions, with nothing and with everything changing")
)

// TestManyMembers starts many members in one process and asserts that all of them
// come to know a new member, a change, a death, and nothing that is not so. Time is
// synctest's: it passes when there is nothing left to do, so that what members find
// out depends on the protocol and not on how few processors they share here.
func TestManyMembers(t *testing.T) { synctest.Test(t, manyMembers) }

func manyMembers(t *testing.T) {
	s := &simulation{T: t, network: newNetwork(), all: make([]*Gossip, *simMembers+1)}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist's probes end with their interval
	n := *simMembers
	began := time.Now()
	s.start(0, n)
	s.known("all know all", began, s.all[:n], func(g *Gossip) bool { there, _ := g.count(); return there == n })
	s.quiet()
	s.network.loss.Store(*simLoss)

	began = time.Now()
	s.start(n, n+1)
	s.known("a new member", began, s.all[:n], knows(n, Ready))
	dead := []int{n, n / 2, 1}
	for _, i := range dead {
		began = time.Now()
		m := member(i)
		m.State = Draining
		if err := s.all[i].Update(m); err != nil {
			t.Fatal(err)
		}
		s.known("a new state", began, s.all, knows(i, Draining))
	}
	s.watch("nothing changes", nil)
	s.watch("bytes change everywhere", s.churn)
	s.quiet()
	if !s.Failed() && *simLoss == 0 && s.suspicions() > 0 {
		t.Errorf("%d suspicions in a network that loses nothing", s.suspicions())
	}
	for _, i := range dead {
		began = time.Now()
		if err := s.all[i].Close(); err != nil {
			t.Fatal(err)
		}
		s.all = slices.Delete(s.all, i, i+1)
		s.known("a death", began, s.all, knows(i, Dead))
	}
	for _, g := range s.all {
		for _, m := range g.Members() {
			if gone := slices.ContainsFunc(dead, func(i int) bool { return string(m.Node) == fmt.Sprint("n", i) }); gone != (m.State == Dead) {
				t.Errorf("%s takes %s for %s", g.options.Node, m.Node, m.State)
			}
		}
	}
}

type simulation struct {
	*testing.T
	network *network
	all     []*Gossip
}

func knows(i int, want State) func(*Gossip) bool {
	node := bb.NodeID(fmt.Sprint("n", i))
	return func(g *Gossip) bool {
		m, _ := g.Member(node)
		return m.State == want || g.options.Node == node
	}
}

// start starts members from to below to, one each millisecond. Each knows ten that
// started before, or may not yet have.
func (s *simulation) start(from, to int) {
	var wait sync.WaitGroup
	for i := from; i < to; i++ {
		time.Sleep(time.Millisecond)
		wait.Go(func() {
			o := Options{Node: bb.NodeID(fmt.Sprint("n", i)), Listen: address(i), Keys: [][]byte{testKey}, JoinWait: time.Minute}
			in(s.network, i)(&o)
			for range 10 {
				o.Join = append(o.Join, address(rand.IntN(max(1, i))))
			}
			g, err := Start(s.Context(), o, member(i))
			if err != nil {
				s.Error(err)
				return
			}
			s.Cleanup(func() { _ = g.Close() })
			s.all[i] = g
		})
	}
	wait.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// known waits until ok holds for all of them, and logs how long half and all took.
func (s *simulation) known(what string, began time.Time, all []*Gossip, ok func(*Gossip) bool) {
	s.Helper()
	left := slices.Clone(all)
	var half time.Duration
	for len(left) > 0 {
		left = slices.DeleteFunc(left, ok)
		if half == 0 && len(left) <= len(all)/2 {
			half = since(began)
		}
		if time.Since(began) > 30*time.Minute {
			s.Fatalf("%s: %d of %d do not know; %s sees %d members", what, len(left), len(all), left[0].options.Node, len(left[0].list.Members()))
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Logf("%s: known to half after %v, to all after %v; %d suspicions so far", what, half, since(began), s.suspicions())
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// quiet waits until members have passed on what they had to.
func (s *simulation) quiet() {
	began := time.Now()
	for {
		before := s.network.packetBytes.Load()
		time.Sleep(time.Second)
		perMember := float64(s.network.packetBytes.Load()-before) / float64(len(s.all))
		if perMember < 500 || time.Since(began) > 30*time.Minute {
			s.Logf("quiet after %v: %.0f bytes per member and second", since(began), perMember)
			return
		}
	}
}

// watch counts bytes, suspicions and false deaths for a while.
func (s *simulation) watch(what string, meanwhile func(stop <-chan struct{})) {
	stop := make(chan struct{})
	var wait sync.WaitGroup
	if meanwhile != nil {
		wait.Go(func() { meanwhile(stop) })
	}
	packets, packetBytes, streamBytes := s.network.packets.Load(), s.network.packetBytes.Load(), s.network.streamBytes.Load()
	published := func() uint64 { return s.sum(func(g *Gossip) uint64 { return g.stats.published.Load() }) }
	suspicions, records, dead := s.suspicions(), published(), uint64(0)
	cpu, began := processor(), time.Now()
	for time.Since(began).Minutes() < *simMinutes {
		time.Sleep(5 * time.Second)
		dead = max(dead, s.sum(func(g *Gossip) uint64 { _, gone := g.count(); return uint64(gone) }))
	}
	seconds := time.Since(began).Seconds()
	per := func(now, before uint64) float64 { return float64(now-before) / seconds / float64(len(s.all)) }
	s.Logf("%s, for %.0f s: per member and second %.1f packets, %.0f bytes in packets, %.0f bytes in streams, %.2f ms of a processor; "+
		"%.2f records a second in all; %d suspicions, at most %d times dead", what, seconds,
		per(s.network.packets.Load(), packets), per(s.network.packetBytes.Load(), packetBytes), per(s.network.streamBytes.Load(), streamBytes),
		(processor()-cpu).Seconds()*1000/seconds/float64(len(s.all)), float64(published()-records)/seconds, s.suspicions()-suspicions, dead)
	if dead > 0 {
		s.Errorf("%s: members that are there were taken for dead %d times at once", what, dead)
	}
	if meanwhile != nil {
		s.Logf("%s: what members believe of free bytes is wrong by %.1f %% of the capacity, in the mean", what, 100*s.wrong())
	}
	close(stop)
	wait.Wait()
}

func (s *simulation) suspicions() uint64 {
	return s.sum(func(g *Gossip) uint64 { return g.stats.suspicions.Load() })
}

func (s *simulation) sum(f func(*Gossip) uint64) (sum uint64) {
	for _, g := range s.all {
		if g != nil {
			sum += f(g)
		}
	}
	return sum
}

// churn fills and empties every member's memory, each in its own time of 1 to 10 minutes.
func (s *simulation) churn(stop <-chan struct{}) {
	period, began := make([]time.Duration, len(s.all)), time.Now()
	for i := range period {
		period[i] = time.Minute + rand.N(9*time.Minute)
	}
	for {
		for i, g := range s.all {
			m, _ := g.Member(g.options.Node)
			m.Memory.Free = int64(time.Since(began)%period[i]*4096/period[i]) << 21
			_ = g.Update(m)
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
	}
}

// wrong is how far beliefs about free bytes are off, of a hundred members' about all.
func (s *simulation) wrong() float64 {
	truth := map[bb.NodeID]int64{}
	for _, g := range s.all {
		m, _ := g.Member(g.options.Node)
		truth[m.Node] = m.Memory.Free
	}
	var sum, count float64
	for _, g := range s.all[:min(100, len(s.all))] {
		for _, m := range g.Members() {
			off := m.Memory.Free - truth[m.Node]
			sum += float64(max(off, -off)) / float64(m.Memory.Capacity)
			count++
		}
	}
	return sum / count
}

func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
