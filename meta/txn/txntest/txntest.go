// Package txntest is the conformance suite of the parts of an engine that transactions need
// (txn.Namespace and txn.Records), besides namespacetest. It must never depend on how an engine stores
// anything.
package txntest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/txn"
)

// Engine is a namespace with its records.
type Engine struct {
	txn.Namespace
	Records txn.Records
}

// Open opens a namespace as a separate process does. Where one process alone may change it, the
// same Engine is returned each time.
type Open func() Engine

// Factory makes an empty namespace and returns a function that opens it.
type Factory func(t *testing.T) Open

// Test runs the suite on namespaces that factory makes.
func Test(t *testing.T, factory Factory) {
	for name, test := range map[string]func(t *testing.T, a, b Engine){
		"Revisions":        testRevisions,
		"Scan":             testScan,
		"Commit":           testCommit,
		"PutWith":          testPutWith,
		"Apart":            testApart,
		"ConcurrentPut":    testConcurrentPut,
		"ConcurrentCheck":  testConcurrentCheck,
		"ConcurrentEntry":  testConcurrentEntry,
		"ConcurrentSkew":   testConcurrentSkew,
		"Find":             testFind,
		"ListLayers":       testListLayers,
		"ListWhileRenamed": testListWhileRenamed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := factory(t)
			test(t, open(), open())
		})
	}
}

// want fails unless a record has data. "" means none. It returns its revision.
func (e Engine) want(t testing.TB, key, data string) uint64 {
	t.Helper()
	r, err := e.Records.Get(metatest.Context(t), key)
	if err != nil || string(r.Data) != data || r.Live() != (data != "") {
		t.Errorf("%s is %q (%v), want %q", key, r.Data, err, data)
	}
	return r.Seq
}

func wantConflict(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, kv.ErrRevision) {
		t.Errorf("%s: %v, want a conflict", what, err)
	}
}

func testRevisions(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	if seq := a.want(t, "t.1.run", ""); seq != 0 {
		t.Errorf("what never was has revision %d", seq)
	}
	first, _, err := a.Records.Create(ctx, "t.1.run", []byte("one"), 0)
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	_, there, err := b.Records.Create(ctx, "t.1.run", []byte("other"), 0)
	wantConflict(t, "created again", err)
	if string(there.Data) != "one" || there.Seq != first || there.Key != "t.1.run" {
		t.Errorf("created again: there is %+v", there)
	}
	second, err := b.Records.Put(ctx, "t.1.run", []byte("two"), first)
	if err != nil || second <= first {
		t.Fatal(first, second, err)
	}
	_, err = a.Records.Put(ctx, "t.1.run", []byte("three"), first)
	wantConflict(t, "put at an old revision", err)
	_, err = a.Records.Remove(ctx, "t.1.run", first)
	wantConflict(t, "removed at an old revision", err)
	_, err = a.Records.Put(ctx, "t.2.run", []byte("three"), first)
	wantConflict(t, "put where there is none", err)
	if got := a.want(t, "t.1.run", "two"); got != second {
		t.Errorf("revision %d, want %d", got, second)
	}
	if _, err := a.Records.Remove(ctx, "t.1.run", second); err != nil {
		t.Fatal(err)
	}
	gone := b.want(t, "t.1.run", "")
	if gone == second {
		t.Errorf("removed, and the revision is still %d", gone)
	}
	_, err = b.Records.Put(ctx, "t.1.run", []byte("three"), second)
	wantConflict(t, "put after it was removed", err)
	if _, err := b.Records.Put(ctx, "t.1.run", []byte("three"), gone); err != nil {
		t.Errorf("put at the revision of what was removed: %v", err)
	}
	third := a.want(t, "t.1.run", "three")
	if _, err := a.Records.Remove(ctx, "t.1.run", third); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Records.Create(ctx, "t.1.run", []byte("four"), 0); err != nil {
		t.Errorf("created after it was removed: %v", err)
	}
	b.want(t, "t.1.run", "four")
}

