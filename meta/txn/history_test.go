package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/record"
	"forebay/meta/stream"
)

// files is the state of the model: the file of each name of a directory, 0 for none.
type files [3]bb.FileID

// action is one operation of a history, and outcome its result.
type action struct {
	what     string // create, rename, replace, remove, lookup, list, commit or commit over
	from, to int    // names; to of a rename
	file     bb.FileID
	output   files // of a transaction
}

type outcome struct {
	kind    bb.Kind // 0: it was done
	unknown bool
	file    bb.FileID
	list    files
}

// step is the model: whether an outcome is right in a state, and the state after. An operation of
// unknown outcome has no end in the history, and has here any possible outcome.
func (s files) step(a action, o outcome) (bool, files) {
	after := s
	var want outcome
	switch taken := s[a.from] != 0; {
	case a.what == "lookup" && taken:
		want.file = s[a.from]
	case a.what == "list":
		want.list = s
	case a.what == "commit" || a.what == "commit over":
		if a.what == "commit over" {
			after = files{}
		}
		for n, file := range a.output {
			if file != 0 {
				after[n] = file
			}
		}
	case a.what == "create" && taken:
		want.kind = bb.Exists
	case a.what == "create":
		after[a.from] = a.file
	case !taken:
		want.kind = bb.NotFound
	case a.what == "remove":
		want.file, after[a.from] = s[a.from], 0
	case a.what == "rename" && s[a.to] != 0:
		want.kind = bb.Exists
	default:
		want.file, after[a.to], after[a.from] = s[a.from], s[a.from], 0
	}
	return o.unknown || o == want, after
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
	commit := action{what: "commit", output: files{0, 5, 6}}
	for what, c := range map[string]struct {
		history []porcupine.Operation
		right   bool
	}{
		"in turn":            {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, lookup, outcome{file: 1}), op(5, 6, remove, outcome{file: 1})}, true},
		"a stale read":       {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, lookup, outcome{kind: bb.NotFound})}, false},
		"a stale listing":    {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, action{what: "list"}, outcome{})}, false},
		"lost, and done":     {[]porcupine.Operation{op(1, math.MaxInt64, create, outcome{unknown: true}), op(3, 4, lookup, outcome{file: 1})}, true},
		"done twice":         {[]porcupine.Operation{op(1, 2, create, outcome{kind: bb.Exists})}, false},
		"replaced":           {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, action{what: "create", from: 1, file: 2}, outcome{}), op(5, 6, action{what: "replace", to: 1}, outcome{file: 1}), op(7, 8, action{what: "list"}, outcome{list: files{0, 1}})}, true},
		"renamed over":       {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 4, action{what: "create", from: 1, file: 2}, outcome{}), op(5, 6, action{what: "rename", to: 1}, outcome{file: 1})}, false},
		"half a transaction": {[]porcupine.Operation{op(1, 9, commit, outcome{}), op(3, 4, action{what: "list"}, outcome{list: files{0, 5, 0}})}, false},
		"half replaced":      {[]porcupine.Operation{op(1, 2, create, outcome{}), op(3, 9, action{what: "commit over", output: commit.output}, outcome{}), op(4, 5, action{what: "list"}, outcome{list: files{1, 5, 6}})}, false},
		"committed, and not": {[]porcupine.Operation{op(1, 2, commit, outcome{}), op(3, 4, action{what: "lookup", from: 1}, outcome{kind: bb.NotFound})}, false},
	} {
		if got := porcupine.CheckOperations(filesModel, c.history); got != c.right {
			t.Errorf("%s: linearizable %v", what, got)
		}
	}
}

// reign is an owner of a log while callers send their calls to it.
type reign struct {
	*process
	log *mortalLog
	end func()
}

// cluster is the owners of a log, one after the other.
type cluster struct {
	t      *testing.T
	stream *stream.Stream
	now    atomic.Pointer[reign] // nil: there is none
	past   []*reign              // that were not closed
}

// succeed puts an owner in the place of another one, which is closed, or continues without knowing.
// It is killed at one of its next appends.
func (c *cluster) succeed(rnd *rand.Rand, closed bool) {
	old := c.now.Swap(nil) // its later answers reach no client
	if old != nil && closed {
		old.end()
	} else if old != nil {
		c.past = append(c.past, old)
	}
	log := &mortalLog{Log: c.stream, after: rnd.IntN(2) == 0}
	p, end := openLog(c.t, log)
	log.mu.Lock()
	log.left = 1 + rnd.IntN(60)
	log.mu.Unlock()
	c.now.Store(&reign{p, log, end})
}

