package shared_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
)

// leased is three daemons, of which the first one owns the log, and a path of five directories.
type leased struct {
	*cluster
	owner, user, other *daemon
	path               []string
	lookups, revokes   atomic.Int64 // calls
	listings           atomic.Int64
}

func newLeased(t *testing.T, o shared.Options) *leased {
	l := &leased{cluster: inProcess(t, newNetwork(1, 0), o), path: []string{"a", "b", "c", "d", "e"}}
	l.net.sees = func(_ bb.NodeID, c *calls.Call) {
		switch c.Op {
		case calls.OpLookup:
			l.lookups.Add(1)
		case calls.OpList:
			l.listings.Add(1)
		case calls.OpRevoke:
			l.revokes.Add(1)
		}
	}
	l.owner, l.user, l.other = l.start("o", 0), l.start("u", 1), l.start("v", 2)
	claim(t, l.owner)
	prepare(t, l.owner)
	if _, err := l.owner.tree.MkdirAll(metatest.Context(t), "a/b/c/d/e", namespace.Owner{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	return l
}

// walk looks up a path, one name after the other, and returns its last directory.
func (d *daemon) walk(ctx context.Context, path []string) (e bb.Entry, err error) {
	e.Dir = bb.RootDir
	for _, name := range path {
		if e, err = d.tree.Lookup(ctx, e.Dir, name); err != nil {
			return e, err
		}
	}
	return e, nil
}

// quiet repeats reads of unchanged directories until they need no call.
func quiet(t testing.TB, sent *atomic.Int64, read func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		before := sent.Load()
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if sent.Load() == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("reads of unchanged directories go on sending calls")
		}
	}
}

// warm walks until the path is in memory.
func (l *leased) warm(t testing.TB, d *daemon) (e bb.Entry) {
	t.Helper()
	quiet(t, &l.lookups, func() (err error) {
		e, err = d.walk(t.Context(), l.path)
		return err
	})
	return e
}

// A path of unchanged directories is looked up without a call, and a change is seen by the next look-up.
func TestLookupsUnderLeases(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	l := newLeased(t, shared.Options{Lease: time.Hour})
	leaf := l.warm(t, l.user)
	for _, change := range []func() error{
		func() error { // by the owner
			_, err := l.owner.tree.Rename(ctx, leaf.Parent, "e", leaf.Parent, "f", namespace.RenameOptions{})
			return err
		},
		func() error { // by another daemon
			_, err := l.other.tree.Rename(ctx, leaf.Parent, "f", leaf.Parent, "e", namespace.RenameOptions{})
			return err
		},
		func() error { // by the one that has the leases
			_, err := l.user.tree.Rename(ctx, leaf.Parent, "e", leaf.Parent, "f", namespace.RenameOptions{})
			return err
		},
	} {
		was := l.warm(t, l.user)
		l.warm(t, l.other)
		before := l.revokes.Load()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if n := l.revokes.Load() - before; n != 2 {
			t.Errorf("%d leases are revoked, not 2", n)
		}
		for _, d := range []*daemon{l.user, l.other} {
			if _, err := d.tree.Lookup(ctx, was.Parent, was.Name); !errors.Is(err, bb.NotFound) {
				t.Errorf("%s finds a name that is gone (%v)", d.node, err)
			}
		}
		l.path[4] = map[string]string{"e": "f", "f": "e"}[was.Name]
	}
}

// A name that is not there is looked up without a call until it is made, by any daemon. Then it is there. Where the
// revocation is left out, it would not be.
func TestAbsentNamesUnderLeases(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	for _, keeps := range []bool{false, true} {
		l := newLeased(t, shared.Options{Lease: time.Hour})
		leaf := l.warm(t, l.user)
		absent := func() bool {
			_, err := l.user.tree.Lookup(ctx, leaf.Dir, "new")
			if err != nil && !errors.Is(err, bb.NotFound) {
				t.Fatal(err)
			}
			return err != nil
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			before := l.lookups.Load()
			if !absent() {
				t.Fatal("a name is there that nobody made")
			}
			if l.lookups.Load() == before {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("look-ups of a name that is absent go on sending calls")
			}
		}
		if _, err := l.user.tree.Resolve(ctx, "a/b/c/d/e"); err != nil {
			t.Error(err)
		}
		l.net.mu.Lock()
		l.net.keeps = keeps
		l.net.mu.Unlock()
		namespacetest.Create(t, l.other.tree, leaf.Dir, "new")
		if absent() != keeps {
			t.Errorf("the name is absent after it was made: %v, with revocations that do not arrive: %v", !keeps, keeps)
		}
	}
}

// list returns the names of a directory, which it requests in pages.
func (l *leased) list(t *testing.T, d *daemon, dir bb.DirID) (names []string, err error) {
	t.Helper()
	for after, more := "", true; more; {
		var page []bb.Entry
		if page, more, err = d.tree.List(t.Context(), dir, after, 700); err != nil {
			return nil, err
		}
		for i := range page {
			after = page[i].Name
			names = append(names, after)
		}
	}
	return names, nil
}

// warmList lists a directory until that needs no call.
func (l *leased) warmList(t *testing.T, d *daemon, dir bb.DirID) (names []string) {
	t.Helper()
	quiet(t, &l.listings, func() (err error) {
		names, err = l.list(t, d, dir)
		return err
	})
	return names
}

