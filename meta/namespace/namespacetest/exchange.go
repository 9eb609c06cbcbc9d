package namespacetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func testExchange(t *testing.T, factory Factory) {
	for name, c := range map[string]struct {
		a, b  string
		kind  bb.Kind
		there []string // paths afterwards
		gone  []string
	}{
		"files":                               {"f", "d/sub/h", 0, []string{"f", "d/sub/h"}, nil},
		"a file and a directory":              {"f", "d", 0, []string{"f/sub/h", "d"}, []string{"d/sub"}},
		"a directory and a file":              {"d", "f", 0, []string{"f/sub/h", "d"}, []string{"d/sub"}},
		"directories":                         {"d", "e", 0, []string{"e/sub/h", "d/x/y"}, []string{"d/sub", "e/x"}},
		"directories of two parents":          {"d/sub", "e/x", 0, []string{"d/sub/y", "e/x/h"}, []string{"d/sub/h", "e/x/y"}},
		"one name":                            {"d", "d", 0, []string{"d/sub/h"}, nil},
		"nothing with a file":                 {"none", "f", bb.NotFound, []string{"f"}, []string{"none"}},
		"a file with nothing":                 {"f", "none", bb.NotFound, []string{"f"}, []string{"none"}},
		"a directory and its child":           {"d", "d/sub", bb.Invalid, []string{"d/sub/h"}, nil},
		"a child and its directory":           {"d/sub", "d", bb.Invalid, []string{"d/sub/h"}, nil},
		"a directory and a file far below it": {"d", "d/sub/h", bb.Invalid, []string{"d/sub/h"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			factory.one(t, func(t *testing.T, ns namespace.Tree) {
				ctx := metatest.Context(t)
				Create(t, ns, bb.RootDir, "f")
				for _, dir := range []string{"d/sub", "e/x/y"} {
					e, err := ns.MkdirAll(ctx, dir, namespace.Owner{})
					if err != nil {
						t.Fatal(err)
					}
					if dir == "d/sub" {
						Create(t, ns, e.Dir, "h")
					}
				}
				s := Subject{t, ns}
				dirA, nameA, err := s.place(c.a)
				if err != nil {
					t.Fatal(err)
				}
				dirB, nameB, err := s.place(c.b)
				if err != nil {
					t.Fatal(err)
				}
				a, _ := ns.Lookup(ctx, dirA, nameA)
				b, _ := ns.Lookup(ctx, dirB, nameB)
				x, err := ns.Exchange(ctx, dirA, nameA, dirB, nameB, namespace.ExchangeOptions{})
				metatest.WantKind(t, "exchange", err, c.kind)
				if err == nil && c.a != c.b {
					checkExchanged(t, ns, &x, &a, &b)
				}
				for _, p := range c.there {
					if _, err := ns.Resolve(ctx, p); err != nil {
						t.Errorf("%s: %v", p, err)
					}
				}
				for _, p := range c.gone {
					if e, err := ns.Resolve(ctx, p); err == nil {
						t.Errorf("%s is %+v", p, e)
					}
				}
				CheckPaths(t, ns)
			})
		})
	}
}

// checkExchanged checks that two entries have each other's places, and that both can be changed there.
func checkExchanged(t *testing.T, ns namespace.Tree, x *namespace.Exchanged, a, b *bb.Entry) {
	t.Helper()
	for _, c := range []struct {
		is       *bb.Entry
		was, old *bb.Entry // the entry, and the one whose place it has
	}{{&x.Entry, a, b}, {&x.Other, b, a}} {
		now, err := ns.LookupAgain(metatest.Context(t), c.old.Parent, c.old.Name)
		if err != nil || namespace.IDOf(&now) != namespace.IDOf(c.was) || !reflect.DeepEqual(now, *c.is) {
			t.Errorf("%+v is there (%v), and was answered as %+v", now, err, *c.is)
		}
		if now.IsDir() {
			Create(t, ns, now.Dir, "after")
		} else if _, err := ns.Put(metatest.Context(t), now); err != nil {
			t.Errorf("put of an exchanged entry: %v", err)
		}
	}
}