// client carries out operations, and notes them.
type client struct {
	c      *cluster
	id     int
	rnd    *rand.Rand
	began  time.Time
	number uint64
	dirs   [2]bb.Entry // directories of clients' changes; destinations of transactions
	ops    [2][]porcupine.Operation
}

// ask calls do with the owner, and with the next one again if it was not answered.
func (c *client) ask(do func(ns *process) error) error {
	for {
		answered, err := c.askOnce(do)
		if answered {
			return err
		}
	}
}

// askOnce calls do with the present owner. Its result is no answer if the owner was replaced
// meanwhile.
func (c *client) askOnce(do func(ns *process) error) (answered bool, err error) {
	r := c.c.now.Load()
	if r == nil {
		time.Sleep(time.Millisecond)
		return false, nil
	}
	err = do(r.process)
	return c.c.now.Load() == r && !r.log.killed() && bb.KindOf(err) != bb.Unavailable && bb.KindOf(err) != bb.Cancelled, err
}

func name(n int) string { return fmt.Sprint("n", n) }

// run carries out operations.
func (c *client) run(n int, t *testing.T) {
	for i := range n {
		of := c.rnd.IntN(2)
		a := action{from: c.rnd.IntN(len(files{}))}
		a.to = (a.from + 1 + c.rnd.IntN(len(files{})-1)) % len(files{})
		a.file = bb.FileID(1<<32*uint64(c.id+1) + uint64(i))
		var call time.Duration
		var o outcome
		var err error
		end := time.Duration(math.MaxInt64)
		switch what := []string{"create", "create", "rename", "replace", "remove", "lookup", "list"}[c.rnd.IntN(7)]; {
		case what == "lookup" || what == "list":
			a.what = what
			call = time.Since(c.began)
			err = c.ask(func(ns *process) (err error) { o, err = c.read(ns, a, of); return err })
		case of == 1 && c.rnd.IntN(3) > 0:
			continue
		case of == 1:
			a.what = []string{"commit", "commit over"}[c.rnd.IntN(2)]
			for n := range a.output {
				if c.rnd.IntN(2) == 0 {
					a.output[n] = a.file + bb.FileID(1<<20*(n+1))
				}
			}
			call = time.Since(c.began)
			err = c.ask(func(ns *process) error { return c.commit(ns, a) })
		default:
			a.what = what
			call = time.Since(c.began)
			o, err = c.change(a)
		}
		if !o.unknown {
			end = time.Since(c.began)
		}
		switch k := bb.KindOf(err); {
		case err == nil || o.unknown:
		case k == bb.Exists, k == bb.NotFound:
			o = outcome{kind: k}
		default:
			t.Errorf("%+v: %v", a, err)
			return
		}
		c.ops[of] = append(c.ops[of], porcupine.Operation{ClientId: c.id, Input: a, Call: int64(call), Output: o, Return: int64(end)})
	}
}

// change carries a change out, in most cases with an ID, until it is answered.
func (c *client) change(a action) (o outcome, err error) {
	c.number++
	ctx := metatest.Context(c.c.t)
	do := func(ns *process) (err error) {
		o.file, err = c.changeAt(ctx, ns, a)
		return err
	}
	if c.rnd.IntN(4) > 0 {
		ctx = once.With(ctx, once.ID{Session: record.Session{byte(c.id), 7}, Number: c.number, Answered: c.number})
		err = c.ask(do)
		return o, err
	}
	for {
		r := c.c.now.Load()
		answered, err := c.askOnce(do)
		if r != nil && !answered {
			o = outcome{unknown: true}
		}
		if r != nil {
			return o, err
		}
	}
}

func (c *client) changeAt(ctx context.Context, ns *process, a action) (bb.FileID, error) {
	d := c.dirs[0].Dir
	switch a.what {
	case "create":
		_, err := ns.Create(ctx, bb.Entry{Parent: d, Name: name(a.from), Type: bb.TypeFile, File: a.file})
		return 0, err
	case "remove":
		e, err := ns.Remove(ctx, d, name(a.from), namespace.RemoveOptions{})
		return e.File, err
	default:
		moved, err := ns.Rename(ctx, d, name(a.from), d, name(a.to), namespace.RenameOptions{Replace: a.what == "replace"})
		return moved.Entry.File, err
	}
}