func (e Engine) create(t testing.TB, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, _, err := e.Records.Create(metatest.Context(t), key, []byte("is "+key), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func (e Engine) scan(t testing.TB, filter string) []string {
	t.Helper()
	var keys []string
	err := e.Records.Scan(metatest.Context(t), filter, func(r *kv.Record) error {
		if r.Live() {
			keys = append(keys, r.Key)
			if string(r.Data) != "is "+r.Key || r.Seq == 0 {
				t.Errorf("%s is %q, of revision %d", r.Key, r.Data, r.Seq)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func testScan(t *testing.T, a, b Engine) {
	a.create(t, "t.1.run", "t.1.task.x", "t.1.task.y", "t.1.lease", "t.10.run", "t.2.run", "t.2.task.z", "x.decided", "tt.1.run")
	for filter, want := range map[string][]string{
		"t.*.run":    {"t.1.run", "t.10.run", "t.2.run"},
		"t.1.task.*": {"t.1.task.x", "t.1.task.y"},
		"t.1.>":      {"t.1.lease", "t.1.run", "t.1.task.x", "t.1.task.y"},
		"t.3.>":      nil,
		"t.1.*":      {"t.1.lease", "t.1.run"},
		"t.1.run":    {"t.1.run"},
	} {
		if got := b.scan(t, filter); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	if _, err := b.Records.Remove(metatest.Context(t), "t.10.run", b.want(t, "t.10.run", "is t.10.run")); err != nil {
		t.Fatal(err)
	}
	if got := a.scan(t, "t.*.run"); !slices.Equal(got, []string{"t.1.run", "t.2.run"}) {
		t.Errorf("after one was removed: %v", got)
	}
	calls, failed := 0, errors.New("failed")
	for end, want := range map[error]error{failed: failed, kv.ErrStop: nil} {
		err := a.Records.Scan(metatest.Context(t), "t.>", func(*kv.Record) error { calls++; return end })
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("a scan that ends with %v: %v", end, err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls of two scans that end with the first", calls)
	}
}

func testCommit(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	a.create(t, "t.1.run", "t.1.lease", "t.2.run")
	run, lease := a.want(t, "t.1.run", "is t.1.run"), a.want(t, "t.1.lease", "is t.1.lease")
	good := []kv.Change{
		kv.Check("t.2.run", a.want(t, "t.2.run", "is t.2.run")),
		{Key: "t.1.run", Data: []byte("new"), Expected: run},
		{Key: "t.1.task.x", Data: []byte("made")},
		{Key: "t.1.lease", Expected: lease},
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i].Expected += 2
		_, err := b.Records.Commit(ctx, bad)
		wantConflict(t, fmt.Sprintf("with change %d that does not find what it expects", i), err)
		if a.want(t, "t.1.run", "is t.1.run") != run {
			t.Errorf("change %d failed, and the others were carried out", i)
		}
		a.want(t, "t.1.task.x", "")
		a.want(t, "t.1.lease", "is t.1.lease")
	}
	revisions, err := b.Records.Commit(ctx, good)
	if err != nil || len(revisions) != len(good) {
		t.Fatal(revisions, err)
	}
	if got := a.want(t, "t.1.run", "new"); got != revisions[1] {
		t.Errorf("revision %d, want %d", revisions[1], got)
	}
	a.want(t, "t.1.task.x", "made")
	a.want(t, "t.1.lease", "")
	if got := a.want(t, "t.2.run", "is t.2.run"); got != good[0].Expected {
		t.Errorf("a check has changed a record: revision %d, was %d", got, good[0].Expected)
	}
	_, err = a.Records.Commit(ctx, good)
	wantConflict(t, "repeated", err)
}

func testPutWith(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	d := namespacetest.Mkdir(t, a, bb.RootDir, "d")
	a.create(t, "t.1.run")
	run := a.want(t, "t.1.run", "is t.1.run")
	changes := func(revision uint64) []kv.Change {
		return []kv.Change{{Key: "t.1.run", Data: []byte("decided"), Expected: revision}, {Key: "x.decided", Data: []byte("-")}}
	}
	nothing := func(what string, err error) {
		t.Helper()
		wantConflict(t, what, err)
		a.want(t, "t.1.run", "is t.1.run")
		a.want(t, "x.decided", "")
		if now, err := a.LookupAgain(ctx, bb.RootDir, "d"); err != nil || now.Txn != 0 {
			t.Errorf("%s: the entry is %+v (%v)", what, now, err)
		}
	}
	marked := d
	marked.Txn = 7
	old := marked
	old.Revision -= 2
	nothing("another revision of the entry", b.PutWith(ctx, &old, changes(run)...))
	nothing("another revision of a record", b.PutWith(ctx, &marked, changes(run+2)...))
	if err := b.PutWith(ctx, &marked, changes(run)...); err != nil {
		t.Fatal(err)
	}
	now, err := a.LookupAgain(ctx, bb.RootDir, "d")
	if err != nil || now.Txn != 7 || now.Revision != marked.Revision || now.Revision == d.Revision || now.Dir != d.Dir {
		t.Errorf("the entry is %+v (%v), want %+v", now, err, marked)
	}
	a.want(t, "t.1.run", "decided")
	a.want(t, "x.decided", "-")
	if e, err := b.EntryOf(ctx, d.Dir); err != nil || e.Txn != 7 {
		t.Errorf("by its id the entry is %+v (%v)", e, err)
	}
	wantConflict(t, "repeated", b.PutWith(ctx, &marked, changes(run)...))
	gone := namespacetest.Mkdir(t, a, bb.RootDir, "gone")
	if _, err := a.Remove(ctx, bb.RootDir, "gone", namespace.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, "an entry that was removed", b.PutWith(ctx, &gone, kv.Change{Key: "t.2.run", Data: []byte("new")}))
	a.want(t, "t.2.run", "")
}

// Records are no entries.
func testApart(t *testing.T, a, b Engine) {
	a.create(t, "t.1.run", "t.1.task.x")
	namespacetest.Create(t, a, bb.RootDir, "f")
	n := 0
	if err := b.ScanAll(metatest.Context(t), func(bb.Entry) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d entries (%v), want 1", n, err)
	}
	if ops, err := b.StoreOps(metatest.Context(t)); err != nil || len(ops) != 0 {
		t.Errorf("%d operations (%v), want none", len(ops), err)
	}
}

func testConcurrentPut(t *testing.T, a, b Engine) {
	const callers, each = 6, 8
	a.create(t, "t.1.run")
	var all sync.WaitGroup
	for i := range callers {
		e := []Engine{a, b}[i%2]
		all.Go(func() {
			for done := 0; done < each; {
				r, err := e.Records.Get(metatest.Context(t), "t.1.run")
				if err == nil {
					_, err = e.Records.Put(metatest.Context(t), "t.1.run", append(r.Data, '.'), r.Seq)
				}
				if err == nil {
					done++
				} else if !errors.Is(err, kv.ErrRevision) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if r, err := a.Records.Get(metatest.Context(t), "t.1.run"); err != nil || len(r.Data) != len("is t.1.run")+callers*each {
		t.Errorf("%d bytes (%v), want %d more than at first", len(r.Data), err, callers*each)
	}
}

// Once a record has changed, nothing is stored that expected it to be as it was.
func testConcurrentCheck(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	for round := range 4 {
		run := fmt.Sprintf("t.%d.run", round)
		a.create(t, run)
		open := a.want(t, run, "is "+run)
		var all sync.WaitGroup
		var mu sync.Mutex
		var stored []string
		for i := range 8 {
			e, key := []Engine{a, b}[i%2], fmt.Sprintf("t.%d.task.%d", round, i)
			all.Go(func() {
				_, err := e.Records.Commit(ctx, []kv.Change{kv.Check(run, open), {Key: key, Data: []byte("is " + key)}})
				if err != nil && !errors.Is(err, kv.ErrRevision) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					stored = append(stored, key)
				}
			})
		}
		all.Go(func() {
			if _, err := a.Records.Put(ctx, run, []byte("closed"), open); err != nil {
				t.Error(err)
				return
			}
			before := b.scan(t, fmt.Sprintf("t.%d.task.*", round))
			if _, err := b.Records.Commit(ctx, []kv.Change{kv.Check(run, open), {Key: run + ".late", Data: []byte("-")}}); !errors.Is(err, kv.ErrRevision) {
				t.Errorf("stored after it was closed: %v", err)
			}
			if after := b.scan(t, fmt.Sprintf("t.%d.task.*", round)); !slices.Equal(before, after) {
				t.Errorf("%v after it was closed, then %v", before, after)
			}
		})
		all.Wait()
		slices.Sort(stored)
		if got := a.scan(t, fmt.Sprintf("t.%d.task.*", round)); !slices.Equal(got, stored) {
			t.Errorf("there is %v, want %v", got, stored)
		}
	}
}

// One of several that put the same entry with different records wins, with its record alone.
func testConcurrentEntry(t *testing.T, a, b Engine) {
	for round := range 4 {
		d := namespacetest.Mkdir(t, a, bb.RootDir, fmt.Sprint("d", round))
		var all sync.WaitGroup
		won := make([]bool, 6)
		for i := range won {
			e := []Engine{a, b}[i%2]
			all.Go(func() {
				marked := d
				marked.Txn = bb.TxnID(i + 1)
				err := e.PutWith(metatest.Context(t), &marked, kv.Change{Key: fmt.Sprintf("t.%d.%d", round, i), Data: []byte("won")})
				if won[i] = err == nil; err != nil && !errors.Is(err, kv.ErrRevision) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		now, err := b.LookupAgain(metatest.Context(t), bb.RootDir, d.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range won {
			want := ""
			if bb.TxnID(i+1) == now.Txn {
				want = "won"
			}
			if won[i] != (want != "") {
				t.Errorf("caller %d won: %v; the entry names %v", i, won[i], now.Txn)
			}
			a.want(t, fmt.Sprintf("t.%d.%d", round, i), want)
		}
	}
}

// Of two changes each of which expects the other one's key to be unchanged, one wins.
func testConcurrentSkew(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	const pairs = 20
	var won [pairs][2]bool
	keys := func(i int) [2]string { return [2]string{fmt.Sprintf("t.%d.run", i), fmt.Sprintf("t.%d.lease", i)} }
	var all sync.WaitGroup
	for i := range pairs {
		key := keys(i)
		a.create(t, key[:]...)
		was := [2]uint64{a.want(t, key[0], "is "+key[0]), a.want(t, key[1], "is "+key[1])}
		for side, e := range []Engine{a, b} {
			all.Go(func() {
				other := 1 - side
				_, err := e.Records.Commit(ctx, []kv.Change{kv.Check(key[other], was[other]), {Key: key[side], Data: []byte("won"), Expected: was[side]}})
				if won[i][side] = err == nil; err != nil && !errors.Is(err, kv.ErrRevision) {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for i := range pairs {
		if won[i][0] == won[i][1] {
			t.Errorf("pair %d: %v have won", i, won[i])
		}
		for side, key := range keys(i) {
			want := "is " + key
			if won[i][side] {
				want = "won"
			}
			b.want(t, key, want)
		}
	}
}
