package gossip

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// The bounds of TestManyMembers for any number of members. docs/scaling.md has the measurements,
// and the method.
const (
	joinBound  = 2 * time.Minute // until nearly all list all that start at once
	newsBound  = 5 * time.Second // until nearly all list a new member or state
	deathBound = time.Minute     // until nearly all list an unannounced death
	syncBound  = 5 * time.Minute // after that, until all do
	idleBytes  = 3 << 10         // that a member sends in a second while nothing changes
	busyBytes  = 20 << 10        // while everything does
	oneOf      = 20              // packets is lost, in a bad network
)

// TestManyMembers starts many members in one process and asserts that all of them detect a new
// member, a change, a death, and nothing false, also in a network that loses packets, and that they
// send no more than they should. Time is synctest's. It passes when there is nothing left to do, so
// that the members' views depend on the protocol and not on how few processors they share here.
//
// FOREBAY_MEMBERS=1000 has as many. That takes six minutes and 3 GB.
func TestManyMembers(t *testing.T) {
	members := 150
	if testing.Short() {
		members = 40
	}
	if s := os.Getenv("FOREBAY_MEMBERS"); s != "" {
		var err error
		if members, err = strconv.Atoi(s); err != nil || members < 10 {
			t.Fatalf("FOREBAY_MEMBERS=%q is not how many members there may be", s)
		}
	}
	synctest.Test(t, func(t *testing.T) { manyMembers(t, members) })
}

