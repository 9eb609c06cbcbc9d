package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/nslog/record"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	p := Pauses{First: 100 * time.Millisecond, Longest: 2 * time.Second}
	for what, c := range map[string]struct {
		row    int
		lasted time.Duration
		next   int
		after  time.Duration
	}{
		"it changes at once":               {0, 0, 1, 200 * time.Millisecond},
		"it changes often":                 {3, 7 * time.Second, 4, 1600 * time.Millisecond},
		"the pause does not grow for ever": {4, 10 * time.Second, 5, 2 * time.Second},
		"after a long row":                 {1000, time.Second, 1001, 2 * time.Second},
		"it rested after a long row":       {1000, 20 * time.Second, 0, 100 * time.Millisecond},
		"it changes seldom":                {0, time.Second, 0, 100 * time.Millisecond},
	} {
		next := p.next(c.row, c.lasted)
		if after := p.after(next); next != c.next || after != c.after {
			t.Errorf("%s: %d in a row, %v; want %d, %v", what, next, after, c.next, c.after)
		}
	}
}

// readers answer revocations, unless they are silent.
type readers struct {
	mu     sync.Mutex
	silent map[bb.NodeID]bool
	got    []string
}

func (r *readers) revoke(ctx context.Context, to Reader, of Of) error {
	r.mu.Lock()
	silent := r.silent[to.Node]
	r.got = append(r.got, fmt.Sprint(to.Node, of))
	r.mu.Unlock()
	if silent {
		<-ctx.Done()
		return errors.New("no answer")
	}
	return nil
}

func (r *readers) sent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

// serving returns grants of an owner whose own lease has some time left.
func serving(t *testing.T, r *readers, left time.Duration) *Grants {
	g := New(Options{Revoke: r.revoke})
	t.Cleanup(g.Close)
	g.Serve(func() time.Duration { return left })
	return g
}

func effects(dirs ...bb.DirID) (b []byte) {
	for _, dir := range dirs {
		b = record.AppendStore(b, record.AppendEntryKey(nil, dir, "name"), []byte("value"))
	}
	return append(b, record.AppendRemove(nil, record.OtherKey("other"))...)
}

var a, b = Reader{Node: "a"}, Reader{Node: "b"}

// granted makes a reader the first one, which makes the owner note changes.
func granted(t *testing.T, g *Grants, r Reader, dir bb.DirID) Grant {
	t.Helper()
	got := g.Grant(r, dir)
	if got.Term == 0 {
		t.Fatalf("%v gets no lease on %v", r.Node, dir)
	}
	return got
}

// A change waits for the leases on its own directories, and for no others.
func TestChangeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readers{}
		g := serving(t, r, time.Hour)
		if got := granted(t, g, a, 1); got.Term != time.Second {
			t.Errorf("a term of %v", got.Term)
		}
		granted(t, g, b, 1)
		granted(t, g, b, 2)
		if g.Change(effects(3, 4)) != nil || len(r.sent()) != 0 {
			t.Errorf("a change waits for leases on other directories (%v)", r.sent())
		}
		if g.Grant(a, 3).Term != 0 {
			t.Error("a directory is leased while it is changed")
		}
		g.Done()
		granted(t, g, a, 3)
		wait := g.Change(effects(1))
		if wait == nil {
			t.Fatal("a change does not wait for leases")
		}
		if g.Change(effects(1)) == nil {
			t.Error("a second change does not wait for leases")
		}
		wait(t.Context())
		if len(r.sent()) != 2 {
			t.Errorf("revoked: %v", r.sent())
		}
		if g.Change(effects(1)) != nil {
			t.Error("leases are left after a revocation")
		}
		if n := g.o.Counts.Stats(); n != (Stats{Granted: 4, Revoked: 2}) || g.Held() != 2 {
			t.Errorf("counted: %+v, %d leases are there", n, g.Held())
		}
		g.Done()
		if g.Grant(a, 1).Term != 0 {
			t.Error("a directory is leased at once after a revocation")
		}
		time.Sleep(100 * time.Millisecond)
		granted(t, g, a, 1)
	})
}

// Before there is a reader, a lease is not granted either while changes are appended.
func TestFirstReader(t *testing.T) {
	t.Parallel()
	g := serving(t, &readers{}, time.Hour)
	if g.Change(effects(1)) != nil {
		t.Fatal("a change waits for nobody")
	}
	if g.Grant(a, 1).Term != 0 {
		t.Error("a directory is leased while it is changed")
	}
	g.Done()
	if g.Change(effects(1)) != nil || g.Grant(a, 1).Term != 0 || g.Grant(a, 2).Term == 0 {
		t.Error("the next change is not noted")
	}
}

