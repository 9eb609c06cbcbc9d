package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
)

// fault is a fault of one request of an operation.
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
	c       *conn.Conn
	subject string // prefix of the subjects of changes
	fault   *fault // nil: none
	at      int    // the change that it happens to, from 1 on
	seen    int    // changes so far
	cancel  func()
	held    []*conn.Message
}

// arm makes a fault happen to the n-th change from now on. 0 means none.
func (l *losing) arm(f *fault, n int, cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.at, l.seen, l.cancel, l.held = f, n, 0, cancel, nil
}

func (l *losing) intercept(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
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
			l.held = append(l.held, &conn.Message{Subject: m.Subject, Header: maps.Clone(m.Header), Data: m.Data})
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

// release sends the requests held back, and disarms. It returns how many changes there were.
func (l *losing) release(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	held, seen := l.held, l.seen
	l.mu.Unlock()
	if len(held) > 0 {
		if _, err := l.c.Deliver(metatest.Context(t), held); err != nil {
			t.Fatal(err)
		}
	}
	l.arm(nil, 0, nil)
	return seen
}

// mutation is one operation of a namespace, carried out in a directory of its own.
type mutation struct {
	prepare func(t *testing.T, ns *process, dir bb.Entry)
	do      func(ctx context.Context, ns *process, dir bb.Entry) error
	steps   bool // it consists of several changes, each of which is visible
	bucket  bool // it is about keys of a bucket
}

// calls are the operations that change a namespace.
var calls = map[string]mutation{
	"create": {nil, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.Create(ctx, bb.Entry{Parent: dir.Dir, Name: "f", Type: bb.TypeFile, File: bb.FileID(dir.Dir), Mode: 0o644})
		return err
	}, false, false},
	"create in a marked directory": {marked, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.Create(ctx, bb.Entry{Parent: dir.Dir, Name: "f", Type: bb.TypeFile, File: bb.FileID(dir.Dir), Mode: 0o644})
		return err
	}, false, true},
	"put": {withFile, func(ctx context.Context, ns *process, dir bb.Entry) error {
		e, err := ns.Lookup(ctx, dir.Dir, "f")
		if err != nil {
			return err
		}
		e.Mode = 0o600
		_, err = ns.Put(ctx, e)
		return err
	}, false, false},
	"set attributes": {withFile, func(ctx context.Context, ns *process, dir bb.Entry) error {
		uid := uint32(9)
		_, err := ns.SetAttr(ctx, dir.Dir, "f", namespace.Attr{UID: &uid})
		return err
	}, false, false},
	"mkdir": {nil, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.Mkdir(ctx, dir.Dir, "d", namespace.Owner{Mode: 0o755})
		return err
	}, false, false},
	"mkdirall": {nil, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.MkdirAll(ctx, dir.Name+"/a/b", namespace.Owner{Mode: 0o755})
		return err
	}, true, false},
	"remove a file":                {withFile, removing("f", namespace.RemoveOptions{}), false, false},
	"remove a file of the store":   {withFile, removing("f", namespace.RemoveOptions{StoreOp: true}), false, false},
	"remove a directory":           {withDirs, removing("d", namespace.RemoveOptions{}), false, false},
	"remove a directory and note":  {withDirs, removing("d", namespace.RemoveOptions{StoreOp: true}), false, false},
	"remove a full directory":      {withTree, removing("d", namespace.RemoveOptions{}), false, false},
	"rename a file":                {withFile, renaming("f", "g", namespace.RenameOptions{}), false, false},
	"rename a file of the store":   {withFile, renaming("f", "g", namespace.RenameOptions{StoreOp: true}), false, false},
	"replace a file":               {withFiles, renaming("f", "g", namespace.RenameOptions{Replace: true, StoreOp: true}), false, false},
	"rename a file to a directory": {withDirsAndFile, renaming("f", "d/f", namespace.RenameOptions{}), false, false},
	"rename a directory":           {withTree, renaming("d", "e", namespace.RenameOptions{StoreOp: true}), false, false},
	"replace a directory":          {withDirs, renaming("d", "e", namespace.RenameOptions{Replace: true}), false, false},
	"move a directory":             {withDirs, renaming("d", "e/d", namespace.RenameOptions{StoreOp: true}), false, false},
	"replace a full directory": {func(t *testing.T, ns *process, dir bb.Entry) {
		withDirs(t, ns, dir)
		namespacetest.Create(t, ns, resolve(t, ns, dir.Name+"/e").Dir, "f")
	}, renaming("d", "e", namespace.RenameOptions{Replace: true}), false, false},
	"remove all": {withTree, func(ctx context.Context, ns *process, dir bb.Entry) error {
		return ns.RemoveAll(ctx, dir.Dir, "d", namespace.RemoveOptions{}, nil)
	}, true, false},
	"remove all of the store": {withTree, func(ctx context.Context, ns *process, dir bb.Entry) error {
		return ns.RemoveAll(ctx, dir.Dir, "d", namespace.RemoveOptions{StoreOp: true}, nil)
	}, true, false},
	"begin": {nil, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.BeginTxn(ctx, txnIn(dir))
		return err
	}, true, false},
	"renew": {begun, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.RenewTxn(ctx, txnIn(dir).ID)
		return err
	}, false, false},
	"adopt": {begun, func(ctx context.Context, ns *process, dir bb.Entry) error {
		winner, err := ns.AdoptTxn(ctx, txnIn(dir).ID, "task", "1")
		if err == nil && winner != "1" {
			err = fmt.Errorf("attempt %q was adopted", winner)
		}
		return err
	}, false, false},
	"abort": {begun, func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.AbortTxn(ctx, txnIn(dir).ID, "no reason")
		return err
	}, false, false},
	"commit": {adopted, func(ctx context.Context, ns *process, dir bb.Entry) error {
		return commitTxn(ctx, ns, txnIn(dir).ID, nil, &plainMover{ns: ns})
	}, true, false},
	"fold": {func(t *testing.T, ns *process, dir bb.Entry) {
		adopted(t, ns, dir)
		if err := commitTxn(metatest.Context(t), ns, txnIn(dir).ID, nil, &plainMover{ns: ns}); err != nil {
			t.Fatal(err)
		}
	}, func(ctx context.Context, ns *process, dir bb.Entry) error {
		mv := &plainMover{ns: ns}
		if err := ns.MaterializeTxn(ctx, txnIn(dir).ID, mv); err != nil {
			return err
		}
		return ns.CleanTxn(ctx, txnIn(dir).ID, mv)
	}, true, false},
}