// read looks a name up, or lists the directory, as readers do that may meet unions: from the root,
// and again if a transaction was decided meanwhile.
func (c *client) read(ns *process, a action, of int) (o outcome, err error) {
	ctx := metatest.Context(c.c.t)
	for {
		before, err := ns.Decisions(ctx)
		if err != nil {
			return o, err
		}
		_, v, err := ns.LookupUnion(ctx, RootUnion(), c.dirs[of].Name)
		if err != nil {
			return o, err
		}
		if a.what == "lookup" {
			e, _, err := ns.LookupUnion(ctx, v, name(a.from))
			if errors.Is(err, kv.ErrConflict) {
				continue
			}
			return outcome{file: e.File}, err
		}
		entries, _, err := ns.ListUnion(ctx, v, "", bb.MaxPageSize)
		if bb.KindOf(err) == bb.NotFound && !v.Plain() {
			continue // it was materialized meanwhile
		}
		if err != nil {
			return o, err
		}
		for i := range entries {
			for n := range o.list {
				if entries[i].Name == name(n) {
					o.list[n] = entries[i].File
				}
			}
		}
		if after, err := ns.Decisions(ctx); err != nil || after == before {
			return o, err
		}
		o = outcome{}
	}
}

// commit commits a transaction, or continues with that. It may leave it to others to fold it.
func (c *client) commit(ns *process, a action) error {
	ctx := metatest.Context(c.c.t)
	d := c.dirs[1]
	x, err := ns.BeginTxn(ctx, bb.Txn{Destination: d.Name, Dir: d.Dir, Key: a.file.String(), UID: 7})
	if err != nil || x.State.Decided() {
		return err
	}
	if now, err := ns.TxnTask(ctx, x.ID, "task"); err != nil {
		return err
	} else if x.State == bb.TxnOpen && now == "" {
		dir, err := ns.MkdirAll(ctx, path.Join(x.Path(), attemptDir, "task/0"), namespace.Owner{Mode: 0o700})
		if err != nil {
			return err
		}
		for n, file := range a.output {
			if file != 0 {
				if _, err = ns.Create(ctx, bb.Entry{Parent: dir.Dir, Name: name(n), Type: bb.TypeFile, File: file}); again(err) != nil {
					return err
				}
			}
		}
		if _, err := ns.AdoptTxn(ctx, x.ID, "task", "0"); err != nil {
			return err
		}
	}
	var replace []string
	if a.what == "commit over" {
		replace = []string{"."}
	}
	return commitTxn(ctx, ns, x.ID, replace, &plainMover{ns: ns})
}

// TestHistory checks that clients' operations, and transactions, are linearizable while owners are
// killed, and replaced while they run.
func TestHistory(t *testing.T) {
	t.Parallel()
	rounds, each := 6, 60
	if testing.Short() {
		rounds = 2
	}
	conn := kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	for round := range rounds {
		s := stream.New(conn, fmt.Sprint("NS_", round))
		if err := s.Ensure(metatest.Context(t)); err != nil {
			t.Fatal(err)
		}
		history(t, &cluster{t: t, stream: s}, uint64(round), each)
	}
}

func history(t *testing.T, c *cluster, seed uint64, each int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 99))
	first, end := openLog(t, c.stream)
	var dirs [2]bb.Entry
	for i := range dirs {
		var err error
		if dirs[i], err = first.Mkdir(metatest.Context(t), bb.RootDir, fmt.Sprint("dir", i), namespace.Owner{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	end()
	c.succeed(rnd, true)
	clients := make([]*client, 6)
	var running sync.WaitGroup
	began := time.Now()
	for i := range clients {
		clients[i] = &client{c: c, id: i, rnd: rand.New(rand.NewPCG(seed, uint64(i))), began: began, dirs: dirs}
		running.Go(func() { clients[i].run(each, t) })
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	owners := 0
	for going := true; going; {
		select {
		case <-done:
			going = false
		case <-time.After(time.Millisecond):
			if r := c.now.Load(); r.log.killed() || rnd.IntN(15) == 0 {
				c.succeed(rnd, r.log.killed())
				owners++
			}
		}
	}
	for _, r := range append(c.past, c.now.Load()) {
		r.end()
	}
	unknown, total := 0, 0
	for of := range dirs {
		var history []porcupine.Operation
		for _, cl := range clients {
			history = append(history, cl.ops[of]...)
		}
		for _, o := range history {
			if total++; o.Output.(outcome).unknown {
				unknown++
			}
		}
		if result, _ := porcupine.CheckOperationsVerbose(filesModel, history, time.Minute); result != porcupine.Ok {
			t.Errorf("seed %d, directory %d: %d operations are not linearizable: %v", seed, of, len(history), result)
		}
	}
	t.Logf("seed %d: %d operations, %d of unknown outcome, %d owners", seed, total, unknown, owners)
	if owners < 3 {
		t.Errorf("seed %d: %d owners were replaced: the test does not test", seed, owners)
	}
}
