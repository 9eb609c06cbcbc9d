package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// fault is what happens to one request of an operation.
type fault struct {
	name    string
	carries bool // the server carries it out
	ends    bool // the operation's context ends then; else its requests go through from then on
	late    bool // the server gets it, or gets it again, when the operation is over
}

var faults = []fault{
	{"answer lost", true, false, false},
	{"answer lost for good", true, true, false},
	{"request lost", false, false, false},
	{"request lost for good", false, true, false},
	{"request late", false, true, true},
	{"request repeated late", true, false, true},
	{"request overtaken by its repetition", false, false, true},
}

// losing stands between a namespace and the server.
type losing struct {
	mu      sync.Mutex
	c       *kv.Conn
	subject string // prefix of the subjects of the bucket's keys
	fault   *fault // nil: none
	at      int    // the change that it happens to, from 1 on
	seen    int    // changes so far
	cancel  func()
	held    []*kv.Message
}

// arm makes a fault happen to the n-th change from now on; 0: none.
func (l *losing) arm(f *fault, n int, cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.at, l.seen, l.cancel, l.held = f, n, 0, cancel, nil
}

func (l *losing) intercept(ctx context.Context, msgs []*kv.Message) (*kv.Message, error) {
	l.mu.Lock()
	key, changes := strings.CutPrefix(msgs[0].Subject, l.subject)
	hit := false
	if changes && !kv.IsBarrier(key) {
		l.seen++
		hit = l.seen == l.at
	}
	f, cancel := l.fault, l.cancel
	if hit && f.late {
		for _, m := range msgs {
			l.held = append(l.held, &kv.Message{Subject: m.Subject, Header: maps.Clone(m.Header), Data: m.Data})
		}
	}
	l.mu.Unlock()
	if !hit {
		return l.c.Deliver(ctx, msgs)
	}
	if f.carries {
		if _, err := l.c.Deliver(ctx, msgs); err != nil {
			return nil, err
		}
	}
	if f.ends {
		cancel()
	}
	return nil, kv.ErrUncertain
}

// release sends what was held back, and disarms. It returns how many changes there were.
func (l *losing) release(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	held, seen := l.held, l.seen
	l.mu.Unlock()
	if len(held) > 0 {
		if _, err := l.c.Deliver(testContext(t), held); err != nil {
			t.Fatal(err)
		}
	}
	l.arm(nil, 0, nil)
	return seen
}

// mutation is one operation of a namespace, carried out in a directory of its own.
type mutation struct {
	prepare func(t *testing.T, ns *Namespace, dir bb.Entry)
	do      func(ctx context.Context, ns *Namespace, dir bb.Entry) error
	steps   bool // it consists of several changes, each of which can be seen
}

