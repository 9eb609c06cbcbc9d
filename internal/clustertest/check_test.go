package clustertest

import (
	"strings"
	"testing"
	"time"

	"forebay/client"
)

// story builds journals by hand. Each operation takes 10 ns of a common clock, unless it has other
// times, and has a second.
type story struct {
	now      int64
	journals []Journal
	observed []Observation
	world    World
}

func (s *story) add(who string, r Record) *Record {
	i := 0
	for i < len(s.journals) && s.journals[i].Client != who {
		i++
	}
	if i == len(s.journals) {
		s.journals = append(s.journals, Journal{Client: who})
	}
	j := &s.journals[i]
	s.now += 100
	r.ID, r.Begin, r.End, r.Deadline, r.Node = len(j.Records)+1, s.now, s.now+10, time.Second, "n1"
	if r.Outcome == "" {
		r.Outcome = OK
	}
	j.Records = append(j.Records, r)
	return &j.Records[r.ID-1]
}

func (s *story) sees(node, path string, seen Seen) {
	for i := range s.observed {
		if s.observed[i].Node == node {
			s.observed[i].Files[path] = seen
			return
		}
	}
	s.observed = append(s.observed, Observation{Node: node, Files: map[string]Seen{path: seen}})
}

var (
	one, two      = Version{Seed: 10, Size: 100}, Version{Seed: 11, Size: 200}
	unavailable   = client.ErrUnavailable.String()
	lostFile      = Seen{Kind: client.ErrLost}
	noFile        = Seen{Kind: client.ErrNotFound}
	unreachable   = Seen{Kind: client.ErrUnavailable}
	notFound      = client.ErrNotFound.String()
	existsAlready = client.ErrExists.String()
)

