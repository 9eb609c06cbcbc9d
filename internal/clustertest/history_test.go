package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"forebay/client"
	"forebay/internal/netnstest"
)

// names is the state of the model: the names that are taken.
type names [4]bool

// action is one operation of the history. Its outcome is the kind of its error, 0: done.
type action struct {
	what     string // create (exclusive), rename (without replacing), remove or stat
	from, to int
}

// step is the model. It returns whether an outcome is right in a state, and the state after. A
// change of unknown outcome has no end in the history, and has any possible outcome here. An
// operation that was never done equals one that comes last.
func (s names) step(a action, kind client.Kind) (bool, names) {
	unknown := kind == client.ErrUnavailable
	switch taken := s[a.from]; a.what {
	case "create":
		if kind == client.ErrExists || unknown && taken {
			return taken, s
		}
		s[a.from] = true
		return !taken, s
	case "stat":
		return unknown || taken == (kind == 0), s
	case "remove":
		if kind == client.ErrNotFound || unknown && !taken {
			return !taken, s
		}
		s[a.from] = false
		return taken, s
	default:
		switch {
		case kind == client.ErrNotFound || unknown && !taken:
			return !taken, s
		case kind == client.ErrExists || unknown && s[a.to]:
			return s[a.to], s
		}
		ok := taken && !s[a.to]
		s[a.from], s[a.to] = false, true
		return ok, s
	}
}