// A reader without an answer delays one change, until its leases are over. Then its session has ended.
func TestSilentReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readers{silent: map[bb.NodeID]bool{"a": true}}
		g := serving(t, r, time.Hour)
		first := granted(t, g, a, 1)
		granted(t, g, a, 2)
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		wait := g.Change(effects(1))
		if g.Grant(a, 3).Term != 0 {
			t.Error("a session is extended that a change waits for")
		}
		wait(t.Context())
		if took := time.Since(began); took < first.Term-200*time.Millisecond || took > first.Term+first.Term/driftShare {
			t.Errorf("the change waited %v", took)
		}
		if g.Change(effects(1, 2)) != nil {
			t.Error("the session has leases after its end")
		}
		if n := g.o.Counts.Stats(); n.Granted != 2 || n.Revoked != 0 || n.Silent != 1 || n.Waited < first.Term-200*time.Millisecond || g.Held() != 0 {
			t.Errorf("the change is counted as %+v, %d leases are there", n, g.Held())
		}
		g.Done()
		if next := granted(t, g, a, 3); next.Session == first.Session {
			t.Error("the next session has the same number")
		}
	})
}

// Leases that are over delay no change.
func TestLeasesAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readers{silent: map[bb.NodeID]bool{"a": true}}
		g := serving(t, r, time.Hour)
		first := granted(t, g, a, 1)
		time.Sleep(2 * time.Second)
		if again := granted(t, g, a, 2); again.Session != first.Session {
			t.Error("a session does not go on, though nothing has changed")
		}
		time.Sleep(2 * time.Second)
		if g.Change(effects(1)) != nil {
			t.Error("a change waits for leases that are over")
		}
		g.Done()
		if again := granted(t, g, a, 2); again.Session == first.Session {
			t.Error("a session goes on after a change")
		}
	})
}

// A term does not outlive the owner's own lease, and no lease is granted after the end.
func TestOwnersLease(t *testing.T) {
	t.Parallel()
	r := &readers{}
	g := serving(t, r, 300*time.Millisecond)
	if got := g.Grant(a, 1); got.Term != 300*time.Millisecond {
		t.Errorf("a term of %v", got.Term)
	}
	g.End(t.Context())
	if got := r.sent(); len(got) != 1 || got[0] != fmt.Sprint(a.Node, Of{All: true}) {
		t.Errorf("at the end, %v are revoked", got)
	}
	if g.Grant(a, 2).Term != 0 {
		t.Error("a lease is granted after the end")
	}
	if serving(t, r, -time.Second).Grant(a, 1).Term != 0 {
		t.Error("an owner without a lease grants one")
	}
}

// A session with leases on too many directories loses some.
func TestManyDirectories(t *testing.T) {
	t.Parallel()
	g := serving(t, &readers{}, time.Hour)
	for dir := range bb.DirID(mostDirs + 100) {
		for g.Grant(a, dir).Term == 0 { // while another one is revoked
			time.Sleep(time.Millisecond)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.sessions[a].dirs); n < mostDirs-1 || n > mostDirs+1 {
		t.Errorf("leases on %d directories", n)
	}
}

var owner = [16]byte{1}

func entry(dir bb.DirID, name string) *bb.Entry {
	return &bb.Entry{Parent: dir, Name: name, Revision: 7}
}

func (c *Cache) has(dir bb.DirID, name string) bool {
	e, has := c.Find(dir, name)
	return has && e != nil && e.Parent == dir && e.Name == name && e.Revision == 7
}

func keep(c *Cache, t Ticket, owner [16]byte, g Grant, e *bb.Entry) {
	c.Keep(t, owner, g, e.Place(), e)
}

// Names that are known to be absent are known as long as entries are.
func TestAbsentNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{}
		lease := Grant{Session: 1, Term: time.Second}
		at := bb.Place{Dir: 1, Name: "x"}
		absent := func() bool {
			e, known := c.Find(at.Dir, at.Name)
			return known && e == nil
		}
		c.Keep(c.Begin(), owner, lease, at, nil)
		if !absent() {
			t.Error("a name that is absent is not known")
		}
		overtaken := c.Begin()
		c.Revoke(Of{Dir: 1})
		if c.Keep(overtaken, owner, lease, at, nil); absent() {
			t.Error("an answer is kept that a revocation has overtaken")
		}
		c.Keep(c.Begin(), owner, lease, at, nil)
		if keep(c, c.Begin(), owner, lease, entry(1, "x")); absent() || !c.has(1, "x") || c.entries != 1 {
			t.Errorf("a name that is there counts as absent, of %d", c.entries)
		}
		c.Revoke(Of{Dir: 1})
		c.Keep(c.Begin(), owner, lease, at, nil)
		if time.Sleep(time.Second); absent() {
			t.Error("a name is absent after the end of the lease")
		}
	})
}