// testExchangeTwice: an exchange that is sent again with the numbers of both entries is not carried out twice.
// One with another number is refused.
func testExchangeTwice(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		for _, pair := range [][2]bb.Entry{
			{Create(t, ns, bb.RootDir, "f"), Create(t, ns, bb.RootDir, "g")},
			{Mkdir(t, ns, bb.RootDir, "d"), Mkdir(t, ns, bb.RootDir, "e")},
			{Mkdir(t, ns, bb.RootDir, "h"), Create(t, ns, bb.RootDir, "i")},
		} {
			a, b := &pair[0], &pair[1]
			o := namespace.ExchangeOptions{From: namespace.IDOf(a), To: namespace.IDOf(b), StoreOp: true}
			for try := range 2 {
				x, err := ns.Exchange(ctx, bb.RootDir, a.Name, bb.RootDir, b.Name, o)
				if err != nil || x.Before != (try == 1) || namespace.IDOf(&x.Entry) != o.From || x.Entry.Name != b.Name || namespace.IDOf(&x.Other) != o.To || x.Other.Name != a.Name {
					t.Errorf("%d: %+v (%v)", try, x, err)
				}
			}
			for _, other := range []namespace.ExchangeOptions{{From: 77}, {To: 77}, {From: o.From, To: 77}, {From: 77, To: o.From}, {From: o.From}} {
				_, err := ns.Exchange(ctx, bb.RootDir, a.Name, bb.RootDir, b.Name, other)
				metatest.WantKind(t, fmt.Sprint(other), err, bb.Busy)
			}
			if x, err := ns.Exchange(ctx, bb.RootDir, a.Name, bb.RootDir, b.Name, namespace.ExchangeOptions{From: o.To, To: o.From}); err != nil || x.Before {
				t.Errorf("back: %+v (%v)", x, err)
			}
		}
	})
}

// exchangeCase is an exchange of two entries, and what the store is to do, with @ for the name aside.
type exchangeCase struct {
	name    string
	a, b    bb.Entry
	ops     []namespace.StoreOp
	beforeA *bb.Before // of a at its new place
	beforeB *bb.Before
}

func exchangeCases() []exchangeCase {
	flushed := bb.Flushed{Generation: 1, ETag: "e", Size: 4, Checksum: 9, Codec: "zstd"}
	older := bb.Flushed{Generation: 1, ETag: "o", Size: 5, Checksum: 8}
	one, two, now := bb.Content{Size: 1, Checksum: 1}, bb.Content{Size: 2, Checksum: 2}, bb.Content{Size: 10, Checksum: 3}
	dirty := bb.Entry{Type: bb.TypeFile, Generation: 2, Size: now.Size, Checksum: now.Checksum, Holders: []bb.NodeID{"n1"}}
	clean, rewritten, over, dir := dirty, dirty, dirty, bb.Entry{Type: bb.TypeDirectory}
	clean.Generation, clean.Flushed = 1, flushed
	rewritten.Flushed = flushed
	rewritten.SetBefore(bb.Flushed{}, []bb.Content{one})
	over.SetBefore(older, []bb.Content{two})
	move := func(from, to string, f bb.Flushed, attempts ...bb.Content) namespace.StoreOp {
		return namespace.StoreOp{Op: namespace.OpRename, OldPath: from, NewPath: to, Flushed: f, Attempts: attempts}
	}
	last := move("@", "b", flushed)
	last.ReplacedAttempts = []bb.Content{one, now}
	replacing := move("a", "b", flushed, one, now)
	replacing.Replaced, replacing.ReplacedAttempts = older, []bb.Content{two, now}
	moveDir := func(from, to string) namespace.StoreOp {
		return namespace.StoreOp{Op: namespace.OpRename, OldPath: from, NewPath: to, IsDir: true}
	}
	before := func(replaced bb.Flushed, attempts ...bb.Content) *bb.Before {
		return &bb.Before{Replaced: replaced, Attempts: attempts}
	}
	return []exchangeCase{
		{"neither was flushed", dirty, over, nil, before(older, two, now), before(bb.Flushed{}, now)},
		{"both were", clean, rewritten, []namespace.StoreOp{
			move("a", "@", flushed), move("b", "a", flushed, one, now), last,
		}, before(bb.Flushed{}, one, now), before(bb.Flushed{}, one)},
		{"one was", rewritten, over, []namespace.StoreOp{replacing}, before(bb.Flushed{}, one, two, now), before(bb.Flushed{}, one, now)},
		{"directories", dir, dir, []namespace.StoreOp{moveDir("a", "@"), moveDir("b", "a"), moveDir("@", "b")}, nil, nil},
		{"a flushed file and a directory", clean, dir, []namespace.StoreOp{move("a", "@", flushed), moveDir("b", "a"), move("@", "b", flushed)}, nil, nil},
		{"a directory and another file", dir, over, []namespace.StoreOp{
			{Op: namespace.OpRemove, OldPath: "b", Left: older, Attempts: []bb.Content{two, now}}, moveDir("a", "b"),
		}, nil, nil},
	}
}