// A directory that does not change is listed without a call, in pages, and its names, and absent ones, are looked up in
// the listing. A change is seen by the next listing, also the removal of the directory.
func TestListingsUnderLeases(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	l := newLeased(t, shared.Options{Lease: time.Hour})
	leaf := l.warm(t, l.user)
	var want []string
	var makers sync.WaitGroup
	for i := range 1500 {
		want = append(want, fmt.Sprintf("%04d", i))
	}
	for part := range slices.Chunk(want, 50) {
		makers.Go(func() {
			for _, name := range part {
				if _, err := l.owner.tree.Create(ctx, namespacetest.File(leaf.Dir, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	if got := l.warmList(t, l.user, leaf.Dir); !slices.Equal(got, want) {
		t.Fatalf("%d names are listed, of %d", len(got), len(want))
	}
	before := l.lookups.Load()
	if e, err := l.user.tree.Lookup(ctx, leaf.Dir, "0777"); err != nil || e.Name != "0777" || e.File == 0 {
		t.Errorf("a listed name: %+v, %v", e, err)
	}
	if _, err := l.user.tree.Lookup(ctx, leaf.Dir, "absent"); !errors.Is(err, bb.NotFound) {
		t.Errorf("an absent name: %v", err)
	}
	if n := l.lookups.Load() - before; n != 0 {
		t.Errorf("%d calls for names of a directory in memory", n)
	}
	for i, d := range []*daemon{l.owner, l.other, l.user} {
		l.warmList(t, l.user, leaf.Dir)
		name := fmt.Sprint("new", i)
		namespacetest.Create(t, d.tree, leaf.Dir, name)
		want = append(want, name)
		if got, err := l.list(t, l.user, leaf.Dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("after %s has made a file, %d names are listed, not %d (%v)", d.node, len(got), len(want), err)
		}
	}
	if err := l.other.tree.RemoveAll(ctx, leaf.Parent, "e", namespace.RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := l.list(t, l.user, leaf.Dir); !errors.Is(err, bb.NotFound) {
		t.Errorf("a directory that was removed lists %q (%v)", got, err)
	}
}

// An empty directory that another daemon removes, or replaces, is not listed any more.
func TestEmptyDirectoryUnderLease(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	l := newLeased(t, shared.Options{Lease: time.Hour})
	leaf := l.warm(t, l.user)
	for what, remove := range map[string]func() error{
		"removed": func() error {
			_, err := l.other.tree.Remove(ctx, leaf.Dir, "removed", namespace.RemoveOptions{})
			return err
		},
		"replaced": func() error {
			if _, err := l.other.tree.Mkdir(ctx, leaf.Dir, "y", namespace.Owner{}); err != nil {
				return err
			}
			_, err := l.other.tree.Rename(ctx, leaf.Dir, "y", leaf.Dir, "replaced", namespace.RenameOptions{Replace: true})
			return err
		},
	} {
		x, err := l.owner.tree.Mkdir(ctx, leaf.Dir, what, namespace.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if names := l.warmList(t, l.user, x.Dir); len(names) != 0 {
			t.Errorf("an empty directory lists %q", names)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if names, err := l.list(t, l.user, x.Dir); !errors.Is(err, bb.NotFound) {
			t.Errorf("a directory that was %s lists %q (%v)", what, names, err)
		}
	}
}

// A daemon that has leases, and does not answer, delays a change until they are over, and changes elsewhere not at all.
func TestReaderIsKilled(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	l := newLeased(t, shared.Options{Lease: time.Hour})
	leaf := l.warm(t, l.user)
	l.warm(t, l.other)
	l.user.calls.close()
	defer l.user.calls.open()
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := l.owner.tree.Mkdir(ctx, leaf.Parent, "g", namespace.Owner{})
		done <- err
	}()
	for l.revokes.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	namespacetest.Create(t, l.owner.tree, leaf.Dir, "f") // nobody has a lease on it
	select {
	case err := <-done:
		t.Fatalf("a change does not wait for leases (%v)", err)
	default:
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("the change waited %v", time.Since(began))
	// Its leases are over, so that it has to call the owner.
	if _, err := l.user.tree.Lookup(ctx, leaf.Parent, "g"); err != nil {
		t.Error(err)
	}
}

// A daemon that gives the log up leaves no leases behind, and the next owner does not wait.
func TestReleaseRevokes(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	l := newLeased(t, shared.Options{Lease: time.Hour})
	leaf := l.warm(t, l.user)
	if err := l.owner.tree.Release(ctx); err != nil {
		t.Fatal(err)
	}
	claim(t, l.other)
	if _, err := l.other.tree.Remove(ctx, leaf.Parent, leaf.Name, namespace.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.user.walk(ctx, l.path); !errors.Is(err, bb.NotFound) {
		t.Errorf("a directory that the next owner has removed is found (%v)", err)
	}
}

// The daemon that holds the last record of an owner that was killed counts that one's lease from when the record came,
// and not from when it reads the log first.
func TestLeaseIsCountedFromRecord(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	l := newLeased(t, shared.Options{Lease: lease})
	waitHeld(t, l.owner)
	namespacetest.Create(t, l.owner.tree, bb.RootDir, "f")
	l.kill(l.owner)
	time.Sleep(lease + lease/8)
	began := time.Now()
	claim(t, l.user)
	if took := time.Since(began); took > lease/2 {
		t.Errorf("the next owner waits %v for a lease that is over", took)
	}
}

// waitHeld waits until two daemons hold the end of the log.
func waitHeld(t *testing.T, d *daemon) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if holders, _ := d.tree.Holders(); len(holders) == 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no two daemons hold the end of the log")
		}
		if err := d.tree.ScanMarks(metatest.Context(t), func(bb.Entry) error { return nil }, nil); err != nil {
			t.Fatal(err)
		}
	}
}
