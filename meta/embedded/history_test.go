package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/txn"
)

// files is the state of the model: the file of each name, 0 for none.
type files [4]bb.FileID

// action is one operation of the history, and outcome its result.
type action struct {
	what     string // create, rename, exchange, remove or lookup
	from, to int    // names; to of a rename or an exchange
	file     bb.FileID
}

type outcome struct {
	kind bb.Kind // 0: it was done
	file bb.FileID
}

// step is the model: whether an outcome is right in a state, and the state after.
//
// An operation of unknown outcome has no end in the history, and may have any possible outcome
// here. An operation that was never done equals one that is the last of all.
func (s files) step(a action, o outcome) (bool, files) {
	unknown := o.kind == bb.Unavailable
	switch taken := s[a.from] != 0; a.what {
	case "create":
		if o.kind == bb.Exists || unknown && taken {
			return taken, s
		}
		ok := !taken
		s[a.from] = a.file
		return ok, s
	case "lookup":
		return unknown || o.kind == bb.NotFound && !taken || o.kind == 0 && s[a.from] == o.file && taken, s
	case "remove":
		if o.kind == bb.NotFound || unknown && !taken {
			return !taken, s
		}
		ok := taken && (unknown || s[a.from] == o.file)
		s[a.from] = 0
		return ok, s
	case "exchange":
		if both := taken && s[a.to] != 0; o.kind == bb.NotFound || unknown && !both {
			return !both, s
		}
		ok := taken && s[a.to] != 0 && (unknown || s[a.from] == o.file)
		s[a.to], s[a.from] = s[a.from], s[a.to]
		return ok, s
	default:
		// If both are wrong, either may be reported. The two names are looked up in turn.
		switch {
		case o.kind == bb.NotFound || unknown && !taken:
			return !taken, s
		case o.kind == bb.Exists || unknown && s[a.to] != 0:
			return s[a.to] != 0, s
		}
		ok := taken && s[a.to] == 0 && (unknown || s[a.from] == o.file)
		s[a.to], s[a.from] = s[a.from], 0
		return ok, s
	}
}

var filesModel = porcupine.Model{
	Init: func() any { return files{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(files).step(input.(action), output.(outcome))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// The check must be able to fail.
func TestHistoryCheck(t *testing.T) {
	op := func(call, end int64, a action, o outcome) porcupine.Operation {
		return porcupine.Operation{Input: a, Call: call, Output: o, Return: end}
	}
	create, remove, lookup := action{what: "create", file: 1}, action{what: "remove"}, action{what: "lookup"}
	rename := action{what: "rename", to: 1}
	other, exchange := action{what: "create", from: 1, file: 2}, action{what: "exchange", to: 1}
	lost := outcome{kind: bb.Unavailable}
	both := []porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, other, outcome{}), op(5, 6, exchange, outcome{file: 1})}
	for what, c := range map[string]struct {
		history []porcupine.Operation
		right   bool
	}{
		"in turn":           {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, lookup, outcome{file: 1}), op(5, 6, remove, outcome{file: 1})}, true},
		"a stale read":      {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, lookup, outcome{kind: bb.NotFound})}, false},
		"two creators":      {[]porcupine.Operation{op(1, 3, create, outcome{}), op(2, 4, create, outcome{})}, false},
		"lost, and done":    {[]porcupine.Operation{op(1, math.MaxInt64, create, lost), op(3, 4, lookup, outcome{file: 1})}, true},
		"lost, and not":     {[]porcupine.Operation{op(1, math.MaxInt64, create, lost), op(3, 4, lookup, outcome{kind: bb.NotFound})}, true},
		"done and undone":   {[]porcupine.Operation{op(1, math.MaxInt64, create, lost), op(3, 4, lookup, outcome{file: 1}), op(5, 6, lookup, outcome{kind: bb.NotFound})}, false},
		"renamed and there": {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, rename, outcome{file: 1}), op(5, 6, lookup, outcome{file: 1})}, false},
		"exchanged":         {append(both[:3:3], op(7, 8, lookup, outcome{file: 2})), true},
		"exchanged twice":   {append(both[:3:3], op(7, 8, lookup, outcome{file: 1})), false},
		"exchange, nothing": {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, exchange, outcome{file: 1})}, false},
		"removed twice":     {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 6, remove, outcome{file: 1}), op(4, 5, remove, outcome{file: 1})}, false},
	} {
		if got := porcupine.CheckOperations(filesModel, c.history); got != c.right {
			t.Errorf("%s: linearizable %v", what, got)
		}
	}
}

// recorder is one client of the history.
type recorder struct {
	id    int
	ns    *txn.Tree
	m     *meta.Meta
	rnd   *rand.Rand
	began time.Time
	ops   []porcupine.Operation
}