// testExchangeOps: the store's part of an exchange, and the contents that may be under both names from then on.
func testExchangeOps(t *testing.T, factory Factory) {
	for _, c := range exchangeCases() {
		t.Run(c.name, func(t *testing.T) {
			factory.one(t, func(t *testing.T, ns namespace.Tree) {
				ctx := metatest.Context(t)
				made := [2]bb.Entry{c.a, c.b}
				for i, name := range []string{"a", "b"} {
					if made[i].IsDir() {
						made[i] = Mkdir(t, ns, bb.RootDir, name)
						continue
					}
					made[i].Parent, made[i].Name, made[i].File = bb.RootDir, name, bb.FileID(1<<60+lastFile.Add(1))
					if _, err := ns.Create(ctx, made[i]); err != nil {
						t.Fatal(err)
					}
				}
				x, err := ns.Exchange(ctx, bb.RootDir, "a", bb.RootDir, "b", namespace.ExchangeOptions{StoreOp: true})
				if err != nil || !reflect.DeepEqual(x.Entry.Before, c.beforeA) || !reflect.DeepEqual(x.Other.Before, c.beforeB) {
					t.Errorf("%+v, %+v (%v)", x.Entry.Before, x.Other.Before, err)
				}
				got, err := ns.StoreOps(ctx)
				if err != nil || len(got) != len(c.ops) {
					t.Fatalf("%+v (%v)", got, err)
				}
				for i, op := range got {
					want := c.ops[i]
					aside := ".forebay-exchange-" + fmt.Sprintf("%x", namespace.IDOf(&made[0]))
					for _, p := range []*string{&want.OldPath, &want.NewPath} {
						if *p == "@" {
							*p = aside
						}
					}
					want.Seq, want.Revision, want.By, want.File = op.Seq, op.Revision, "me", op.File
					if !reflect.DeepEqual(op, want) {
						t.Errorf("%d: %+v, want %+v", i, op, want)
					}
				}
			})
		})
	}
}

// Files and directories change places with each other, and with the directories above them, at the same
// time. Nothing may be cut off from the root, be there twice, or be missing.
func testConcurrentExchange(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		ctx := metatest.Context(t)
		x, err := a.MkdirAll(ctx, "x/sub", namespace.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		y, err := a.MkdirAll(ctx, "y/sub", namespace.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		Create(t, a, bb.RootDir, "f")
		Create(t, a, x.Dir, "f")
		before := len(Paths(t, a))
		places := []bb.Place{{Dir: bb.RootDir, Name: "x"}, {Dir: bb.RootDir, Name: "y"}, {Dir: bb.RootDir, Name: "f"}, {Dir: x.Dir, Name: "f"}, x.Place(), y.Place()}
		var wg sync.WaitGroup
		for i, p := range places {
			ns := []namespace.Tree{a, b}[i%2]
			wg.Go(func() {
				for n := range 10 {
					q := places[(i+1+n)%len(places)]
					_, err := ns.Exchange(ctx, p.Dir, p.Name, q.Dir, q.Name, namespace.ExchangeOptions{StoreOp: n%2 == 0})
					if err != nil && !errors.Is(err, bb.Invalid) {
						t.Errorf("%v with %v: %v", p, q, err)
					}
				}
			})
		}
		wg.Wait()
		if after := Paths(t, b); len(after) != before {
			t.Errorf("there are %v, and were %d", after, before)
		}
		CheckPaths(t, a)
		CheckPaths(t, b)
	})
}
