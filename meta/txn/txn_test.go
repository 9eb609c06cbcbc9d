package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
)

// plainMover moves entries with the namespace's own changes. It dies after its n-th change, as a
// process does, with all its pending work.
type plainMover struct {
	ns  *process
	mu  sync.Mutex
	n   int    // changes until then
	die func() // nil: it runs
}

func (m *plainMover) step(do func() error) error {
	m.mu.Lock()
	last := m.n == 0
	m.n--
	m.mu.Unlock()
	err := do()
	if m.die != nil && last {
		m.die()
		return errors.Join(err, context.Canceled)
	}
	return err
}

func (m *plainMover) Rename(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	return m.step(func() error {
		_, err := m.ns.Rename(ctx, e.Parent, e.Name, dir, name, namespace.RenameOptions{})
		return err
	})
}

func (m *plainMover) Replace(ctx context.Context, e *bb.Entry, dir bb.DirID, name string) error {
	return m.step(func() error {
		_, err := m.ns.Rename(ctx, e.Parent, e.Name, dir, name, namespace.RenameOptions{Replace: true})
		return err
	})
}

// Merge moves all possible entries where the namespace can merge, else none.
func (m *plainMover) Merge(ctx context.Context, from, to bb.DirID) error {
	ns, can := m.ns.Tree.Tree.(interface {
		MergeDir(ctx context.Context, from, to bb.DirID, most int, may func(*bb.Entry, bb.DirID) bool) ([]nslog.Merged, bool, error)
	})
	for more := can; more; {
		err := m.step(func() (err error) {
			_, more, err = ns.MergeDir(ctx, from, to, 0, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *plainMover) Folded(context.Context, bb.TxnID) error {
	return m.step(func() error { return nil })
}

func (m *plainMover) Remove(ctx context.Context, e *bb.Entry) error {
	return m.step(func() error {
		now, err := m.ns.Lookup(ctx, e.Parent, e.Name)
		if err != nil {
			return err
		}
		if !same(&now, e) {
			return bb.E(bb.NotFound, "remove", e.Name, "it has been replaced")
		}
		_, err = m.ns.Remove(ctx, e.Parent, e.Name, namespace.RemoveOptions{Revision: now.Revision})
		return err
	})
}

// foldAll folds all that is decided.
func foldAll(ctx context.Context, ns *process, mv Mover) error {
	all, err := ns.Txns(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		if all[i].State.Decided() && !all[i].State.Over() {
			err = foldOne(ctx, ns, all[i].ID, mv)
		}
	}
	return err
}

func foldOne(ctx context.Context, ns *process, id bb.TxnID, mv Mover) error {
	for {
		err := ns.MaterializeTxn(ctx, id, mv)
		var other *namespace.Unfolded
		if !errors.As(err, &other) {
			return err
		}
		if err := foldOne(ctx, ns, other.ID, mv); err != nil {
			return err
		}
	}
}

// commitTxn commits as a daemon does.
func commitTxn(ctx context.Context, ns *process, id bb.TxnID, replace []string, mv Mover) error {
	t, err := ns.CommitTxn(ctx, id, replace)
	if err != nil || t.State.Decided() {
		return err
	}
	if err := ns.MergeTasks(ctx, id, mv); err != nil {
		return err
	}
	p, err := ns.PathOf(ctx, t.Dir)
	if err != nil {
		return err
	}
	for above := path.Dir(p); above != "."; above = path.Dir(above) {
		if e, err := ns.Resolve(ctx, above); err != nil {
			return err
		} else if e.Txn != 0 {
			if err := foldOne(ctx, ns, e.Txn, mv); err != nil {
				return err
			}
		}
	}
	for {
		_, err := ns.DecideTxn(ctx, id)
		var other *namespace.Unfolded
		if !errors.As(err, &other) {
			return err
		}
		if err := foldOne(ctx, ns, other.ID, mv); err != nil {
			return err
		}
	}
}

// seen returns the paths below a directory in the readers' view, with files' ids or "/".
func seen(t testing.TB, ns *process, dir string) map[string]string {
	t.Helper()
	ctx := metatest.Context(t)
	v := RootUnion()
	for name := range strings.SplitSeq(dir, "/") {
		if name == "" {
			continue
		}
		var err error
		if _, v, err = ns.LookupUnion(ctx, v, name); err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
	}
	out := map[string]string{}
	var walk func(v UnionDir, at string)
	walk = func(v UnionDir, at string) {
		entries, more, err := ns.ListUnion(ctx, v, "", bb.MaxPageSize)
		if err != nil || more {
			t.Fatalf("%s: %v %v", at, err, more)
		}
		for i := range entries {
			e := &entries[i]
			p := path.Join(at, e.Name)
			found, below, err := ns.LookupUnion(ctx, v, e.Name)
			if err != nil || !same(&found, e) {
				t.Fatalf("%s is listed as %v and looked up as %v (%v)", p, e, found, err)
			}
			out[p] = e.File.String()
			if e.IsDir() {
				out[p] = "/"
				walk(below, p)
			}
		}
	}
	walk(v, dir)
	return out
}

// clearPath takes a path, with all below it, out of an oracle.
func clearPath(o map[string]string, p string) {
	maps.DeleteFunc(o, func(other, _ string) bool { return other == p || strings.HasPrefix(other, p+"/") })
}

// commitInto applies the output of a transaction.
func commitInto(o map[string]string, dest string, output map[string]string, replace []string) {
	for _, r := range replace {
		p := path.Join(dest, r)
		clearPath(o, p)
		if r == "." {
			o[p] = "/"
		}
	}
	for _, rel := range slices.Sorted(maps.Keys(output)) {
		p := path.Join(dest, rel)
		for above := path.Dir(p); above != "."; above = path.Dir(above) {
			if o[above] != "/" {
				o[above] = "/"
			}
		}
		switch {
		case output[rel] != "/":
			clearPath(o, p)
			o[p] = output[rel]
		case o[p] != "/":
			o[p] = "/"
		}
	}
}

// modelTxn is the model of a transaction.
type modelTxn struct {
	bb.Txn
	output  map[string]string // of adopted tasks
	replace []string
	asked   bool // to be committed, so no task is adopted any more
}

// TestTxnModel makes random changes, inside and outside of transactions, by two clients one of
// which dies at any change of a commit or a fold, and compares the readers' view with the oracle
// after each: all of a transaction or nothing.
func TestTxnModel(t *testing.T) {
	steps := 120
	if testing.Short() {
		steps = 50
	}
	eachMode(t, []mode{modes[0], modes[1], modes[3]}, func(t *testing.T, s *space) {
		clients := []*process{s.start(t), s.start(t)}
		(&txnModel{t: t, clients: clients, rnd: rand.New(rand.NewPCG(7, uint64(steps))), want: namespacetest.Oracle{}}).run(steps)
	})
}

type txnModel struct {
	t       *testing.T
	clients []*process
	rnd     *rand.Rand
	want    namespacetest.Oracle
	open    []*modelTxn
	files   int
}

var txnDirs = []string{"d", "d/a", "e"}

func (m *txnModel) run(steps int) {
	for _, dir := range txnDirs {
		if err := (namespacetest.Subject{T: m.t, NS: m.clients[0]}).Add(dir, "/"); err != nil {
			m.t.Fatal(err)
		}
		m.want[dir] = "/"
	}
	for i := range steps {
		ns := m.clients[m.rnd.IntN(2)]
		what := ""
		switch n := m.rnd.IntN(12); {
		case n < 2 && len(m.open) < 3:
			what = m.begin(ns)
		case n < 7 && len(m.open) > 0:
			what = m.write(ns, m.open[m.rnd.IntN(len(m.open))])
		case n < 8 && len(m.open) > 0:
			what = m.abort(ns, m.rnd.IntN(len(m.open)))
		case n < 10 && len(m.open) > 0:
			what = m.commit(ns, m.rnd.IntN(len(m.open)))
		default:
			what = m.change(ns)
		}
		for _, reader := range m.clients {
			if got := seen(m.t, reader, ""); !maps.Equal(got, map[string]string(m.want)) {
				m.t.Fatalf("step %d: after %s\n%v, want\n%v", i, what, got, m.want)
			}
		}
	}
	for len(m.open) > 0 {
		m.abort(m.clients[0], 0)
	}
	ctx := metatest.Context(m.t)
	mv := &plainMover{ns: m.clients[0]}
	if err := foldAll(ctx, m.clients[0], mv); err != nil {
		m.t.Fatal(err)
	}
	all, err := m.clients[0].Txns(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, x := range all {
		if err := m.clients[0].CleanTxn(ctx, x.ID, mv); err != nil {
			m.t.Fatal(err)
		}
		if err := m.clients[0].ForgetTxn(ctx, x.ID); err != nil {
			m.t.Fatal(err)
		}
	}
	if got := namespacetest.Paths(m.t, m.clients[0]); !maps.Equal(got, map[string]string(m.want)) {
		m.t.Fatalf("folded: %v, want %v", got, m.want)
	}
	if left, err := m.clients[0].HiddenTxns(ctx); err != nil || len(left) > 0 {
		m.t.Fatalf("hidden trees are left: %v %v", left, err)
	}
	namespacetest.CheckPaths(m.t, m.clients[0])
}

func (m *txnModel) begin(ns *process) string {
	dest := txnDirs[m.rnd.IntN(len(txnDirs))]
	if m.want[dest] != "/" {
		return "nothing"
	}
	ctx := metatest.Context(m.t)
	if err := foldAll(ctx, ns, &plainMover{ns: ns}); err != nil {
		m.t.Fatal(err)
	}
	e, err := ns.Resolve(ctx, dest)
	if err != nil {
		m.t.Fatal(err)
	}
	x, err := ns.BeginTxn(ctx, bb.Txn{Destination: dest, Dir: e.Dir, Key: fmt.Sprint("job", m.files), UID: 7})
	if err != nil {
		m.t.Fatal(err)
	}
	m.files++
	m.open = append(m.open, &modelTxn{Txn: x, output: map[string]string{}})
	return "begin into " + dest
}

// write makes two attempts of a task write, and adopts both. The first wins.
func (m *txnModel) write(ns *process, x *modelTxn) string {
	if x.asked {
		return "nothing"
	}
	ctx := metatest.Context(m.t)
	m.files++
	task := fmt.Sprint("task", m.files)
	for attempt := range 2 {
		base := path.Join(x.Path(), attemptDir, task, fmt.Sprint(attempt))
		if _, err := ns.MkdirAll(ctx, base, namespace.Owner{Mode: 0o700}); err != nil {
			m.t.Fatal(err)
		}
		for range 1 + m.rnd.IntN(4) {
			rel := m.randomDir()
			if _, err := ns.MkdirAll(ctx, path.Join(base, rel), namespace.Owner{Mode: 0o700}); err != nil {
				m.t.Fatal(err)
			}
			name := fmt.Sprint("f", m.rnd.IntN(4))
			m.files++
			id := bb.FileID(m.files).String()
			if err := (namespacetest.Subject{T: m.t, NS: ns}).Add(path.Join(base, rel, name), id); err != nil {
				if errors.Is(err, bb.Exists) {
					continue
				}
				m.t.Fatal(err)
			}
			if attempt == 0 {
				commitInto(x.output, "", map[string]string{path.Join(rel, name): id}, nil)
			}
		}
	}
	for attempt := range 2 {
		winner, err := ns.AdoptTxn(ctx, x.ID, task, fmt.Sprint(attempt))
		if err != nil || winner != "0" {
			m.t.Fatal(winner, err)
		}
	}
	mv, ctx := m.mortal(ctx, ns)
	_ = ns.MergeTask(ctx, x.ID, task, "0", mv) // the commit finishes the rest
	if err := m.clients[0].MergeTask(metatest.Context(m.t), x.ID, task, "0", &plainMover{ns: m.clients[0]}); err != nil {
		m.t.Fatal(err) // at once, since the oracle lets the later task win
	}
	return "write " + task
}

func (m *txnModel) randomDir() string {
	names := []string{"a", "b", "c"}
	p := ""
	for m.rnd.IntN(3) > 0 {
		p = path.Join(p, names[m.rnd.IntN(len(names))])
	}
	return p
}

// mortal returns a mover that dies now and then.
func (m *txnModel) mortal(ctx context.Context, ns *process) (*plainMover, context.Context) {
	if m.rnd.IntN(3) == 0 {
		return &plainMover{ns: ns}, ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	m.t.Cleanup(cancel)
	return &plainMover{ns: ns, n: m.rnd.IntN(12), die: cancel}, ctx
}

func (m *txnModel) abort(ns *process, i int) string {
	x := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	if _, err := ns.AbortTxn(metatest.Context(m.t), x.ID, "test"); err != nil {
		m.t.Fatal(err)
	}
	mv, ctx := m.mortal(metatest.Context(m.t), ns)
	_ = ns.CleanTxn(ctx, x.ID, mv)
	return "abort of " + x.Destination
}

func (m *txnModel) commit(ns *process, i int) string {
	x := m.open[i]
	if !x.asked {
		x.asked = true
		for range m.rnd.IntN(3) {
			r := m.randomDir()
			if r == "" {
				r = "."
			}
			x.replace = append(x.replace, r)
		}
	}
	mv, ctx := m.mortal(metatest.Context(m.t), ns)
	err := commitTxn(ctx, ns, x.ID, x.replace, mv)
	if err == nil && m.rnd.IntN(2) == 0 {
		_ = foldOne(ctx, ns, x.ID, mv)
	}
	now, lookErr := m.clients[0].Txn(metatest.Context(m.t), x.ID)
	switch {
	case lookErr != nil:
		m.t.Fatal(lookErr)
	case now.State.Decided():
		m.open = slices.Delete(m.open, i, i+1)
		commitInto(m.want, x.Destination, x.output, x.replace)
		if err := commitTxn(metatest.Context(m.t), m.clients[0], x.ID, x.replace, mv); err != nil {
			m.t.Fatalf("a commit that is repeated: %v", err)
		}
	case bb.KindOf(err) == bb.NotFound: // its destination was removed
		m.open = slices.Delete(m.open, i, i+1)
		if _, err := ns.AbortTxn(metatest.Context(m.t), x.ID, "test"); err != nil {
			m.t.Fatal(err)
		}
	case err == nil:
		m.t.Fatalf("committed, and %s", now.State)
	}
	return fmt.Sprintf("commit into %s replacing %v: %s, %v", x.Destination, x.replace, now.State, err)
}

// change is a change outside of transactions. Decided ones are folded first.
func (m *txnModel) change(ns *process) string {
	ctx := metatest.Context(m.t)
	if err := foldAll(ctx, ns, &plainMover{ns: ns}); err != nil {
		m.t.Fatal(err)
	}
	p := path.Join(txnDirs[m.rnd.IntN(len(txnDirs))], m.randomDir(), fmt.Sprint("f", m.rnd.IntN(4)))
	if m.rnd.IntN(3) == 0 {
		p = path.Dir(p)
	}
	if slices.Contains(txnDirs, p) && m.rnd.IntN(10) > 0 {
		return "nothing"
	}
	m.files++
	id := bb.FileID(m.files).String()
	var k bb.Kind
	var err error
	what := ""
	s := namespacetest.Subject{T: m.t, NS: ns}
	switch m.rnd.IntN(4) {
	case 0:
		what, k, err = "mkdir "+p, m.want.Add(p, "/"), s.Add(p, "/")
	case 1:
		what, k, err = "remove "+p, m.want.RemoveAll(p), s.RemoveAll(p, namespace.RemoveOptions{})
	default:
		what, k, err = "create "+p, m.want.Add(p, id), s.Add(p, id)
	}
	if bb.KindOf(err) != k {
		m.t.Fatalf("%s: %v, want kind %v", what, err, k)
	}
	return what
}

// TestTxnRules checks the rules that the model does not cover.
func TestTxnRules(t *testing.T) {
	t.Parallel()
	eachMode(t, []mode{modes[1], modes[3]}, testTxnRules)
}

func testTxnRules(t *testing.T, s *space) {
	ns := s.start(t)
	ctx := metatest.Context(t)
	d := namespacetest.Mkdir(t, ns, bb.RootDir, "d")
	begin := func(key string) bb.Txn {
		t.Helper()
		x, err := ns.BeginTxn(ctx, bb.Txn{Destination: "d", Dir: d.Dir, Key: key, UID: 7})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := begin("job")
	if again := begin("job"); again.ID != x.ID || again.State != bb.TxnOpen {
		t.Errorf("begun again: %+v", again)
	}
	if other, err := ns.BeginTxn(ctx, bb.Txn{Destination: "d", Dir: d.Dir, Key: "job", UID: 8}); err != nil || other.ID == x.ID {
		t.Errorf("another user's: %v %v", other.ID, err)
	}
	e := namespacetest.Mkdir(t, ns, bb.RootDir, "e")
	_, err := ns.BeginTxn(ctx, bb.Txn{Destination: "e", Dir: e.Dir, Key: "job", UID: 7})
	metatest.WantKind(t, "the key of another destination", err, bb.Exists)
	_, err = ns.BeginTxn(ctx, bb.Txn{Destination: "", Dir: bb.RootDir, UID: 7})
	metatest.WantKind(t, "into the root", err, bb.Invalid)
	if got := namespacetest.Names(t, ns, bb.RootDir); !slices.Equal(got, []string{"d", "e"}) {
		t.Errorf("the root shows %v", got)
	}

	for i, want := range []string{"a", "a", "a"} {
		if winner, err := ns.AdoptTxn(ctx, x.ID, "task", []string{"a", "b", "a"}[i]); winner != want || err != nil {
			t.Errorf("adopt %d: %q %v", i, winner, err)
		}
	}
	lease, err := ns.TxnLease(ctx, x.ID)
	metatest.WantKind(t, "lease", err, 0)
	if _, err := ns.RenewTxn(ctx, x.ID); err != nil {
		t.Error(err)
	}
	if now, err := ns.TxnLease(ctx, x.ID); err != nil || now <= lease {
		t.Errorf("renewed: %d, was %d (%v)", now, lease, err)
	}
	if _, err := ns.CommitTxn(ctx, x.ID, nil); err != nil {
		t.Fatal(err)
	}
	_, err = ns.AdoptTxn(ctx, x.ID, "late", "a")
	metatest.WantKind(t, "a task that is too late", err, bb.Busy)
	if winner, err := ns.AdoptTxn(ctx, x.ID, "task", "a"); winner != "a" || err != nil {
		t.Errorf("adopted before: %q %v", winner, err)
	}
	if _, err := ns.DecideTxn(ctx, x.ID); err != nil {
		t.Fatal(err)
	}
	_, err = ns.AbortTxn(ctx, x.ID, "")
	metatest.WantKind(t, "abort of a committed one", err, bb.Busy)
	_, err = ns.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{})
	var unfolded *namespace.Unfolded
	if !errors.As(err, &unfolded) || unfolded.ID != x.ID {
		t.Errorf("removing what is not folded: %v", err)
	}
	_, err = ns.Rename(ctx, bb.RootDir, "e", bb.RootDir, "d", namespace.RenameOptions{Replace: true})
	if !errors.As(err, &unfolded) {
		t.Errorf("replacing what is not folded: %v", err)
	}
	// The mark follows the directory.
	if _, err := ns.Rename(ctx, bb.RootDir, "d", e.Dir, "moved", namespace.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := foldOne(ctx, ns, x.ID, &plainMover{ns: ns}); err != nil {
		t.Fatal(err)
	}
	if moved, err := ns.Resolve(ctx, "e/moved"); err != nil || moved.Txn != 0 || moved.Dir != d.Dir {
		t.Errorf("folded: %+v %v", moved, err)
	}
	if again := begin("job"); again.State != bb.TxnFolded {
		t.Errorf("begun after it was committed: %s", again.State)
	}

	y, err := ns.BeginTxn(ctx, bb.Txn{Destination: "e/moved", Dir: d.Dir, Key: "gone", UID: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.RemoveAll(ctx, bb.RootDir, "e", namespace.RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	metatest.WantKind(t, "into a directory that was removed", commitTxn(ctx, ns, y.ID, nil, &plainMover{ns: ns}), bb.NotFound)
	if _, err := ns.AbortTxn(ctx, y.ID, "why"); err != nil {
		t.Fatal(err)
	}
	_, err = ns.RenewTxn(ctx, y.ID)
	metatest.WantKind(t, "renewing an aborted one", err, bb.Cancelled)
	_, err = ns.CommitTxn(ctx, y.ID, nil)
	metatest.WantKind(t, "committing an aborted one", err, bb.Cancelled)
	if err := ns.ForgetTxn(ctx, y.ID); err != nil {
		t.Fatal(err)
	}
	_, err = ns.Txn(ctx, y.ID)
	metatest.WantKind(t, "a forgotten one", err, bb.NotFound)
}

// TestTxnFolders folds one transaction in several processes at once, while a destination changes.
// None of them removes an entry that another one has folded.
func TestTxnFolders(t *testing.T) {
	t.Parallel()
	eachMode(t, []mode{modes[1], modes[3]}, testTxnFolders)
}

func testTxnFolders(t *testing.T, s *space) {
	ns := s.start(t)
	ctx := metatest.Context(t)
	d := namespacetest.Mkdir(t, ns, bb.RootDir, "d")
	for round := range 5 {
		x, err := ns.BeginTxn(ctx, bb.Txn{Destination: "d", Dir: d.Dir, UID: 7})
		if err != nil {
			t.Fatal(err)
		}
		want := namespacetest.Oracle{}
		for i := range 30 {
			p := fmt.Sprintf("p%d/f%d", i%6, i)
			id := bb.FileID(1000*(round+1) + i)
			if _, err := ns.MkdirAll(ctx, path.Join(x.Path(), attemptDir, "t", "a", path.Dir(p)), namespace.Owner{Mode: 0o700}); err != nil {
				t.Fatal(err)
			}
			if err := (namespacetest.Subject{T: t, NS: ns}).Add(path.Join(x.Path(), attemptDir, "t", "a", p), id.String()); err != nil {
				t.Fatal(err)
			}
			want["d/"+path.Dir(p)], want["d/"+p] = "/", id.String()
		}
		if _, err := ns.AdoptTxn(ctx, x.ID, "t", "a"); err != nil {
			t.Fatal(err)
		}
		// Old entries are replaced, by one directory after the other or altogether.
		replace := []string{"."}
		if round%2 == 1 {
			replace = []string{"p0", "p1", "p2", "p3", "p4", "p5"}
		}
		if err := commitTxn(ctx, ns, x.ID, replace, &plainMover{ns: ns}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			other := s.start(t)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				if err := foldOne(ctx, other, x.ID, &plainMover{ns: other}); err != nil {
					t.Errorf("folder %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		got := namespacetest.Paths(t, ns)
		maps.DeleteFunc(got, func(p, _ string) bool { return p == "d" })
		if !maps.Equal(got, map[string]string(want)) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
	}
}

// TestDisplacement: of the replaced files of a transaction, one stays if the output has a file of
// the same name.
func TestDisplacement(t *testing.T) {
	t.Parallel()
	was := bb.Flushed{Generation: 1}
	dir, file := &bb.Entry{Type: bb.TypeDirectory}, &bb.Entry{Type: bb.TypeFile}
	flushed, replaced := &bb.Entry{Type: bb.TypeFile, Flushed: was}, &bb.Entry{Type: bb.TypeFile, Before: &bb.Before{Replaced: was}}
	for _, test := range []struct {
		old, by *bb.Entry
		want    displaced
	}{
		{file, nil, removedWhole},
		{file, dir, removedWhole},
		{file, file, stays},
		{flushed, nil, removedWhole},
		{flushed, dir, removedWhole},
		{flushed, file, stays},
		{replaced, file, stays},
		{dir, nil, removedWhole},
		{dir, file, removedWhole},
		{dir, dir, removedPart},
	} {
		if got := displacement(test.old, test.by); got != test.want {
			t.Errorf("%+v by %+v: %v, want %v", test.old, test.by, got, test.want)
		}
	}
}

// removedNames is a plainMover that notes its removals.
type removedNames struct {
	plainMover
	names []string
}

func (m *removedNames) Remove(ctx context.Context, e *bb.Entry) error {
	err := m.plainMover.Remove(ctx, e)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && !e.IsDir() {
		m.names = append(m.names, e.Name)
	}
	return err
}

// TestTxnReplacesDurable replaces a directory by one that has some of its names. Files that the
// output has, too, are replaced in one step each, and keep the store's objects. The others are
// removed.
func TestTxnReplacesDurable(t *testing.T) {
	t.Parallel()
	for _, replace := range []string{".", "p", "p/q"} {
		eachMode(t, []mode{modes[1], modes[3]}, func(t *testing.T, s *space) { testTxnReplacesDurable(t, s, replace) })
	}
}

func testTxnReplacesDurable(t *testing.T, s *space, replace string) {
	ns := s.start(t)
	ctx := metatest.Context(t)
	q, err := ns.MkdirAll(ctx, "d/p/q", namespace.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	was := bb.Flushed{Generation: 1, ETag: "e", By: "n1"}
	for _, name := range []string{"same", "other", "dirty"} {
		e := namespacetest.Create(t, ns, q.Dir, name)
		if name == "dirty" {
			continue
		}
		e.Flushed = was
		if _, err := ns.Put(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	d, err := ns.Resolve(ctx, "d")
	if err != nil {
		t.Fatal(err)
	}
	x, err := ns.BeginTxn(ctx, bb.Txn{Destination: "d", Dir: d.Dir, UID: 7})
	if err != nil {
		t.Fatal(err)
	}
	to, err := ns.MkdirAll(ctx, path.Join(x.Path(), attemptDir, "t", "a", "p/q"), namespace.Owner{Mode: 0o700})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"d": "/", "d/p": "/", "d/p/q": "/"}
	for _, name := range []string{"same", "dirty", "new"} {
		want["d/p/q/"+name] = namespacetest.Create(t, ns, to.Dir, name).File.String()
	}
	if _, err := ns.AdoptTxn(ctx, x.ID, "t", "a"); err != nil {
		t.Fatal(err)
	}
	other := s.start(t)
	wantReplacing := func(p string, want bb.TxnID) {
		t.Helper()
		for _, ns := range []*process{ns, other} {
			if id, err := ns.Replacing(ctx, p); err != nil || id != want {
				t.Errorf("%s is being replaced by %v (%v), want %v", p, id, err, want)
			}
		}
	}
	wantReplacing("d/p/q/same", 0)
	mv := &removedNames{plainMover: plainMover{ns: ns}}
	if err := commitTxn(ctx, ns, x.ID, []string{replace}, mv); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, ns, ""); !maps.Equal(got, want) {
		t.Errorf("committed: %v, want %v", got, want)
	}
	wantReplacing("d/p/q/same", x.ID)
	wantReplacing("d/p/q/other", x.ID)
	wantReplacing("d/p/query", map[bool]bb.TxnID{true: x.ID}[replace != "p/q"])
	wantReplacing("d/pq", map[bool]bb.TxnID{true: x.ID}[replace == "."])
	wantReplacing("dp/q/same", 0)
	if err := foldAll(ctx, ns, mv); err != nil {
		t.Fatal(err)
	}
	if got := namespacetest.Paths(t, ns); !maps.Equal(got, want) {
		t.Errorf("folded: %v, want %v", got, want)
	}
	wantReplacing("d/p/q/same", 0)
	slices.Sort(mv.names)
	if !slices.Equal(mv.names, []string{"other"}) {
		t.Errorf("removed: %v", mv.names)
	}
	for name, kept := range map[string]bb.Flushed{"same": was, "dirty": {}, "new": {}} {
		if e, err := ns.Resolve(ctx, "d/p/q/"+name); err != nil || e.Stored() != kept || e.Flushed.Generation != 0 {
			t.Errorf("%s: the store has %+v, of it %+v (%v)", name, e.Stored(), e.Flushed, err)
		}
	}
}
