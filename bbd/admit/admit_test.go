package admit

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs testdata/*: `pool`, `buffer` and `ask` set the state, all in MiB. `decide`
// prints the actions and takes grants off the pool.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s State
		var served Served
		id := uint64(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "pool":
				s.Pool = scriptPool(t, d)
				s.Watermarks = Watermarks{scriptMiB(t, d, "low"), scriptMiB(t, d, "high")}
			case "buffer":
				if s.Buffers == nil {
					s.Buffers = map[string]Buffer{}
				}
				s.Buffers[d.CmdArgs[0].Key] = Buffer{scriptMiB(t, d, "used"), scriptMiB(t, d, "capacity"), scriptMiB(t, d, "evictable")}
			case "ask":
				user := ""
				d.MaybeScanArgs(t, "user", &user)
				for line := range strings.Lines(d.Input) {
					r := Request{User: user, Bytes: Unit}
					var mib int64
					if _, err := fmt.Sscan(line, &r.Buffer, &r.Client, &mib); err != nil {
						t.Fatal(err)
					}
					id++
					r.ID, r.Bytes, r.NoWait = id, mib*Unit, strings.Contains(line, "nowait")
					r.Age = time.Duration(1000 - id)
					s.Waiting = append(s.Waiting, r)
				}
			case "decide":
				var actions []Action
				actions, served = Decide(s, served)
				out := printActions(actions, s.Waiting)
				s = after(s, actions)
				return out
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

func scriptMiB(t *testing.T, d *datadriven.TestData, key string) int64 {
	var n int64
	d.MaybeScanArgs(t, key, &n)
	return n * Unit
}

func scriptPool(t *testing.T, d *datadriven.TestData) Pool {
	return Pool{
		Free: scriptMiB(t, d, "free"), Evictable: scriptMiB(t, d, "evictable"), Spillable: scriptMiB(t, d, "spillable"), Misplaced: scriptMiB(t, d, "misplaced"),
		DiskFree: scriptMiB(t, d, "disk"), UnderWay: scriptMiB(t, d, "underway"), Populating: d.HasArg("populating"),
		Movable: scriptMiB(t, d, "movable"),
	}
}

func printActions(actions []Action, waiting []Request) string {
	names := map[uint64]string{}
	for _, r := range waiting {
		names[r.ID] = fmt.Sprintf(" #%d %s/%s", r.ID, r.Buffer, r.Client)
	}
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintf(&b, "%s%s", a.Kind, names[a.Request])
		if a.Bytes > 0 {
			fmt.Fprintf(&b, " %d MiB", a.Bytes/Unit)
		}
		if a.Reason != "" {
			fmt.Fprintf(&b, ": %s", a.Reason)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// after takes settled requests off the queue and granted bytes off the pool.
func after(s State, actions []Action) State {
	settled := map[uint64]bool{}
	for _, a := range actions {
		switch a.Kind {
		case Grant:
			s.Pool.Free -= a.Bytes
			settled[a.Request] = true
		case Refuse:
			settled[a.Request] = true
		}
	}
	var left []Request
	for _, r := range s.Waiting {
		if !settled[r.ID] {
			left = append(left, r)
		}
	}
	s.Waiting = left
	return s
}

// TestEverybodyIsAnsweredOnce checks the invariants of any decision.
func TestEverybodyIsAnsweredOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var served Served
	for range 20_000 {
		s := randomState(r)
		var actions []Action
		actions, served = Decide(s, served)
		answers := map[uint64]int{}
		var granted, evict, spill, move int64
		for _, a := range actions {
			switch a.Kind {
			case Grant:
				granted += a.Bytes
			case Evict:
				evict += a.Bytes
			case Spill, SpillMisplaced:
				spill += a.Bytes
			case Move:
				move += a.Bytes
			}
			if a.Request != 0 {
				answers[a.Request]++
			} else if a.Kind != Evict && a.Kind != Spill && a.Kind != SpillMisplaced && a.Kind != Move {
				t.Fatalf("%+v is about no request", a)
			}
			if a.Kind == Grant && (a.Bytes < Unit || a.Bytes%Unit != 0) {
				t.Fatalf("%+v is not of whole units", a)
			}
			if a.Kind == Wait && s.byID(a.Request).NoWait {
				t.Fatalf("%+v, which does not wait", a)
			}
			if a.Kind == Refuse && !s.byID(a.Request).NoWait && s.Buffers[s.byID(a.Request).Buffer].Capacity == 0 {
				t.Fatalf("%+v, which waits and has no capacity to use up", a)
			}
		}
		for _, q := range s.Waiting {
			if answers[q.ID] != 1 {
				t.Fatalf("request %d was answered %d times", q.ID, answers[q.ID])
			}
		}
		if granted > s.Pool.Free || move > s.Pool.Movable || evict > s.Pool.Evictable || spill > s.Pool.DiskFree {
			t.Fatalf("more than there is: %+v of %+v", actions, s.Pool)
		}
		waits := len(answers) > 0 && s.Pool.Free-granted >= Unit
		for _, a := range actions {
			if a.Kind == Wait && waits && s.Buffers[s.byID(a.Request).Buffer].Capacity == 0 {
				t.Fatalf("%+v although %d bytes are free", a, s.Pool.Free-granted)
			}
		}
	}
}

func (s State) byID(id uint64) Request {
	for _, r := range s.Waiting {
		if r.ID == id {
			return r
		}
	}
	return Request{}
}

func randomState(r *rand.Rand) State {
	mib := func(n int64) int64 { return max(0, r.Int64N(2*n)-n) * Unit }
	s := State{
		Pool: Pool{
			Free: mib(64), Evictable: mib(64), Spillable: mib(64), Misplaced: mib(16), DiskFree: mib(64), UnderWay: mib(8),
			Populating: r.IntN(5) == 0, Movable: mib(32),
		},
		Watermarks: Watermarks{mib(8), mib(32)},
		Buffers:    map[string]Buffer{"a": {mib(64), mib(64), mib(4)}},
	}
	for i := range r.IntN(12) {
		s.Waiting = append(s.Waiting, Request{
			ID: uint64(i + 1), Buffer: string(rune('a' + r.IntN(4))), Client: string(rune('x' + r.IntN(3))),
			Bytes: r.Int64N(40 * Unit), Age: time.Duration(r.IntN(100)), NoWait: r.IntN(5) == 0,
		})
	}
	return s
}

// TestTurnsAgainstOracle compares the order of grants with a dumb oracle. The user with the
// smallest sum so far is next, in a world in which all users always wait.
func TestTurnsAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		buffers := 1 + r.IntN(5)
		clients := 1 + r.IntN(4)
		size := func(b, c int) int64 { return int64(1+(b*7+c*3)%5) * Unit }
		var s State
		for b := range buffers {
			for c := range clients {
				s.Waiting = append(s.Waiting, Request{ID: uint64(1 + b*clients + c), Buffer: fmt.Sprint(b), Client: fmt.Sprint(c), Bytes: size(b, c)})
			}
		}
		sum := make([]int64, buffers)
		own := make([][]int64, buffers)
		for b := range own {
			own[b] = make([]int64, clients)
		}
		var served Served
		for range 100 {
			b := least(sum)
			c := least(own[b])
			s.Pool.Free = size(b, c)
			var actions []Action
			actions, served = Decide(s, served)
			if want := uint64(1 + b*clients + c); actions[0].Kind != Grant || actions[0].Request != want || actions[0].Bytes != size(b, c) {
				t.Fatalf("%+v, want request %d of %v, %v", actions[0], want, sum, own)
			}
			sum[b] += size(b, c)
			own[b][c] += size(b, c)
		}
	}
}

func least(list []int64) (at int) {
	for i, n := range list {
		if n < list[at] {
			at = i
		}
	}
	return at
}

// TestNobodyStarves lets greedy clients compete with one small request that is not repeated. A
// greedy client requests as much as it may, again as soon as it is served. It must be served before
// any buffer is given much more than one grant after it, however rounds without anything free fall.
func TestNobodyStarves(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for round := range 300 {
		var served Served
		var s State
		id := uint64(0)
		ask := func(buffer string, bytes int64) uint64 {
			id++
			s.Waiting = append(s.Waiting, Request{ID: id, Buffer: buffer, Client: fmt.Sprint(r.IntN(3)), Bytes: bytes})
			return id
		}
		greedy := []string{"a", "b", "c"}[:1+r.IntN(3)]
		given := map[string]int64{}
		var meek uint64
		for step := 0; ; step++ {
			for _, g := range greedy {
				if r.IntN(3) > 0 {
					ask(g, 64*Unit)
				}
			}
			if step == 20 {
				meek = ask("z", Unit)
				clear(given)
			}
			s.Pool.Free = r.Int64N(3) * Unit
			var actions []Action
			actions, served = Decide(s, served)
			done := false
			for _, a := range actions {
				if a.Kind == Grant {
					given[s.byID(a.Request).Buffer] += a.Bytes
					done = done || a.Request == meek
				}
			}
			if done {
				break
			}
			for b, n := range given {
				if meek != 0 && n > 64*Unit+2*Unit {
					t.Fatalf("round %d: buffer %s was given %d MiB while a request waited", round, b, n/Unit)
				}
			}
			s = after(s, actions)
		}
	}
}

func TestDecideChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var served Served
	for range 1000 {
		s := randomState(r)
		first, next := Decide(s, served)
		second, _ := Decide(s, served)
		if fmt.Sprint(first) != fmt.Sprint(second) {
			t.Fatalf("same input, two answers:\n%v\n%v", first, second)
		}
		served = next
	}
}
