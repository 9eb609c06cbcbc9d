package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// listing returns the entries of names.
func listing(dir bb.DirID, names string) (all []bb.Entry) {
	for _, name := range names {
		all = append(all, *entry(dir, string(name)))
	}
	return all
}

// listed returns the names of a part of a listing, with what follows: "+" more, "." nothing, "?" it is not known.
func (c *Cache) listed(dir bb.DirID, after string, limit int) (names string) {
	entries, more, known := c.List(dir, after, limit)
	if !known {
		return "?"
	}
	for i := range entries {
		names += entries[i].Name
	}
	if more {
		return names + "+"
	}
	return names + "."
}

var whole = Grant{Session: 1, Term: time.Second, Listing: true}

// A listing is known from its first name on, as far as it was kept, and so is which names are absent.
func TestListing(t *testing.T) {
	t.Parallel()
	c := &Cache{}
	at := func(after, names string, more bool) func() {
		return func() { c.KeepList(c.Begin(), owner, whole, Part{9, after, listing(9, names), more}) }
	}
	for _, step := range []struct {
		what   string
		do     func()
		lists  map[string]string // limit and name after which it begins
		absent string            // of the names a to i
	}{
		{"nothing", func() {}, map[string]string{"9": "?"}, ""},
		{"a later part", at("c", "ef", true), map[string]string{"9": "?", "9c": "?"}, ""},
		{"the first part", at("", "bd", true), map[string]string{"9": "bd+", "1": "b+", "2": "bd+", "9a": "bd+", "9b": "d+", "9d": "?", "9c": "d+", "9e": "?"}, "ac"},
		{"it again, with another end", at("", "bdef", false), map[string]string{"9": "bd+"}, "ac"},
		{"a part behind a gap", at("e", "fg", false), map[string]string{"9": "bd+"}, "ac"},
		{"the next part", at("d", "fg", true), map[string]string{"9": "bdfg+", "3": "bdf+", "9c": "dfg+", "9f": "g+", "9g": "?"}, "ace"},
		{"the end", at("g", "", false), map[string]string{"9": "bdfg.", "4": "bdfg.", "3": "bdf+", "9g": ".", "9h": "."}, "acehi"},
		{"a part behind the end", at("g", "h", true), map[string]string{"9": "bdfg."}, "acehi"},
		{"a lease on another directory that is revoked", func() { c.Revoke(Of{Dir: 8}) }, map[string]string{"9": "bdfg."}, "acehi"},
		{"the lease, revoked", func() { c.Revoke(Of{Dir: 9}) }, map[string]string{"9": "?"}, ""},
		{"an empty directory", at("", "", false), map[string]string{"9": ".", "9x": "."}, "abcdefghi"},
	} {
		step.do()
		for from, want := range step.lists {
			if got := c.listed(9, from[1:], int(from[0]-'0')); got != want {
				t.Errorf("%s: %s lists %q, want %q", step.what, from, got, want)
			}
		}
		var absent []rune
		for _, name := range "abcdefghi" {
			if e, known := c.Find(9, string(name)); known && e == nil {
				absent = append(absent, name)
			} else if known && e.Name != string(name) {
				t.Errorf("%s: %q is found as %q", step.what, name, e.Name)
			}
		}
		if string(absent) != step.absent {
			t.Errorf("%s: the names %q are absent, want %q", step.what, string(absent), step.absent)
		}
	}
	if c.entries != 0 {
		t.Errorf("%d entries are counted, of none", c.entries)
	}
}

// A listing is kept for as long as an entry, and only of an owner that revokes it when the directory is removed.
func TestListingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{}
		keep := func(ticket Ticket, g Grant) {
			c.KeepList(ticket, owner, g, Part{Dir: 9, Entries: listing(9, "ab")})
		}
		overtaken := c.Begin()
		c.Revoke(Of{Dir: 9})
		keep(overtaken, whole)
		keep(c.Begin(), Grant{})
		keep(c.Begin(), Grant{Session: 1, Term: time.Second})
		if got := c.listed(9, "", 9); got != "?" {
			t.Errorf("a listing %q is kept that was overtaken by a revocation, or came without a lease, or from an older release", got)
		}
		keep(c.Begin(), whole)
		if got := c.listed(9, "", 9); got != "ab." {
			t.Errorf("listed: %q", got)
		}
		entries, _, _ := c.List(9, "", 9)
		entries[0].Name = "x"
		if got := c.listed(9, "", 9); got != "ab." {
			t.Errorf("listed after a caller has changed its entries: %q", got)
		}
		if time.Sleep(time.Second); c.listed(9, "", 9) != "?" {
			t.Error("a listing outlives its lease")
		}
		if e, known := c.Find(9, "c"); known {
			t.Errorf("a name is known after the end of the lease: %v", e)
		}
	})
}

// Listings leave out the directory of transactions, which so does not count as absent.
func TestHiddenName(t *testing.T) {
	t.Parallel()
	c := &Cache{}
	for _, dir := range []bb.DirID{bb.RootDir, 9} {
		c.KeepList(c.Begin(), owner, Grant{Session: 1, Term: time.Hour, Listing: true}, Part{Dir: dir, Entries: listing(dir, "a")})
		if _, known := c.Find(dir, bb.HiddenDir); known != (dir != bb.RootDir) {
			t.Errorf("the directory of transactions in %v: known %v", dir, known)
		}
	}
}

// The removal of a directory waits for the leases on it.
func TestRemovalWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readers{}
		g := serving(t, r, time.Hour)
		granted(t, g, a, 1)
		granted(t, g, b, 7)
		wait := g.Change(effects(3), 7)
		if wait == nil {
			t.Fatal("the removal of a directory does not wait for leases on it")
		}
		wait(t.Context())
		if got := r.sent(); len(got) != 1 || got[0] != fmt.Sprint(b.Node, Of{Dir: 7}) {
			t.Errorf("revoked: %v", got)
		}
		time.Sleep(time.Second)
		if g.Change(effects(3), 7) != nil {
			t.Error("leases are left after a revocation")
		}
		if g.Grant(a, 7).Term != 0 {
			t.Error("a directory is leased while it is removed")
		}
		g.Done()
		granted(t, g, a, 7)
	})
}