// calls are the operations that change a namespace.
var calls = map[string]mutation{
	"create": {nil, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.Create(ctx, bb.Entry{Parent: dir.Dir, Name: "f", Type: bb.TypeFile, File: bb.FileID(dir.Dir), Mode: 0o644})
		return err
	}, false},
	"create in a marked directory": {marked, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.Create(ctx, bb.Entry{Parent: dir.Dir, Name: "f", Type: bb.TypeFile, File: bb.FileID(dir.Dir), Mode: 0o644})
		return err
	}, false},
	"put": {withFile, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		e, err := ns.Lookup(ctx, dir.Dir, "f")
		if err != nil {
			return err
		}
		e.Mode = 0o600
		_, err = ns.Put(ctx, e)
		return err
	}, false},
	"set attributes": {withFile, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		uid := uint32(9)
		_, err := ns.SetAttr(ctx, dir.Dir, "f", Attr{UID: &uid})
		return err
	}, false},
	"mkdir": {nil, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.Mkdir(ctx, dir.Dir, "d", Owner{Mode: 0o755})
		return err
	}, false},
	"mkdirall": {nil, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.MkdirAll(ctx, dir.Name+"/a/b", Owner{Mode: 0o755})
		return err
	}, true},
	"remove a file":                {withFile, removing("f", RemoveOptions{}), false},
	"remove a file of the store":   {withFile, removing("f", RemoveOptions{StoreOp: true}), false},
	"remove a directory":           {withDirs, removing("d", RemoveOptions{}), false},
	"remove a directory and note":  {withDirs, removing("d", RemoveOptions{StoreOp: true}), false},
	"remove a full directory":      {withTree, removing("d", RemoveOptions{}), false},
	"rename a file":                {withFile, renaming("f", "g", RenameOptions{}), false},
	"rename a file of the store":   {withFile, renaming("f", "g", RenameOptions{StoreOp: true}), false},
	"replace a file":               {withFiles, renaming("f", "g", RenameOptions{Replace: true, StoreOp: true}), false},
	"rename a file to a directory": {withDirsAndFile, renaming("f", "d/f", RenameOptions{}), false},
	"rename a directory":           {withTree, renaming("d", "e", RenameOptions{StoreOp: true}), false},
	"replace a directory":          {withDirs, renaming("d", "e", RenameOptions{Replace: true}), false},
	"move a directory":             {withDirs, renaming("d", "e/d", RenameOptions{StoreOp: true}), false},
	"replace a full directory": {func(t *testing.T, ns *Namespace, dir bb.Entry) {
		withDirs(t, ns, dir)
		create(t, ns, resolve(t, ns, dir.Name+"/e").Dir, "f")
	}, renaming("d", "e", RenameOptions{Replace: true}), false},
	"remove all": {withTree, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		return ns.RemoveAll(ctx, dir.Dir, "d", RemoveOptions{}, nil)
	}, true},
	"remove all of the store": {withTree, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		return ns.RemoveAll(ctx, dir.Dir, "d", RemoveOptions{StoreOp: true}, nil)
	}, true},
	"begin": {nil, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.BeginTxn(ctx, txnIn(dir))
		return err
	}, true},
	"renew": {begun, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.RenewTxn(ctx, txnIn(dir).ID)
		return err
	}, false},
	"adopt": {begun, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		winner, err := ns.AdoptTxn(ctx, txnIn(dir).ID, "task", "1")
		if err == nil && winner != "1" {
			err = fmt.Errorf("attempt %q was adopted", winner)
		}
		return err
	}, false},
	"abort": {begun, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.AbortTxn(ctx, txnIn(dir).ID, "no reason")
		return err
	}, false},
	"commit": {adopted, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		return commitTxn(ctx, ns, txnIn(dir).ID, nil, &plainMover{ns: ns})
	}, true},
	"fold": {func(t *testing.T, ns *Namespace, dir bb.Entry) {
		adopted(t, ns, dir)
		if err := commitTxn(testContext(t), ns, txnIn(dir).ID, nil, &plainMover{ns: ns}); err != nil {
			t.Fatal(err)
		}
	}, func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		mv := &plainMover{ns: ns}
		if err := ns.FoldTxn(ctx, txnIn(dir).ID, mv); err != nil {
			return err
		}
		return ns.CleanTxn(ctx, txnIn(dir).ID, mv)
	}, true},
}