func manyMembers(t *testing.T, n int) {
	s := &simulation{T: t, network: newNetwork(), all: make([]*Gossip, n+1)}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist's probes end with their interval
	began := time.Now()
	s.start(0, n)
	s.known("all know all", began, joinBound, s.all[:n], func(g *Gossip) bool { there, _ := g.count(); return there == n })
	s.Logf("until then each sent %d bytes", s.bytes()/uint64(n))
	s.quiet()

	began = time.Now()
	s.start(n, n+1)
	s.known("a new member", began, newsBound, s.all[:n], knows(n, Ready))
	dead := []int{n, n * 2 / 3, n / 3, 1}
	for _, i := range dead[:2] {
		s.drain(i)
	}
	s.watch("nothing changes", time.Minute, idleBytes, nil)
	s.watch("bytes change everywhere", time.Minute, busyBytes, s.churn)
	s.quiet()
	if s.suspicions() > 0 {
		t.Errorf("%d suspicions in a network that loses nothing", s.suspicions())
	}
	for _, i := range dead[:2] {
		s.kill(i)
	}

	s.network.loss.Store(oneOf)
	for _, i := range dead[2:] {
		s.drain(i)
	}
	s.watch("nothing changes, and packets are lost", time.Minute, idleBytes, nil)
	s.watch("bytes change everywhere, and packets are lost", time.Minute, busyBytes, s.churn)
	for _, i := range dead[2:] {
		s.kill(i)
	}
	s.network.loss.Store(0)

	for _, g := range s.all {
		if g == nil {
			continue
		}
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
	all     []*Gossip // nil: dead
	dead    int
}

func knows(i int, want State) func(*Gossip) bool {
	node := bb.NodeID(fmt.Sprint("n", i))
	return func(g *Gossip) bool {
		m, _ := g.Member(node)
		return m.State == want || g.options.Node == node
	}
}

// start starts members from to below to, one each millisecond. Each has the addresses of ten that
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

// drain makes a member report that it is being drained.
func (s *simulation) drain(i int) {
	s.Helper()
	began, m := time.Now(), member(i)
	m.State = Draining
	if err := s.all[i].Update(m); err != nil {
		s.Fatal(err)
	}
	s.known("a new state", began, newsBound, s.all, knows(i, Draining))
}

// kill ends a member without a goodbye.
func (s *simulation) kill(i int) {
	s.Helper()
	began := time.Now()
	if err := s.all[i].Close(); err != nil {
		s.Fatal(err)
	}
	s.all[i] = nil
	s.dead++
	s.known("a death", began, deathBound, s.all, knows(i, Dead))
}

// fewOf is one in how many may have to wait for the next full exchange with another member. In a
// small cluster news is sent so few times that it misses a member every now and then.
const fewOf = 20

// known waits until ok holds for all of them, and logs how long half and all took. Within
// the bound it must hold for nearly all.
func (s *simulation) known(what string, began time.Time, bound time.Duration, all []*Gossip, ok func(*Gossip) bool) {
	s.Helper()
	left := slices.Clone(all)
	var half time.Duration
	for {
		left = slices.DeleteFunc(left, func(g *Gossip) bool { return g == nil || ok(g) })
		if half == 0 && len(left) <= len(all)/2 {
			half = since(began)
		}
		if len(left) == 0 {
			break
		}
		if took := time.Since(began); took > bound && len(left) > len(all)/fewOf || took > bound+syncBound {
			s.Fatalf("%s: %d of %d do not know after %v; %s sees %d members", what, len(left), len(all), took, left[0].options.Node, len(left[0].list.Members()))
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Logf("%s: known to half after %v, to all after %v; %d suspicions so far", what, half, since(began), s.suspicions())
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// quiet waits until members have passed on their news.
func (s *simulation) quiet() {
	s.Helper()
	began := time.Now()
	for {
		before := s.network.packetBytes.Load()
		time.Sleep(time.Second)
		perMember := float64(s.network.packetBytes.Load()-before) / float64(s.living())
		if perMember < 500 {
			s.Logf("quiet after %v: %.0f bytes per member and second", since(began), perMember)
			return
		}
		if time.Since(began) > 10*time.Minute {
			s.Fatalf("not quiet after %v: %.0f bytes per member and second", since(began), perMember)
		}
	}
}

// watch counts bytes, suspicions and false deaths for a while. A member may send so
// many bytes in a second.
func (s *simulation) watch(what string, lasts time.Duration, bound float64, meanwhile func(stop <-chan struct{})) {
	s.Helper()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	if meanwhile != nil {
		wait.Go(func() { meanwhile(stop) })
	}
	packets, packetBytes, streamBytes := s.network.packets.Load(), s.network.packetBytes.Load(), s.network.streamBytes.Load()
	published := func() uint64 { return s.sum(func(g *Gossip) uint64 { return g.stats.published.Load() }) }
	suspicions, records := s.suspicions(), published()
	cpu, began := processor(), time.Now()
	for time.Since(began) < lasts {
		time.Sleep(100 * time.Millisecond) // less than a false death lasts, since its denial travels in another packet
		if dead := s.sum(func(g *Gossip) uint64 { _, gone := g.count(); return uint64(gone - s.dead) }); dead > 0 {
			s.Errorf("%s: members that are there were taken for dead %d times at once", what, dead)
			break
		}
	}
	seconds := time.Since(began).Seconds()
	per := func(now, before uint64) float64 { return float64(now-before) / seconds / float64(s.living()) }
	inPackets, inStreams := per(s.network.packetBytes.Load(), packetBytes), per(s.network.streamBytes.Load(), streamBytes)
	s.Logf("%s, for %.0f s: per member and second %.1f packets, %.0f bytes in packets, %.0f bytes in streams, %.2f ms of a processor; "+
		"%.2f records a second in all; %d suspicions", what, seconds, per(s.network.packets.Load(), packets), inPackets, inStreams,
		(processor()-cpu).Seconds()*1000/seconds/float64(s.living()), float64(published()-records)/seconds, s.suspicions()-suspicions)
	if inPackets+inStreams > bound {
		s.Errorf("%s: each member sends %.0f bytes a second, more than %.0f", what, inPackets+inStreams, bound)
	}
	if meanwhile != nil {
		s.Logf("%s: what members believe of free bytes is wrong by %.1f %% of the capacity, in the mean", what, 100*s.wrong())
	}
	close(stop)
	wait.Wait()
}

func (s *simulation) living() int { return len(s.all) - s.dead }

func (s *simulation) bytes() uint64 {
	return s.network.packetBytes.Load() + s.network.streamBytes.Load()
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
			if g == nil {
				continue
			}
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

// wrong is the error of views of free bytes, of a hundred members' about all.
func (s *simulation) wrong() float64 {
	truth := map[bb.NodeID]int64{}
	living := slices.DeleteFunc(slices.Clone(s.all), func(g *Gossip) bool { return g == nil })
	for _, g := range living {
		m, _ := g.Member(g.options.Node)
		truth[m.Node] = m.Memory.Free
	}
	var sum, count float64
	for _, g := range living[:min(100, len(living))] {
		for _, m := range g.Members() {
			if m.State == Dead {
				continue
			}
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
