package shared_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"forebay/internal/bb"
	"forebay/internal/porttest"
	"forebay/meta/conn"
	"forebay/meta/embedded"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/shared"
)

const (
	dirs   = 2
	perDir = 3
)

// files is the file of each name of two directories, 0 for none.
type files [dirs * perDir]bb.FileID

// state is that of the model: files, and the directory subName in the first directory, 0 for none, or anyDir if it is not
// known which.
type state struct {
	files
	sub bb.DirID
}

const (
	subName = "sub"
	anyDir  = bb.DirID(math.MaxUint64)
)

type verb string

const (
	create   verb = "create"
	rename   verb = "rename"
	exchange verb = "exchange"
	remove   verb = "remove"
	stat     verb = "stat"
	list     verb = "list"
	mkdir    verb = "mkdir"   // of subName, empty
	rmdir    verb = "rmdir"   // of it
	listSub  verb = "listSub" // the directory that it was once
)

// action is one operation of the history, and answer its result.
type action struct {
	verb     verb
	from, to int // names; a directory of a list
	replace  bool
	file     bb.FileID // that is created
	dir      bb.DirID  // of listSub
}

type answer struct {
	kind     bb.Kind // 0: it was done; Unavailable: unknown
	file     bb.FileID
	replaced bb.FileID
	listed   [perDir]bb.FileID
	dir      bb.DirID // that is made, removed, or listed
}

// step is the model: whether an answer is right in a state, and the state after. An operation of
// unknown outcome has no end in the history, and has here any possible outcome.
func (s state) step(a action, o answer) (bool, state) {
	if s.sub == anyDir {
		if s.sub = o.dir; a.verb == listSub && o.kind == 0 {
			s.sub = a.dir
		}
	}
	if a.verb == mkdir || a.verb == rmdir || a.verb == listSub {
		return s.stepSub(a, o)
	}
	want, next := answer{}, state{sub: s.sub}
	want, next.files = s.do(a)
	if a.verb == list && a.from == 0 {
		want.dir = s.sub
	}
	if o.kind == bb.Unavailable {
		return true, next
	}
	return o == want, next
}

// stepSub is step of the directory in the first one.
func (s state) stepSub(a action, o answer) (bool, state) {
	next := s
	var want answer
	switch {
	case a.verb == listSub && (s.sub != a.dir || a.dir == 0), a.verb == rmdir && s.sub == 0:
		want.kind = bb.NotFound
	case a.verb == mkdir && s.sub != 0:
		want.kind = bb.Exists
	case a.verb == rmdir:
		want.dir, next.sub = s.sub, 0
	case a.verb == mkdir && o.kind == bb.Unavailable:
		next.sub = anyDir
	case a.verb == mkdir:
		want.dir, next.sub = o.dir, o.dir
	}
	return o == want || o.kind == bb.Unavailable, next
}