var namesModel = porcupine.Model{
	Init: func() any { return names{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(names).step(input.(action), output.(client.Kind))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}

// The check must be able to fail.
func TestHistoryCheck(t *testing.T) {
	op := func(call, end int64, what string, kind client.Kind) porcupine.Operation {
		return porcupine.Operation{Input: action{what: what, to: 1}, Call: call, Output: kind, Return: end}
	}
	for what, c := range map[string]struct {
		history []porcupine.Operation
		right   bool
	}{
		"in turn":      {[]porcupine.Operation{op(1, 2, "create", 0), op(3, 4, "remove", 0), op(5, 6, "stat", client.ErrNotFound)}, true},
		"two creators": {[]porcupine.Operation{op(1, 3, "create", 0), op(2, 4, "create", 0)}, false},
		"two removers": {[]porcupine.Operation{op(1, 2, "create", 0), op(3, 6, "remove", 0), op(4, 5, "remove", 0)}, false},
		"stale":        {[]porcupine.Operation{op(1, 2, "create", 0), op(3, 4, "stat", client.ErrNotFound)}, false},
		"unknown":      {[]porcupine.Operation{op(1, math.MaxInt64, "create", client.ErrUnavailable), op(3, 4, "stat", 0)}, true},
		"renamed":      {[]porcupine.Operation{op(1, 2, "create", 0), op(3, 4, "rename", 0), op(5, 6, "stat", 0)}, false},
	} {
		if got := porcupine.CheckOperations(namesModel, c.history); got != c.right {
			t.Errorf("%s: linearizable %v", what, got)
		}
	}
}

// contend runs many clients' operations on a few names from all hosts, and records them.
func (s *scenario) contend(ctx context.Context, id int, began time.Time, count *atomic.Int64) (ops []porcupine.Operation) {
	rnd := rand.New(rand.NewPCG(uint64(id), 7))
	c, err := client.Dial(s.t.Context(), client.Options{Address: "unix://" + s.daemons[id%len(s.daemons)].Socket})
	if err != nil {
		s.t.Error(err)
		return nil
	}
	defer c.Close()
	b := c.Buffer("work")
	for ctx.Err() == nil {
		a := action{what: []string{"create", "create", "rename", "remove", "stat"}[rnd.IntN(5)], from: rnd.IntN(len(names{}))}
		a.to = (a.from + 1 + rnd.IntN(len(names{})-1)) % len(names{})
		one, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
		call := time.Since(began)
		err := do(one, b, a)
		end := time.Since(began)
		cancel()
		switch kind := client.KindOf(err); became(a, err) {
		case refused:
			s.t.Errorf("%+v: %v", a, err)
		case undone:
			time.Sleep(100 * time.Millisecond)
		case unknown:
			ops = append(ops, porcupine.Operation{ClientId: id, Input: a, Call: int64(call), Output: client.ErrUnavailable, Return: math.MaxInt64})
			time.Sleep(300 * time.Millisecond) // each multiplies the check's states
		default:
			ops = append(ops, porcupine.Operation{ClientId: id, Input: a, Call: int64(call), Output: kind, Return: int64(end)})
		}
		count.Add(1)
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	return ops
}

// fate is the fate of an action.
type fate int

const (
	done    fate = iota // or refused by the state of the names
	undone              // it was not carried out, and never will be; or it changes nothing
	unknown             // it may have been carried out, or may be yet
	refused             // for a reason that no fault explains
)

// became derives an action's fate from its error.
func became(a action, err error) fate {
	switch kind := client.KindOf(err); {
	case err == nil:
		return done
	case errors.Is(err, client.ErrUnknownOutcome) && a.what != "stat":
		return unknown
	case kind == client.ErrExists, kind == client.ErrNotFound:
		return done
	case kind == client.ErrUnavailable, kind == client.ErrCancelled, kind == client.ErrBusy:
		return undone
	}
	return refused
}

func TestBecame(t *testing.T) {
	sent := &client.Error{Kind: client.ErrUnavailable, Unknown: true}
	for _, c := range []struct {
		what string
		err  error
		want fate
	}{
		{"remove", nil, done},
		{"remove", &client.Error{Kind: client.ErrNotFound}, done},
		{"remove", &client.Error{Kind: client.ErrUnavailable}, undone},
		{"remove", sent, unknown},
		{"stat", sent, undone},
		{"remove", &client.Error{Kind: client.ErrCancelled, Unknown: true}, unknown},
		{"rename", &client.Error{Kind: client.ErrInternal}, refused},
	} {
		if got := became(action{what: c.what}, c.err); got != c.want {
			t.Errorf("%s, %v: %v, want %v", c.what, c.err, got, c.want)
		}
	}
}

func do(ctx context.Context, b *client.Buffer, a action) error {
	from, to := fmt.Sprint("name", a.from), fmt.Sprint("name", a.to)
	switch a.what {
	case "create":
		f, err := b.OpenFile(ctx, from, client.OpenOptions{Write: true, Create: true, Exclusive: true, Mode: 0o644})
		if err != nil {
			return err
		}
		// The name is made. Its removal by another client before the close is no failure of that.
		_ = f.Close()
		return nil
	case "remove":
		return b.Remove(ctx, from)
	case "stat":
		_, err := b.Stat(ctx, from)
		return err
	default:
		return b.RenameNoReplace(ctx, from, to)
	}
}

// enoughActions is how many actions make a history worth checking.
const enoughActions = 600

// TestHistory checks that exclusive creations, renames and removals are linearizable
// across daemons while one is killed, one is stopped, and the network is cut.
func TestHistory(t *testing.T) {
	s := newScenario(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu  sync.Mutex
		all []porcupine.Operation
		wg  sync.WaitGroup

		count atomic.Int64 // of actions
	)
	began := time.Now()
	for id := range 8 {
		wg.Go(func() {
			ops := s.contend(ctx, id, began, &count)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ops...)
		})
	}
	time.Sleep(2 * time.Second)
	s.daemons[2].Kill()
	s.daemons[2].Start()
	time.Sleep(2 * time.Second)
	h := s.net.Hosts
	s.net.Partition([]*netnstest.Host{h[0], h[1]}, []*netnstest.Host{h[2], h[3]})
	time.Sleep(fault(t, 6*time.Second))
	s.net.Heal()
	s.daemons[1].Pause()
	time.Sleep(fault(t, 4*time.Second))
	s.daemons[1].Resume()
	time.Sleep(4 * time.Second)
	for count.Load() < enoughActions && t.Context().Err() == nil && time.Since(began) < 5*time.Minute {
		time.Sleep(100 * time.Millisecond) // a busy machine takes longer
	}
	cancel()
	wg.Wait()
	outcomes := map[string]int{}
	for _, op := range all {
		outcome := "ok"
		if op.Output != client.Kind(0) {
			outcome = fmt.Sprint(op.Output)
		}
		outcomes[op.Input.(action).what+" "+outcome]++
	}
	t.Logf("%d operations: %v", len(all), outcomes)
	if len(all) < enoughActions/2 {
		t.Errorf("only %d operations: the test does not test", len(all))
	}
	if got := porcupine.CheckOperationsTimeout(namesModel, all, 60*time.Second); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", got)
	}
}