func resolve(t *testing.T, ns *process, path string) bb.Entry {
	t.Helper()
	e, err := ns.Resolve(metatest.Context(t), path)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func withFile(t *testing.T, ns *process, dir bb.Entry) { namespacetest.Create(t, ns, dir.Dir, "f") }

func withFiles(t *testing.T, ns *process, dir bb.Entry) {
	namespacetest.Create(t, ns, dir.Dir, "f")
	namespacetest.Create(t, ns, dir.Dir, "g")
}

func withDirs(t *testing.T, ns *process, dir bb.Entry) {
	namespacetest.Mkdir(t, ns, dir.Dir, "d")
	namespacetest.Mkdir(t, ns, dir.Dir, "e")
}

func withDirsAndFile(t *testing.T, ns *process, dir bb.Entry) {
	withDirs(t, ns, dir)
	withFile(t, ns, dir)
}

func withTree(t *testing.T, ns *process, dir bb.Entry) {
	d := namespacetest.Mkdir(t, ns, dir.Dir, "d")
	namespacetest.Create(t, ns, d.Dir, "f")
	namespacetest.Create(t, ns, namespacetest.Mkdir(t, ns, d.Dir, "deep").Dir, "g")
}

// marked leaves a mark of removal, as a remover that died does.
func marked(t *testing.T, ns *process, dir bb.Entry) {
	ctx, key := metatest.Context(t), "d."+strconv.FormatUint(uint64(dir.Dir), 16)
	var record metapb.Directory
	r, err := ns.bucket.Get(ctx, key)
	if err == nil {
		err = kv.Open(key, r.Data, &record)
	}
	record.Removing = true
	data, serr := kv.Seal(key, &record)
	if err == nil && serr == nil {
		_, err = ns.bucket.Put(ctx, key, data, r.Seq)
	}
	if err := errors.Join(err, serr); err != nil {
		t.Fatal(err)
	}
	ns.Distrust() // it is not the process's own change
}

func removing(name string, o namespace.RemoveOptions) func(context.Context, *process, bb.Entry) error {
	return func(ctx context.Context, ns *process, dir bb.Entry) error {
		_, err := ns.Remove(ctx, dir.Dir, name, o)
		return err
	}
}

func renaming(from, to string, o namespace.RenameOptions) func(context.Context, *process, bb.Entry) error {
	return func(ctx context.Context, ns *process, dir bb.Entry) error {
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

func begun(t *testing.T, ns *process, dir bb.Entry) {
	if _, err := ns.BeginTxn(metatest.Context(t), txnIn(dir)); err != nil {
		t.Fatal(err)
	}
}

func adopted(t *testing.T, ns *process, dir bb.Entry) {
	begun(t, ns, dir)
	x := txnIn(dir)
	e, err := ns.MkdirAll(metatest.Context(t), x.Path()+"/"+attemptDir+"/task/1/sub", namespace.Owner{Mode: 0o700})
	if err != nil {
		t.Fatal(err)
	}
	namespacetest.Create(t, ns, e.Dir, "part")
	if _, err := ns.AdoptTxn(metatest.Context(t), x.ID, "task", "1"); err != nil {
		t.Fatal(err)
	}
}

// state is the state of a directory: its tree, the operations that the store has yet to follow, and
// its transaction. Each item is a line.
func state(t *testing.T, ns *process, dir bb.Entry) []string {
	t.Helper()
	ctx := metatest.Context(t)
	var items []string
	var walk func(dir bb.DirID, at string) error
	walk = func(dir bb.DirID, at string) error {
		var below []bb.Entry
		err := ns.Scan(ctx, dir, func(e bb.Entry) error {
			items = append(items, fmt.Sprintf("%s %v %d", path.Join(at, e.Name), e.Mode, e.UID))
			if e.IsDir() {
				below = append(below, e)
			}
			return nil
		})
		for i := 0; i < len(below) && err == nil; i++ {
			err = walk(below[i].Dir, path.Join(at, below[i].Name))
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
func subdirs(t *testing.T, ns *process, dir bb.Entry) []bb.Entry {
	t.Helper()
	all := []bb.Entry{dir}
	for i := 0; i < len(all); i++ {
		err := ns.Scan(metatest.Context(t), all[i].Dir, func(e bb.Entry) error {
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

// TestUnanswered loses each request of each operation, and each answer, once. The operation
// succeeds and is carried out once, or reports an unknown outcome and is carried out once or not at
// all, or reports a failure and is not carried out. The namespace works afterwards.
func TestUnanswered(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand cases, which take minutes under the race detector")
	}
	eachMode(t, modes, func(t *testing.T, s *space) {
		ns := s.start(t)
		other := ns
		if !s.log {
			other = (&space{mode: modes[1], server: s.server}).start(t)
		}
		l := &losing{c: ns.conn, subject: ns.changes}
		ns.conn.Intercept(l.intercept)
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			if call := calls[name]; !call.bucket || !s.log {
				u := unanswered{t: t, ns: ns, other: other, l: l, name: name, call: call}
				u.each()
			}
		}
		if !s.log {
			checkRecords(t, other)
		}
		namespacetest.CheckPaths(t, other)
	})
}

// unanswered is one operation, under every fault at every request.
type unanswered struct {
	t             *testing.T
	ns, other     *process // other: of another process, if there may be one, without a cache and without faults
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
	dir := namespacetest.Mkdir(u.t, u.ns, bb.RootDir, fmt.Sprintf("%s %d", u.name, u.dirs))
	if u.call.prepare != nil {
		u.call.prepare(u.t, u.ns, dir)
	}
	return dir
}

func (u *unanswered) each() {
	dir := u.begin()
	u.before = state(u.t, u.other, dir)
	u.l.arm(nil, 0, nil)
	clean := u.call.do(metatest.Context(u.t), u.ns, dir)
	n := u.l.release(u.t)
	u.after = state(u.t, u.other, dir)
	if n == 0 && clean == nil {
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
	ctx, cancel := context.WithCancel(metatest.Context(u.t))
	defer cancel()
	u.l.arm(f, at, cancel)
	err := u.call.do(ctx, u.ns, dir)
	u.l.release(u.t)
	u.settle()
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

// settle waits for the unfinished work of a process. An owner of a log continues with a change
// after its caller has stopped waiting.
func (u *unanswered) settle() {
	if u.ns.bucket != nil {
		return
	}
	if _, err := u.ns.SetAttr(metatest.Context(u.t), 0, "", namespace.Attr{}); err != nil {
		u.t.Fatal(err)
	}
}

// goesOn checks that the remains do not block the next operations.
func (u *unanswered) goesOn(what string, dir bb.Entry) {
	for _, ns := range []*process{u.ns, u.other} {
		for _, d := range subdirs(u.t, ns, dir) {
			if d.Txn != 0 {
				if err := foldOne(metatest.Context(u.t), ns, d.Txn, &plainMover{ns: ns}); err != nil {
					u.t.Errorf("%s: folding: %v", what, err)
				}
				continue
			}
			e := namespacetest.Create(u.t, ns, d.Dir, "probe")
			if _, err := ns.Remove(metatest.Context(u.t), d.Dir, e.Name, namespace.RemoveOptions{Revision: e.Revision}); err != nil {
				u.t.Errorf("%s: removing a new file: %v", what, err)
			}
		}
	}
	if err := u.call.do(metatest.Context(u.t), u.ns, dir); u.call.steps && err != nil && bb.KindOf(err) != bb.NotFound {
		u.t.Errorf("%s: again: %v", what, err)
	}
	if u.call.steps {
		if now := state(u.t, u.other, dir); !slices.Equal(now, u.after) {
			u.t.Errorf("%s: after it was repeated there is %q, want %q", what, now, u.after)
		}
	}
}

// checkRecords checks the records of a bucket against each other: e.PARENT.NAME are entries,
// d.DIR are directories (nsbucket/record/names.go).
func checkRecords(t *testing.T, ns *process) {
	t.Helper()
	dirs, entries := map[string]bool{}, []kv.Record{}
	err := ns.bucket.Scan(metatest.Context(t), ">", func(r *kv.Record) error {
		switch {
		case !r.Live():
		case strings.HasPrefix(r.Key, "d."):
			dirs[r.Key[len("d."):]] = true
		case strings.HasPrefix(r.Key, "e.") && r.Key != "e.0.root":
			entries = append(entries, kv.Record{Key: r.Key, Seq: r.Seq, Data: slices.Clone(r.Data)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range entries {
		parent, name, _ := strings.Cut(r.Key[len("e."):], ".")
		if parent != "1" && !dirs[parent] {
			t.Errorf("%q lies in directory %v, which is gone", name, parent)
		}
		var e metapb.Entry
		err := kv.Open(r.Key, r.Data, &e)
		if err != nil || e.GetDir() != 0 && !dirs[strconv.FormatUint(e.GetDir(), 16)] {
			t.Errorf("directory %q has no record (%v)", name, err)
		}
	}
	if len(entries) < 100 {
		t.Errorf("only %d entries: the test does not test", len(entries))
	}
}