func (s files) do(a action) (o answer, next files) {
	next = s
	there := a.verb != list && s[a.from] != 0
	switch {
	case a.verb == list:
		copy(o.listed[:], s[a.from*perDir:])
	case a.verb == create && there:
		o.kind = bb.Exists
	case a.verb == create:
		next[a.from] = a.file
	case !there:
		o.kind = bb.NotFound
	case a.verb == stat:
		o.file = s[a.from]
	case a.verb == remove:
		o.file, next[a.from] = s[a.from], 0
	case a.verb == exchange && s[a.to] == 0:
		o.kind = bb.NotFound
	case a.verb == exchange:
		o.file, o.replaced = s[a.from], s[a.to]
		next[a.to], next[a.from] = s[a.from], s[a.to]
	case s[a.to] != 0 && !a.replace:
		o.kind = bb.Exists
	default:
		o.file, o.replaced = s[a.from], s[a.to]
		next[a.to], next[a.from] = s[a.from], 0
	}
	return o, next
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(was, input, output any) (bool, any) {
		return was.(state).step(input.(action), output.(answer))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// The check must be able to fail.
func TestHistoryCheck(t *testing.T) {
	t.Parallel()
	op := func(call, end int64, a action, o answer) porcupine.Operation {
		return porcupine.Operation{Input: a, Call: call, Output: o, Return: end}
	}
	made, found := action{verb: create, file: 1}, answer{file: 1}
	lost := answer{kind: bb.Unavailable}
	over := action{verb: rename, to: 1, replace: true}
	other := action{verb: create, from: 1, file: 2}
	swap := action{verb: exchange, to: 1}
	sub, gone := action{verb: mkdir}, action{verb: rmdir}
	in := func(dir bb.DirID) action { return action{verb: listSub, dir: dir} }
	both := []porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, other, answer{})}
	for what, c := range map[string]struct {
		history []porcupine.Operation
		right   bool
	}{
		"in turn":         {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, action{verb: stat}, found), op(5, 6, action{verb: remove}, found)}, true},
		"a stale stat":    {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, action{verb: stat}, answer{kind: bb.NotFound})}, false},
		"a stale list":    {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, action{verb: list}, answer{})}, false},
		"two creators":    {[]porcupine.Operation{op(1, 3, made, answer{}), op(2, 4, made, answer{})}, false},
		"lost, and done":  {[]porcupine.Operation{op(1, math.MaxInt64, made, lost), op(3, 4, action{verb: stat}, found)}, true},
		"lost, and not":   {[]porcupine.Operation{op(1, math.MaxInt64, made, lost), op(3, 4, action{verb: stat}, answer{kind: bb.NotFound})}, true},
		"replaced":        {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, other, answer{}), op(5, 6, over, answer{file: 1, replaced: 2})}, true},
		"replaced nobody": {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, other, answer{}), op(5, 6, over, found)}, false},
		"exchanged":       {append(both[:2:2], op(5, 6, swap, answer{file: 1, replaced: 2}), op(7, 8, action{verb: stat}, answer{file: 2})), true},
		"exchanged twice": {append(both[:2:2], op(5, 6, swap, answer{file: 1, replaced: 2}), op(7, 8, action{verb: stat}, found)), false},
		"with nothing":    {[]porcupine.Operation{op(1, 2, made, answer{}), op(3, 4, swap, answer{file: 1})}, false},
		"a directory":     {[]porcupine.Operation{op(1, 2, sub, answer{dir: 5}), op(3, 4, in(5), answer{}), op(5, 6, action{verb: list}, answer{dir: 5}), op(7, 8, gone, answer{dir: 5}), op(9, 10, in(5), answer{kind: bb.NotFound})}, true},
		"a stale one":     {[]porcupine.Operation{op(1, 2, sub, answer{dir: 5}), op(3, 4, gone, answer{dir: 5}), op(5, 6, in(5), answer{})}, false},
		"another one":     {[]porcupine.Operation{op(1, 2, sub, answer{dir: 5}), op(3, 4, gone, answer{dir: 5}), op(5, 6, sub, answer{dir: 6}), op(7, 8, in(5), answer{})}, false},
		"a missing one":   {[]porcupine.Operation{op(1, 2, sub, answer{dir: 5}), op(3, 4, action{verb: list}, answer{})}, false},
		"a lost one":      {[]porcupine.Operation{op(1, math.MaxInt64, sub, lost), op(3, 4, in(5), answer{}), op(5, 6, gone, answer{dir: 5}), op(7, 8, in(5), answer{kind: bb.NotFound})}, true},
		"refused, done":   {[]porcupine.Operation{op(1, 2, made, answer{kind: bb.Exists})}, false},
	} {
		if got := porcupine.CheckOperations(model, c.history); got != c.right {
			t.Errorf("%s: linearizable %v", what, got)
		}
	}
}