// A path is followed in memory if all of it is known.
func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{}
		lease := Grant{Session: 1, Term: time.Second}
		dir := func(parent, id bb.DirID, name string) {
			e := entry(parent, name)
			e.Dir = id
			keep(c, c.Begin(), owner, lease, e)
		}
		dir(bb.RootDir, 20, "a")
		dir(20, 30, "b")
		keep(c, c.Begin(), owner, lease, entry(30, "f"))
		c.Keep(c.Begin(), owner, lease, bb.Place{Dir: 30, Name: "absent"}, nil)
		if e := c.Resolve([]string{"a", "b", "f"}); e == nil || e.Parent != 30 || e.Name != "f" {
			t.Errorf("a path in memory: %+v", e)
		}
		for _, path := range [][]string{{"a", "c"}, {"a", "b", "absent"}, {"a", "b", "f", "g"}, {"b"}} {
			if e := c.Resolve(path); e != nil {
				t.Errorf("%v: %+v", path, e)
			}
		}
		if c.Revoke(Of{Dir: 20}); c.Resolve([]string{"a", "b", "f"}) != nil {
			t.Error("a path leads through a directory that was changed")
		}
		dir(20, 30, "b")
		if time.Sleep(time.Second); c.Resolve([]string{"a", "b", "f"}) != nil {
			t.Error("a path is followed after the end of the lease")
		}
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{}
		lease := Grant{Session: 1, Term: time.Second}
		keep(c, c.Begin(), owner, Grant{}, entry(1, "none"))
		keep(c, c.Begin(), owner, lease, entry(1, "x"))
		overtaken, late := c.Begin(), c.Begin()
		if !c.has(1, "x") || c.has(1, "none") || c.has(2, "x") {
			t.Error("not the entries that it has leases on")
		}
		c.Revoke(Of{Dir: 1})
		keep(c, overtaken, owner, lease, entry(1, "x"))
		if c.has(1, "x") {
			t.Error("an answer is kept that a revocation has overtaken")
		}
		keep(c, c.Begin(), owner, lease, entry(1, "x"))
		time.Sleep(600 * time.Millisecond)
		keep(c, c.Begin(), owner, lease, entry(2, "y"))
		time.Sleep(600 * time.Millisecond)
		if !c.has(1, "x") || !c.has(2, "y") {
			t.Error("a grant does not extend the session")
		}
		keep(c, late, owner, lease, entry(3, "z"))
		time.Sleep(400 * time.Millisecond)
		if c.has(1, "x") || c.has(2, "y") {
			t.Error("an entry outlives its lease")
		}
		keep(c, c.Begin(), owner, Grant{Session: 2, Term: time.Second}, entry(2, "y"))
		if c.has(1, "x") || !c.has(2, "y") {
			t.Error("entries of a session that the owner has ended are kept")
		}
		keep(c, c.Begin(), owner, lease, entry(1, "x"))
		if c.has(1, "x") {
			t.Error("an entry of the session before is kept")
		}
		keep(c, c.Begin(), [16]byte{2}, lease, entry(1, "x"))
		if !c.has(1, "x") || c.has(2, "y") {
			t.Error("entries of the owner before are kept")
		}
		if c.Revoke(Of{All: true}); c.has(1, "x") {
			t.Error("an entry is left after all were revoked")
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := &Cache{}
	lease := Grant{Session: 1, Term: time.Hour, Listing: true}
	for i := range 2 * mostEntries {
		keep(c, c.Begin(), owner, lease, entry(bb.DirID(i%3), fmt.Sprint(i)))
		if i%100 == 0 {
			dir, page := bb.DirID(i%7), make([]bb.Entry, 100)
			after := ""
			if d := c.dirs[dir]; d != nil && len(d.listed) > 0 {
				after = d.listed[len(d.listed)-1].Name
			}
			for j := range page {
				page[j] = bb.Entry{Parent: dir, Name: fmt.Sprintf("%08d", i+j)}
			}
			c.KeepList(c.Begin(), owner, lease, Part{dir, after, page, true})
		}
	}
	n := 0
	for _, d := range c.dirs {
		n += len(d.names) + len(d.listed)
	}
	if n != c.entries || n > mostEntries || n < mostEntries/2 {
		t.Errorf("%d entries, counted as %d", n, c.entries)
	}
}