func (r *recorder) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		a := action{what: []string{"create", "create", "rename", "exchange", "remove", "lookup"}[r.rnd.IntN(6)], from: r.rnd.IntN(len(files{}))}
		a.to = (a.from + 1 + r.rnd.IntN(len(files{})-1)) % len(files{})
		id, err := r.m.IDs().NewFileID(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		a.file = id
		patience := 40 * time.Second
		if r.rnd.IntN(100) == 0 {
			patience = time.Second // so that some outcomes are unknown
		}
		one, cancel := context.WithTimeout(t.Context(), patience)
		call := time.Since(r.began)
		file, err := r.do(one, a)
		end := time.Since(r.began)
		cancel()
		o := outcome{file: file}
		switch {
		case err == nil:
		case errors.Is(err, kv.ErrConflict):
			continue // refused, and nothing was changed
		case errors.Is(err, bb.Unavailable):
			o.kind, end = bb.Unavailable, math.MaxInt64
		case errors.Is(err, bb.Exists), errors.Is(err, bb.NotFound):
			o.kind = bb.KindOf(err)
		default:
			t.Errorf("%+v: %v", a, err)
		}
		r.ops = append(r.ops, porcupine.Operation{ClientId: r.id, Input: a, Call: int64(call), Output: o, Return: int64(end)})
		time.Sleep(time.Duration(r.rnd.IntN(10)) * time.Millisecond)
	}
}

func name(n int) string { return fmt.Sprint("n", n) }

func (r *recorder) do(ctx context.Context, a action) (bb.FileID, error) {
	switch a.what {
	case "create":
		_, err := r.ns.Create(ctx, bb.Entry{Parent: bb.RootDir, Name: name(a.from), Type: bb.TypeFile, File: a.file})
		return 0, err
	case "remove":
		e, err := r.ns.Remove(ctx, bb.RootDir, name(a.from), namespace.RemoveOptions{StoreOp: r.rnd.IntN(2) == 0})
		return e.File, err
	case "lookup":
		e, err := r.ns.Lookup(ctx, bb.RootDir, name(a.from))
		return e.File, err
	case "exchange":
		x, err := r.ns.Exchange(ctx, bb.RootDir, name(a.from), bb.RootDir, name(a.to), namespace.ExchangeOptions{StoreOp: r.rnd.IntN(2) == 0})
		return x.Entry.File, err
	default:
		moved, err := r.ns.Rename(ctx, bb.RootDir, name(a.from), bb.RootDir, name(a.to), namespace.RenameOptions{StoreOp: r.rnd.IntN(2) == 0})
		return moved.Entry.File, err
	}
}

// TestHistory checks that create-exclusive, rename, remove and lookup are linearizable
// over three servers while those that lead are killed, and stopped and continued.
// FOREBAY_HISTORY=10m makes it continue for that long.
func TestHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long under the race detector; TestHistoryCheck checks the check")
	}
	lasts := 16 * time.Second
	if s := os.Getenv("FOREBAY_HISTORY"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	p := startProcesses(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var recorders []*recorder
	began := time.Now()
	for i := range 3 {
		m := mustConnect(t, meta.Options{URLs: p.urls(i)})
		if i == 0 {
			if _, err := m.CreateBuffer(longContext(t), bb.Buffer{Name: "buf"}); err != nil {
				t.Fatal(err)
			}
		}
		ns := mustNamespace(t, m, "buf")
		for n := i; n < 8; n += 3 {
			recorders = append(recorders, &recorder{id: n, ns: ns, m: m, rnd: rand.New(rand.NewPCG(seed, uint64(n))), began: began})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var running sync.WaitGroup
	for _, r := range recorders {
		running.Go(func() { r.run(ctx, t) })
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for pause(time.Second); ctx.Err() == nil; pause(2 * time.Second) {
		i := p.leader("KV_forebay-buf-")
		p.kill(i)
		t.Logf("%v: killed s%d", time.Since(began), i)
		pause(time.Second)
		p.start(i)
		pause(5 * time.Second)
		if ctx.Err() != nil {
			break
		}
		i = p.leader("KV_forebay-buf-")
		p.signal(i, syscall.SIGSTOP)
		t.Logf("%v: stopped s%d", time.Since(began), i)
		pause(7 * time.Second)
		p.signal(i, syscall.SIGCONT)
	}
	running.Wait()

	var history []porcupine.Operation
	outcomes := map[string]int{}
	for _, r := range recorders {
		history = append(history, r.ops...)
		for _, o := range r.ops {
			outcomes[fmt.Sprint(o.Input.(action).what, " ", o.Output.(outcome).kind)]++
		}
	}
	t.Logf("%d operations: %v", len(history), outcomes)
	if len(history) < 300 {
		t.Errorf("a history of %d operations shows nothing", len(history))
	}
	switch result, info := porcupine.CheckOperationsVerbose(filesModel, history, time.Minute); result {
	case porcupine.Illegal:
		at := "history.html"
		if dir := os.Getenv("FOREBAY_HISTORY_DIR"); dir != "" {
			at = dir + "/" + at
			if err := porcupine.VisualizePath(filesModel, info, at); err != nil {
				t.Error(err)
			}
		}
		t.Errorf("it is not linearizable (FOREBAY_HISTORY_DIR=DIR keeps it in DIR)")
	case porcupine.Unknown:
		t.Error("it could not be checked in a minute")
	}
}