// TestCheck runs small stories. In a story without a violation the checker must report none.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(s *story)
		want string // in the one violation; "": there is none
	}{
		"nothing happened": {func(s *story) {}, ""},
		"written and there": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
		}, ""},
		"acknowledged and not there": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", noFile)
		}, "nothing; it may hold 100 bytes"},
		"acknowledged and not seen at all": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/2", noFile)
		}, "a/1, seen from n1: nothing"},
		"the old content": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two})
			s.sees("n1", "a/1", Seen{Version: one})
		}, "it may hold 200 bytes"},
		"an unacknowledged write may be there": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: two})
		}, ""},
		"or not": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: one})
		}, ""},
		"but not in part": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: two, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: Version{Seed: two.Seed, Size: 50}})
		}, "50 bytes"},
		"nor differently on two nodes": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: one})
			s.sees("n2", "a/1", noFile)
		}, "different nodes"},
		"nor empty where something was": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: Empty})
		}, "an empty file"},
		"a synced part is lost": {func(s *story) {
			s.add("a", Record{Op: Sync, Path: "a/1", Version: Version{10, 50}})
			s.add("a", Record{Op: Sync, Path: "a/1", Version: Version{10, 100}})
			s.sees("n1", "a/1", Seen{Version: Version{10, 50}})
		}, "it may hold 100 bytes"},
		"nobody wrote it": {func(s *story) {
			s.sees("n1", "a/1", Seen{Version: one})
		}, "it may hold nothing"},
		"damaged": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Kind: client.ErrChecksum, Why: "byte 7"})
		}, "byte 7"},
		"removed and back": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Remove, Path: "a/1"})
			s.sees("n1", "a/1", Seen{Version: one})
		}, "it may hold nothing"},
		"renamed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: one})
			s.sees("n1", "a/2", Seen{Version: one})
		}, ""},
		"renamed, and at the old name": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: one})
			s.sees("n1", "a/2", Seen{Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
		}, "it may hold nothing"},
		"half renamed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: one, Outcome: unavailable})
			s.sees("n1", "a/1", Seen{Version: one})
			s.sees("n1", "a/2", Seen{Version: one})
		}, "half renamed"},
		"renamed to nowhere": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: one, Outcome: unavailable})
			s.sees("n1", "a/1", noFile)
		}, "half renamed"},
		"a stale read": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two})
			s.add("b", Record{Op: Read, Path: "a/1", Version: one})
		}, "read 100 bytes"},
		"a read during the write": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two})
			r := s.add("b", Record{Op: Read, Path: "a/1", Version: one})
			r.Begin -= 95 // before the second write ended
		}, ""},
		"a read from the future": {func(s *story) {
			s.add("b", Record{Op: Read, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
		}, "read 100 bytes"},
		"not found, and it was there": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("b", Record{Op: Read, Path: "a/1", Outcome: notFound})
		}, "not found"},
		"its own file was not found": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Remove, Path: "a/1", Outcome: notFound})
		}, "not found"},
		"listed twice": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("b", Record{Op: List, Path: "a", Names: []string{"1", "1"}})
		}, "twice"},
		"not listed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("b", Record{Op: List, Path: "a"})
		}, "not listed"},
		"listed, and never there": {func(s *story) {
			s.add("b", Record{Op: List, Path: "a", Names: []string{"1"}})
		}, "was not there"},
		"two creators": {func(s *story) {
			s.add("a", Record{Op: Create, Path: "s/1", Version: one})
			s.add("b", Record{Op: Create, Path: "s/1", Version: two})
		}, "2 exclusive creations"},
		"one creator": {func(s *story) {
			s.add("a", Record{Op: Create, Path: "s/1", Version: one})
			s.add("b", Record{Op: Create, Path: "s/1", Version: two, Outcome: existsAlready})
			s.add("c", Record{Op: Create, Path: "s/1", Version: Version{12, 20}, Outcome: unavailable})
			s.sees("n1", "s/1", Seen{Version: one})
		}, ""},
		"another than the creator's": {func(s *story) {
			s.add("a", Record{Op: Create, Path: "s/1", Version: one})
			s.add("b", Record{Op: Create, Path: "s/1", Version: two, Outcome: unavailable})
			s.sees("n1", "s/1", Seen{Version: two})
		}, "it may hold 100 bytes"},
		"exists before anybody made it": {func(s *story) {
			s.add("b", Record{Op: Create, Path: "s/1", Version: two, Outcome: existsAlready})
			s.add("a", Record{Op: Create, Path: "s/1", Version: one})
		}, "nobody had begun"},
		"an error that nothing explains": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Outcome: client.ErrInternal.String()})
		}, "no fault explains"},
		"too late": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one}).End += int64(4 * time.Second)
		}, "it took 4"},
		"hanging": {func(s *story) {
			r := s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			r.End, r.Outcome = 0, ""
		}, "never ended"},
		"killed in time": {func(s *story) {
			r := s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			r.End, r.Outcome, s.journals[0].Killed = 0, "", s.now+int64(time.Second)
		}, ""},
		"killed while it hung": {func(s *story) {
			r := s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			r.End, r.Outcome, s.journals[0].Killed = 0, "", s.now+int64(5*time.Second)
		}, "it took 5"},
		"an observer waits for ever": {func(s *story) {
			s.observed = []Observation{{Node: "n1", Slow: []string{"reading a/1 took an hour"}}}
		}, "an hour"},
		"lost with its node, and listed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world.Gone = map[string]int64{"n2": s.now + 50}
			s.add("b", Record{Op: Read, Path: "a/1", Outcome: client.ErrLost.String()})
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
		}, ""},
		"lost before its node went": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.add("b", Record{Op: Read, Path: "a/1", Outcome: client.ErrLost.String()})
			s.world.Gone = map[string]int64{"n2": s.now + 50}
		}, "lost, with holders [n2] alive"},
		"lost with another node": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n1"}})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
		}, "lost, with holders [n1]"},
		"lost with one of two copies": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n1", "n2"}})
			s.world.Gone, s.world.Copies = map[string]int64{"n2": s.now}, 2
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
		}, "lost, with holders [n1 n2]"},
		"lost after its holder's file was renamed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: one})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/2", lostFile)
			s.observed[0].Lost = []string{"a/2"}
		}, ""},
		"lost in silence": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/1", lostFile)
		}, "not listed as lost"},
		"gone without being called lost": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/1", noFile)
		}, "nothing; it may hold"},
		"lost, and in the store": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world = World{Gone: map[string]int64{"n2": s.now}, Store: map[string][]byte{"a/1": Content(one.Seed, one.Size)}}
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
		}, "the store holds it"},
		"lost on one node, read on another": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
			s.sees("n3", "a/1", Seen{Version: one})
		}, "on another node"},
		"called lost, and readable": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
			s.observed[0].Lost = []string{"a/1"}
		}, "listed as lost"},
		"unavailable while its holder cannot be reached": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.world.Unreachable = []string{"n2"}
			s.sees("n1", "a/1", unreachable)
		}, ""},
		"unavailable for nothing": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n1"}})
			s.world.Unreachable = []string{"n2"}
			s.sees("n1", "a/1", unreachable)
		}, "unavailable, with holders"},
		"the store holds a part": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
			s.world.Store = map[string][]byte{"a/1": Content(one.Seed, 50)}
		}, "never there"},
		"the store holds garbage": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
			s.world.Store = map[string][]byte{"a/1": make([]byte, 100)}
		}, "never there"},
		"lost, and the store holds what it was before": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one, Holders: []string{"n2"}})
			s.add("a", Record{Op: Put, Path: "a/1", Version: two, Holders: []string{"n2"}})
			s.add("a", Record{Op: Rename, Path: "a/1", To: "a/2", Version: two})
			s.world = World{Gone: map[string]int64{"n2": s.now}, Store: map[string][]byte{"a/2": Content(one.Seed, one.Size)}}
			s.sees("n1", "a/2", lostFile)
			s.observed[0].Lost = []string{"a/2"}
		}, ""},
		"the store holds another file's content": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Put, Path: "a/2", Version: two})
			s.sees("n1", "a/1", Seen{Version: one})
			s.sees("n1", "a/2", Seen{Version: two})
			s.world.Store = map[string][]byte{"a/2": Content(one.Seed, one.Size)}
		}, "never there"},
		"drained, and not in the store": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.sees("n1", "a/1", Seen{Version: one})
			s.world.Drained = true
		}, "after a drain: nothing"},
		"drained, and removed in the store": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: one})
			s.add("a", Record{Op: Remove, Path: "a/1"})
			s.sees("n1", "a/1", noFile)
			s.world = World{Drained: true, Store: map[string][]byte{"a/1": Content(one.Seed, one.Size)}}
		}, "after a drain: 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{now: 1000}
			c.tell(s)
			got := Check(s.journals, s.observed, s.world).Violations
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("a story without a violation: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("want one violation with %q: %q", c.want, got)
			}
		})
	}
}

func TestContent(t *testing.T) {
	for _, size := range []int{MinSize, 100, 5000} {
		want := Version{Seed: 7 << 33, Size: size}
		p := Content(want.Seed, size)
		if got, err := Identify(p); err != nil || got != want {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
		if string(Content(want.Seed, size+9)[:size]) != string(p) {
			t.Errorf("%d bytes are no prefix of more", size)
		}
		for _, i := range []int{0, 8, size - 1} {
			p[i] ^= 1
			if v, err := Identify(p); err == nil {
				t.Errorf("byte %d of %d changed: %v", i, size, v)
			}
			p[i] ^= 1
		}
	}
	if v, err := Identify(nil); err != nil || v != Empty {
		t.Errorf("nothing is %v, %v", v, err)
	}
	if _, err := Identify(make([]byte, MinSize-1)); err == nil {
		t.Error("a few bytes are a version")
	}
}