func resolve(t *testing.T, ns *Namespace, path string) bb.Entry {
	t.Helper()
	e, err := ns.Resolve(testContext(t), path)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func withFile(t *testing.T, ns *Namespace, dir bb.Entry) { create(t, ns, dir.Dir, "f") }

func withFiles(t *testing.T, ns *Namespace, dir bb.Entry) {
	create(t, ns, dir.Dir, "f")
	create(t, ns, dir.Dir, "g")
}

func withDirs(t *testing.T, ns *Namespace, dir bb.Entry) {
	mkdir(t, ns, dir.Dir, "d")
	mkdir(t, ns, dir.Dir, "e")
}

func withDirsAndFile(t *testing.T, ns *Namespace, dir bb.Entry) {
	withDirs(t, ns, dir)
	withFile(t, ns, dir)
}

func withTree(t *testing.T, ns *Namespace, dir bb.Entry) {
	d := mkdir(t, ns, dir.Dir, "d")
	create(t, ns, d.Dir, "f")
	create(t, ns, mkdir(t, ns, d.Dir, "deep").Dir, "g")
}

// marked leaves a mark of removal, as a remover that died does.
func marked(t *testing.T, ns *Namespace, dir bb.Entry) {
	c, err := ns.loadDir(testContext(t), dir.Dir)
	if err == nil {
		d := c.value
		d.removing = true
		_, err = ns.putDir(testContext(t), dir.Dir, d, c.seq)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func removing(name string, o RemoveOptions) func(context.Context, *Namespace, bb.Entry) error {
	return func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		_, err := ns.Remove(ctx, dir.Dir, name, o)
		return err
	}
}

func renaming(from, to string, o RenameOptions) func(context.Context, *Namespace, bb.Entry) error {
	return func(ctx context.Context, ns *Namespace, dir bb.Entry) error {
		parent, name := dir.Dir, to
		if above, below, ok := strings.Cut(to, "/"); ok {
			e, err := ns.Lookup(ctx, dir.Dir, above)
			if err != nil {
				return err
			}
			parent, name = e.Dir, below
		}
		_, err := ns.Rename(ctx, dir.Dir, from, parent, name, o)
		return err
	}
}

// txnIn is the transaction into a directory.
func txnIn(dir bb.Entry) bb.Txn {
	return bb.Txn{ID: bb.TxnIDOf(7, dir.Name), Destination: dir.Name, Dir: dir.Dir, Key: dir.Name, UID: 7}
}

func begun(t *testing.T, ns *Namespace, dir bb.Entry) {
	if _, err := ns.BeginTxn(testContext(t), txnIn(dir)); err != nil {
		t.Fatal(err)
	}
}

func adopted(t *testing.T, ns *Namespace, dir bb.Entry) {
	begun(t, ns, dir)
	x := txnIn(dir)
	e, err := ns.MkdirAll(testContext(t), x.Path()+"/"+attemptDir+"/task/1/sub", Owner{Mode: 0o700})
	if err != nil {
		t.Fatal(err)
	}
	create(t, ns, e.Dir, "part")
	if _, err := ns.AdoptTxn(testContext(t), x.ID, "task", "1"); err != nil {
		t.Fatal(err)
	}
}

// state is what there is of a directory: its tree, the operations that the store owes it,
// and its transaction. Each item is a line.
func state(t *testing.T, ns *Namespace, dir bb.Entry) []string {
	t.Helper()
	ctx := testContext(t)
	var items []string
	var walk func(dir bb.DirID, at string) error
	walk = func(dir bb.DirID, at string) error {
		var below []bb.Entry
		err := ns.Scan(ctx, dir, func(e bb.Entry) error {
			items = append(items, fmt.Sprintf("%s %v %d", join(at, e.Name), e.Mode, e.UID))
			if e.IsDir() {
				below = append(below, e)
			}
			return nil
		})
		for i := 0; i < len(below) && err == nil; i++ {
			err = walk(below[i].Dir, join(at, below[i].Name))
		}
		return err
	}
	err := walk(dir.Dir, "")
	ops, opsErr := ns.StoreOps(ctx)
	for _, op := range ops {
		if under, ok := strings.CutPrefix(op.OldPath, dir.Name+"/"); ok {
			items = append(items, fmt.Sprintf("store %v %s %s", op.Op, under, strings.TrimPrefix(op.NewPath, dir.Name)))
		}
	}
	x, txnErr := ns.Txn(ctx, txnIn(dir).ID)
	if txnErr == nil {
		tasks, err := ns.TxnTasks(ctx, x.ID)
		items, txnErr = append(items, fmt.Sprintf("transaction %s %v", x.State, tasks)), err
	}
	if errors.Is(txnErr, bb.NotFound) {
		txnErr = nil
	}
	if err := errors.Join(err, opsErr, txnErr); err != nil {
		t.Fatal(err)
	}
	slices.Sort(items)
	return items
}

// subdirs returns a directory and all below it.
func subdirs(t *testing.T, ns *Namespace, dir bb.Entry) []bb.Entry {
	t.Helper()
	all := []bb.Entry{dir}
	for i := 0; i < len(all); i++ {
		err := ns.Scan(testContext(t), all[i].Dir, func(e bb.Entry) error {
			if e.IsDir() {
				all = append(all, e)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestUnanswered loses each request of each operation, and each answer, once: the operation
// succeeds and is carried out once, or says that its outcome is unknown and is carried out
// once or not at all, or says that it failed and is not carried out. What there is then is
// a namespace that works.
func TestUnanswered(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand cases, which take minutes under the race detector")
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, t.TempDir())
			m := connectTo(t, Options{InProcess: s, SoleWriter: mode.sole})
			ns := mode.in(newBuffer(t, m, "buf"))
			l := &losing{c: m.conn, subject: ns.b.Subjects()}
			m.conn.Intercept(l.intercept)
			other, err := connectTo(t, Options{InProcess: s}).Namespace(testContext(t), "buf")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Sorted(maps.Keys(calls)) {
				u := unanswered{t: t, ns: ns, other: other, l: l, name: name, call: calls[name]}
				u.each()
			}
			checkRecords(t, other)
			checkPaths(t, other)
		})
	}
}

// unanswered is one operation, under every fault at every request.
type unanswered struct {
	t             *testing.T
	ns, other     *Namespace // other: of another process, without a cache and without faults
	l             *losing
	name          string
	call          mutation
	dirs          int
	before, after []string
}

// begin makes a directory for the operation.
func (u *unanswered) begin() bb.Entry {
	u.t.Helper()
	u.dirs++
	dir := mkdir(u.t, u.ns, bb.RootDir, fmt.Sprintf("%s %d", u.name, u.dirs))
	if u.call.prepare != nil {
		u.call.prepare(u.t, u.ns, dir)
	}
	return dir
}

func (u *unanswered) each() {
	dir := u.begin()
	u.before = state(u.t, u.other, dir)
	u.l.arm(nil, 0, nil)
	clean := u.call.do(testContext(u.t), u.ns, dir)
	n := u.l.release(u.t)
	u.after = state(u.t, u.other, dir)
	if n == 0 {
		u.t.Errorf("%s makes no change: the test does not test", u.name)
	}
	for i := range faults {
		for at := 1; at <= n; at++ {
			u.one(&faults[i], at, clean)
		}
	}
}

// one carries the operation out with a fault. Clean is its error without any.
func (u *unanswered) one(f *fault, at int, clean error) {
	dir := u.begin()
	ctx, cancel := context.WithCancel(testContext(u.t))
	defer cancel()
	u.l.arm(f, at, cancel)
	err := u.call.do(ctx, u.ns, dir)
	u.l.release(u.t)
	what := fmt.Sprintf("%s, %s at change %d", u.name, f.name, at)
	now := state(u.t, u.other, dir)
	before, after := slices.Equal(now, u.before), slices.Equal(now, u.after)
	switch {
	case err == nil || bb.KindOf(err) == bb.KindOf(clean):
		if !after {
			u.t.Errorf("%s: it ended with %v, and there is %q, want %q", what, err, now, u.after)
		}
	case !f.ends:
		u.t.Errorf("%s: %v", what, err)
	case !errors.Is(err, bb.ErrUnknownOutcome):
		if !before && !u.call.steps {
			u.t.Errorf("%s: not done by its error (%v), and there is %q, was %q", what, err, now, u.before)
		}
	case !before && !after && !u.call.steps:
		u.t.Errorf("%s: there is %q, was %q, want that or %q", what, now, u.before, u.after)
	}
	if seen := state(u.t, u.ns, dir); !slices.Equal(seen, now) {
		u.t.Errorf("%s: its own process sees %q, others %q", what, seen, now)
	}
	u.goesOn(what, dir)
}

// goesOn checks that what is left does not stand in the way of the next operations.
func (u *unanswered) goesOn(what string, dir bb.Entry) {
	for _, ns := range []*Namespace{u.ns, u.other} {
		for _, d := range subdirs(u.t, ns, dir) {
			if d.Txn != 0 {
				if err := foldOne(testContext(u.t), ns, d.Txn, &plainMover{ns: ns}); err != nil {
					u.t.Errorf("%s: folding: %v", what, err)
				}
				continue
			}
			e := create(u.t, ns, d.Dir, "probe")
			if _, err := ns.Remove(testContext(u.t), d.Dir, e.Name, RemoveOptions{Revision: e.Revision}); err != nil {
				u.t.Errorf("%s: removing a new file: %v", what, err)
			}
		}
	}
	if err := u.call.do(testContext(u.t), u.ns, dir); u.call.steps && err != nil && bb.KindOf(err) != bb.NotFound {
		u.t.Errorf("%s: again: %v", what, err)
	}
	if u.call.steps {
		if now := state(u.t, u.other, dir); !slices.Equal(now, u.after) {
			u.t.Errorf("%s: after it was repeated there is %q, want %q", what, now, u.after)
		}
	}
}

// checkRecords checks the records of a bucket against each other.
func checkRecords(t *testing.T, ns *Namespace) {
	t.Helper()
	dirs, entries := map[string]bool{}, []kv.Record{}
	err := ns.b.Scan(testContext(t), ">", func(r *kv.Record) error {
		switch {
		case !r.Live():
		case strings.HasPrefix(r.Key, dirPrefix):
			dirs[r.Key] = true
		case strings.HasPrefix(r.Key, entryPrefix) && r.Key != rootKey:
			entries = append(entries, kv.Record{Key: r.Key, Seq: r.Seq, Data: slices.Clone(r.Data)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range entries {
		dir, name, _ := parseEntryKey(r.Key)
		if dir != bb.RootDir && !dirs[dirKey(dir)] {
			t.Errorf("%q lies in directory %v, which is gone", name, dir)
		}
		if e, err := openEntry(r.Key, r.Data, r.Seq); err != nil || e.IsDir() && !dirs[dirKey(e.Dir)] {
			t.Errorf("directory %q has no record (%v)", name, err)
		}
	}
	if len(entries) < 100 {
		t.Errorf("only %d entries: the test does not test", len(entries))
	}
}