// run is one history: clients at three daemons, and the faults of these.
type run struct {
	*cluster
	rnd      *rand.Rand
	daemons  []*daemon // of nodes n0, n1, n2
	mu       sync.Mutex
	dirs     [dirs]bb.DirID
	server   owner.Log // as nobody's fault keeps it
	began    time.Time
	done     atomic.Int64 // operations
	running  atomic.Int64 // clients
	lastFile atomic.Uint64
	lastSub  atomic.Uint64 // the directory that was made last
	listed   atomic.Int64  // listings by daemons from their memory, at least
}

func (r *run) daemon(i int) *daemon {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.daemons[i]
}

// client is one caller, at one daemon after the other.
type client struct {
	*run
	id      int
	rnd     *rand.Rand
	session record.Session
	number  uint64
	unknown int
	ops     []porcupine.Operation
}

func (c *client) play(ctx context.Context, operations int) {
	for range operations {
		if ctx.Err() != nil {
			return
		}
		a := action{verb: c.verbs[c.rnd.IntN(len(c.verbs))], from: c.rnd.IntN(len(files{}))}
		switch a.verb {
		case list:
			a.from %= dirs
		case listSub:
			a.dir = bb.DirID(c.lastSub.Load())
		case create:
			a.file = bb.FileID(c.lastFile.Add(1))
		case rename, exchange:
			a.to, a.replace = (a.from+1+c.rnd.IntN(len(files{})-1))%len(files{}), c.rnd.IntN(2) == 0
		}
		c.record(ctx, a)
		c.done.Add(1)
	}
}

// record carries out an operation until it is answered, at the client's daemon and at others while
// that is killed, and now and then not for long enough.
func (c *client) record(ctx context.Context, a action) {
	c.number++
	id := once.ID{Session: c.session, Number: c.number, Answered: c.number}
	one, cancel := context.WithCancel(ctx)
	if c.rnd.IntN(100) == 0 && c.unknown < 2 && a.verb != mkdir { // else all that follows may be right
		c.unknown++
		one, cancel = context.WithTimeout(ctx, time.Duration(c.rnd.IntN(20))*time.Millisecond)
	}
	defer cancel()
	call := time.Since(c.began)
	var o answer
	var err error
	for at := c.id; ; at++ {
		d := c.daemon(at % len(c.daemons))
		alive, stop := context.WithCancel(once.With(one, id))
		go func() {
			select {
			case <-d.dead:
				stop()
			case <-alive.Done():
			}
		}()
		var sent atomic.Int64
		owns := d.tree.Owns()
		o, err = c.do(context.WithValue(alive, listCalls{}, &sent), d.tree, a)
		if (a.verb == list || a.verb == listSub) && err == nil && !owns && !d.tree.Owns() && sent.Load() == 0 {
			c.listed.Add(1)
		}
		stop()
		if err == nil || one.Err() != nil || alive.Err() == nil || !isOver(err) {
			break
		}
	}
	end := int64(time.Since(c.began))
	switch {
	case err == nil:
	case isOver(err):
		o, end = answer{kind: bb.Unavailable}, math.MaxInt64
		if a.verb == stat || a.verb == list || a.verb == listSub || !errors.Is(err, bb.ErrUnknownOutcome) {
			return // it has changed nothing
		}
	case errors.Is(err, bb.Exists), errors.Is(err, bb.NotFound):
		o.kind = bb.KindOf(err)
	default:
		c.failed("%+v: %v", a, err)
		return
	}
	c.ops = append(c.ops, porcupine.Operation{ClientId: c.id, Input: a, Call: int64(call), Output: o, Return: end})
}

func isOver(err error) bool { return errors.Is(err, bb.Unavailable) || errors.Is(err, bb.Cancelled) }

func (c *client) place(n int) (bb.DirID, string) { return c.dirs[n/perDir], strconv.Itoa(n % perDir) }

// listCalls is the key of a context's count of calls for a listing.
type listCalls struct{}

func (c *client) do(ctx context.Context, ns namespace.Tree, a action) (o answer, err error) {
	if a.verb == list {
		entries, _, err := ns.List(ctx, c.dirs[a.from], "", 100)
		for _, e := range entries {
			if e.IsDir() {
				o.dir = e.Dir
				continue
			}
			n, _ := strconv.Atoi(e.Name)
			o.listed[n] = e.File
		}
		return o, err
	}
	dir, name := c.place(a.from)
	switch a.verb {
	case mkdir:
		var e bb.Entry
		if e, err = ns.Mkdir(ctx, c.dirs[0], subName, namespace.Owner{}); err == nil {
			c.lastSub.Store(uint64(e.Dir))
		}
		o.dir = e.Dir
	case rmdir:
		var e bb.Entry
		e, err = ns.Remove(ctx, c.dirs[0], subName, namespace.RemoveOptions{})
		o.dir = e.Dir
	case listSub:
		_, _, err = ns.List(ctx, a.dir, "", 100)
	case create:
		_, err = ns.Create(ctx, bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: a.file})
	case stat:
		var e bb.Entry
		e, err = ns.Lookup(ctx, dir, name)
		o.file = e.File
	case remove:
		var e bb.Entry
		e, err = ns.Remove(ctx, dir, name, namespace.RemoveOptions{StoreOp: a.from%2 == 0})
		o.file = e.File
	case exchange:
		toDir, to := c.place(a.to)
		x, xerr := ns.Exchange(ctx, dir, name, toDir, to, namespace.ExchangeOptions{StoreOp: a.from%2 == 0})
		o.file, o.replaced, err = x.Entry.File, x.Other.File, xerr
	default:
		var m namespace.Renamed
		toDir, to := c.place(a.to)
		m, err = ns.Rename(ctx, dir, name, toDir, to, namespace.RenameOptions{Replace: a.replace, StoreOp: a.from%2 == 0})
		o.file = m.Entry.File
		if m.Replaced != nil {
			o.replaced = m.Replaced.File
		}
	}
	return o, err
}

// wait returns when so many more operations were done, or no client is left, or the remaining ones
// wait for the caller's next step.
func (r *run) wait(operations int64) {
	began := time.Now()
	for until := r.done.Load() + operations; r.done.Load() < until && r.running.Load() > 0 && time.Since(began) < time.Second; {
		time.Sleep(time.Millisecond)
	}
}

// disturb does something to the owner, and makes another daemon claim the log.
func (r *run) disturb(ctx context.Context) {
	at := 0
	h, err := owner.Newest(ctx, r.server)
	for i := range r.daemons {
		if r.daemon(i).node == h.Node {
			at = i
		}
	}
	if err != nil && ctx.Err() == nil {
		r.failed("%v", err)
	}
	is, next := r.daemon(at), r.daemon((at+1+r.rnd.IntN(2))%3)
	claim := func() {
		if err := next.tree.Claim(ctx); err != nil && ctx.Err() == nil {
			r.failed("claim: %v", err)
		}
		r.wait(15)
	}
	switch n := r.rnd.IntN(7); n {
	case 0: // it is killed
		r.kill(is)
		claim()
		again := r.start(is.node, at)
		r.mu.Lock()
		r.daemons[at] = again
		r.mu.Unlock()
	case 1: // it is stopped before it appends, or after
		is.log.before.close()
		claim()
		is.log.before.open()
	case 2:
		is.log.after.close()
		claim()
		is.log.after.open()
	case 3: // it does not reach the log
		is.log.all.close()
		claim()
		is.log.all.open()
	case 4: // calls reach it when another one is the owner
		is.calls.close()
		claim()
		is.calls.open()
	case 5: // it is drained
		if err := is.tree.Release(ctx); err != nil {
			r.failed("release: %v", err)
		}
		claim()
	default: // it is replaced without a reason
		claim()
	}
}

// history plays one history, and returns whether it is linearizable.
func (c *cluster) history(seed uint64, operations int, restart func()) (porcupine.CheckResult, int) {
	if c.verbs == nil {
		c.verbs = []verb{create, create, rename, rename, exchange, exchange, remove, stat, stat, list, list, mkdir, rmdir, listSub}
	}
	r := &run{cluster: c, rnd: rand.New(rand.NewPCG(seed, 1)), began: time.Now()}
	for i := range 3 {
		r.daemons = append(r.daemons, c.start(bb.NodeID(fmt.Sprint("n", i)), i))
	}
	r.server = r.daemons[0].log.Log
	ctx, cancel := context.WithTimeout(c.t.Context(), c.patience)
	defer cancel()
	claim(c.t, r.daemons[0])
	prepare(c.t, r.daemons[0])
	for i := range r.dirs {
		d, err := r.daemons[i].tree.MkdirAll(ctx, fmt.Sprint("d", i), namespace.Owner{})
		if err != nil {
			c.t.Fatal(err)
		}
		r.dirs[i] = d.Dir
	}
	var clients []*client
	var running sync.WaitGroup
	for i := range 6 {
		cl := &client{run: r, id: i, rnd: rand.New(rand.NewPCG(seed, uint64(i+10))), session: record.Session{byte(i), 1}}
		clients = append(clients, cl)
		r.running.Add(1)
		running.Go(func() {
			defer r.running.Add(-1)
			cl.play(ctx, operations)
		})
	}
	for n := 1; r.running.Load() > 0; n++ {
		r.wait(20)
		if r.running.Load() > 0 {
			r.disturb(ctx)
		}
		if n == 2 && restart != nil {
			restart()
		}
	}
	running.Wait()
	var ops []porcupine.Operation
	for _, cl := range clients {
		ops = append(ops, cl.ops...)
	}
	for i := range r.daemons {
		c.kill(r.daemon(i))
	}
	c.listed += r.listed.Load()
	result, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	if dir := os.Getenv("FOREBAY_HISTORY_DIR"); dir != "" && result == porcupine.Illegal {
		if err := porcupine.VisualizePath(model, info, fmt.Sprintf("%s/history-%d.html", dir, seed)); err != nil {
			c.t.Error(err)
		}
	}
	return result, len(ops)
}

func historyOptions() shared.Options {
	return shared.Options{Lease: 100 * time.Millisecond, Patience: 50 * time.Millisecond, CheckpointBytes: 4000, Pauses: lease.Pauses{First: time.Millisecond}}
}

// TestHistory checks that creations, renames, removals, stats and listings, by owners and under leases, are
// linearizable, and carried out once, while owners are killed, stopped, cut off and replaced, and messages are lost,
// repeated and late. FOREBAY_SEEDS=N makes N histories of it.
func TestHistory(t *testing.T) {
	seeds := uint64(4)
	if s := os.Getenv("FOREBAY_SEEDS"); s != "" {
		var err error
		if seeds, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	var listed int64
	for seed := range seeds {
		c := inProcess(t, newNetwork(seed, 15), historyOptions())
		if seed%2 == 1 { // leases last longer where more is read
			c.verbs = []verb{create, remove, rename, mkdir, rmdir, stat, stat, list, list, list, list, listSub, listSub, listSub}
		}
		result, n := c.history(seed, 60, nil)
		if result != porcupine.Ok {
			t.Errorf("seed %d: %d operations: %v (FOREBAY_HISTORY_DIR=DIR keeps it in DIR)", seed, n, result)
		}
		if n < 250 {
			t.Errorf("seed %d: a history of %d operations shows nothing", seed, n)
		}
		listed += c.listed
	}
	if t.Logf("%d listings were answered from memory under a lease", listed); listed == 0 {
		t.Error("no listing was answered from memory")
	}
}

// A history finds each fault: a new owner that does not wait, appends that are not fenced, dropped
// outcomes, leases that are not revoked. Where names are only made, these are leases of absent names, and of listings.
func TestHistoryFindsFaults(t *testing.T) {
	verbs := map[string][]verb{
		"no revocations of absent names":        {create, stat, stat, stat, stat, stat, stat, stat}, // each name is made once
		"no revocations of listings":            {create, list, list, list, list, list, list, list},
		"no revocations of removed directories": {mkdir, mkdir, rmdir, rmdir, listSub, listSub, listSub, listSub},
	}
	for what, f := range map[string]fault{
		"no lease": noLease, "no fence": noFence, "no outcomes": forgets, "no revocations": noRevoke, "no revocations of absent names": noRevoke,
		"no revocations of listings": noRevoke, "no revocations of removed directories": noRevoke,
	} {
		found := false
		tries := uint64(0)
		for ; !found && tries < 60; tries++ {
			t.Run("", func(t *testing.T) {
				c := inProcess(t, newNetwork(tries, 8), historyOptions())
				c.fault, c.patience = f, 5*time.Second
				c.net.keeps = f == noRevoke
				c.verbs = verbs[what]
				c.failed = t.Logf // a history shows it, if it can
				if f == noLease {
					c.o.Lease = 10 * time.Second
				}
				result, _ := c.history(tries, 60, nil)
				found = result == porcupine.Illegal
			})
		}
		if !found {
			t.Errorf("%s: no history has found it", what)
		}
		t.Logf("%s: found by history %d", what, tries)
	}
}

// TestHistoryServerRestarted is TestHistory while the namespace's server is stopped and started.
func TestHistoryServerRestarted(t *testing.T) {
	address, err := porttest.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	o := embedded.Options{Dir: t.TempDir(), Listen: address}
	s := startServers(t, []embedded.Options{o})
	s.check(t, conn.Options{URLs: []string{"nats://" + address}}, 0)
}

// TestHistoryThreeServers is TestHistory on three servers, of which one after the other is stopped
// and started.
func TestHistoryThreeServers(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take long under the race detector")
	}
	var addresses [6]string
	for i := range addresses {
		var err error
		if addresses[i], err = porttest.Free("127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	key := bytes.Repeat([]byte("k"), 32)
	var options []embedded.Options
	var urls []string
	for i := range 3 {
		options = append(options, embedded.Options{
			Name: fmt.Sprint("s", i), Dir: t.TempDir(), Listen: addresses[i], Key: key,
			Cluster: &embedded.Cluster{Listen: addresses[3+i], Routes: addresses[3:]},
		})
		urls = append(urls, "tls://"+addresses[i])
	}
	s := startServers(t, options)
	s.check(t, conn.Options{URLs: urls, ClusterKey: key, Replicas: 3}, 2)
}

// servers are those of a namespace, in this process.
type servers struct {
	options []embedded.Options
	running []*embedded.Server
}

func startServers(t *testing.T, options []embedded.Options) *servers {
	t.Helper()
	s := &servers{options: options, running: make([]*embedded.Server, len(options))}
	var all sync.WaitGroup
	for i := range options {
		all.Go(func() { s.start(t, i) })
	}
	all.Wait()
	t.Cleanup(func() {
		for _, one := range s.running {
			if one != nil {
				one.Shutdown()
			}
		}
	})
	return s
}

func (s *servers) start(t *testing.T, i int) {
	one, err := embedded.Start(metatest.Context(t), s.options[i])
	if err != nil {
		t.Error(err)
	}
	s.running[i] = one
}

// check plays a history during which servers are restarted.
func (s *servers) check(t *testing.T, o conn.Options, last int) {
	t.Helper()
	net := newNetwork(1, 15)
	t.Cleanup(net.late.Wait)
	c := &cluster{
		t: t, net: net, o: historyOptions(), ids: &ids{}, failed: t.Errorf, patience: 5 * time.Minute,
		connect: func(int) *conn.Conn { return kvtest.Dial(t, o) },
	}
	result, n := c.history(1, 60, func() {
		for i := range last + 1 {
			s.running[i].Shutdown()
			s.start(t, i)
		}
	})
	if result != porcupine.Ok {
		t.Errorf("%d operations: %v", n, result)
	}
	if n < 250 {
		t.Errorf("a history of %d operations shows nothing", n)
	}
}
