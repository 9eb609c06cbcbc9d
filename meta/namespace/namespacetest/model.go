package namespacetest

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

// Oracle is a namespace so simple that it is plainly right: a map from path to a file's id, or "/"
// for a directory.
type Oracle map[string]string

func (o Oracle) dir(p string) bb.Kind {
	switch {
	case p == "." || o[p] == "/":
		return 0
	case o[p] != "":
		return bb.NotDirectory
	default:
		if k := o.dir(path.Dir(p)); k != 0 {
			return k
		}
		return bb.NotFound
	}
}

// Add adds a file, or a directory for "/".
func (o Oracle) Add(p, what string) bb.Kind {
	if k := o.dir(path.Dir(p)); k != 0 {
		return k
	}
	if o[p] != "" {
		return bb.Exists
	}
	o[p] = what
	return 0
}

func (o Oracle) holds(p string) bool {
	for other := range o {
		if strings.HasPrefix(other, p+"/") {
			return true
		}
	}
	return false
}

// Remove removes a file or an empty directory.
func (o Oracle) Remove(p string) bb.Kind {
	if k := o.dir(path.Dir(p)); k != 0 {
		return k
	}
	switch {
	case o[p] == "":
		return bb.NotFound
	case o[p] == "/" && o.holds(p):
		return bb.NotEmpty
	}
	delete(o, p)
	return 0
}

// RemoveAll removes a path with all that is below.
// Remove removes a file or an empty directory.
func (o Oracle) RemoveAll(p string) bb.Kind {
	if k := o.dir(path.Dir(p)); k != 0 {
		return k
	}
	if o[p] == "" {
		return bb.NotFound
	}
	maps.DeleteFunc(o, func(other, _ string) bool { return other == p || strings.HasPrefix(other, p+"/") })
	return 0
}

// Rename moves a path with all that is below.
func (o Oracle) Rename(from, to string, replace bool) bb.Kind {
	for _, p := range []string{from, to} {
		if k := o.dir(path.Dir(p)); k != 0 {
			return k
		}
	}
	src, dst := o[from], o[to]
	switch {
	case src == "":
		return bb.NotFound
	case from == to:
		return 0
	case dst != "" && !replace:
		return bb.Exists
	case src == "/" && dst != "" && dst != "/":
		return bb.NotDirectory
	case src != "/" && dst == "/":
		return bb.IsDirectory
	case src == "/" && strings.HasPrefix(to, from+"/"):
		return bb.Invalid
	case dst == "/" && o.holds(to):
		return bb.NotEmpty
	}
	moved := Oracle{to: src}
	for p, what := range o {
		if strings.HasPrefix(p, from+"/") {
			moved[to+strings.TrimPrefix(p, from)] = what
		}
	}
	maps.DeleteFunc(o, func(p, _ string) bool { return p == from || strings.HasPrefix(p, from+"/") })
	maps.Copy(o, moved)
	return 0
}

// Exchange swaps two paths, each with all that is below.
func (o Oracle) Exchange(p, q string) bb.Kind {
	for _, p := range []string{p, q} {
		if k := o.dir(path.Dir(p)); k != 0 {
			return k
		}
	}
	switch {
	case o[p] == "" || o[q] == "":
		return bb.NotFound
	case p == q:
		return 0
	case bb.Within(p, q) || bb.Within(q, p):
		return bb.Invalid
	}
	moved := Oracle{}
	for at, what := range o {
		switch {
		case bb.Within(at, p):
			moved[q+strings.TrimPrefix(at, p)] = what
		case bb.Within(at, q):
			moved[p+strings.TrimPrefix(at, q)] = what
		}
	}
	maps.DeleteFunc(o, func(at, _ string) bool { return bb.Within(at, p) || bb.Within(at, q) })
	maps.Copy(o, moved)
	return 0
}

func (o Oracle) list(p string) []string {
	var out []string
	for other := range o {
		if path.Dir(other) == p {
			out = append(out, path.Base(other))
		}
	}
	slices.Sort(out)
	return out
}

// Subject makes the changes of an Oracle's map to a namespace.
type Subject struct {
	T  *testing.T
	NS namespace.Tree
}

func (s Subject) place(p string) (bb.DirID, string, error) {
	return s.NS.ResolveParent(metatest.Context(s.T), p)
}

// Add makes a file of an id, or a directory for "/".
func (s Subject) Add(p, what string) error {
	dir, name, err := s.place(p)
	if err != nil {
		return err
	}
	if what == "/" {
		_, err = s.NS.Mkdir(metatest.Context(s.T), dir, name, namespace.Owner{Mode: 0o700})
		return err
	}
	id, err := bb.ParseFileID(what)
	if err != nil {
		return err
	}
	_, err = s.NS.Create(metatest.Context(s.T), bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: id})
	return err
}

// Remove removes a file or an empty directory.
func (s Subject) Remove(p string, o namespace.RemoveOptions) error {
	dir, name, err := s.place(p)
	if err == nil {
		_, err = s.NS.Remove(metatest.Context(s.T), dir, name, o)
	}
	return err
}

// RemoveAll removes a file or a directory with all that it holds.
func (s Subject) RemoveAll(p string, o namespace.RemoveOptions) error {
	dir, name, err := s.place(p)
	if err == nil {
		err = s.NS.RemoveAll(metatest.Context(s.T), dir, name, o, nil)
	}
	return err
}

func (s Subject) rename(from, to string, o namespace.RenameOptions) error {
	sd, sn, err := s.place(from)
	if err != nil {
		return err
	}
	dd, dn, err := s.place(to)
	if err != nil {
		return err
	}
	_, err = s.NS.Rename(metatest.Context(s.T), sd, sn, dd, dn, o)
	return err
}

func (s Subject) exchange(p, q string, o namespace.ExchangeOptions) error {
	dirA, nameA, err := s.place(p)
	if err != nil {
		return err
	}
	dirB, nameB, err := s.place(q)
	if err != nil {
		return err
	}
	_, err = s.NS.Exchange(metatest.Context(s.T), dirA, nameA, dirB, nameB, o)
	return err
}

// flush records that the store has a file.
func (s Subject) flush(p string) {
	dir, name, err := s.place(p)
	if err == nil {
		_, err = s.NS.Update(metatest.Context(s.T), dir, name, func(e *bb.Entry) error {
			e.Generation = 1
			e.SetFlushed(bb.Flushed{Generation: 1})
			return nil
		})
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// followExchange carries out the pending operations of an exchange on the store's content. Objects of files that were
// never flushed are not moved: the store has them once these are flushed.
func followExchange(t *testing.T, ns namespace.Tree, stored, want, flushed Oracle, what string, pair ...string) {
	for i, p := range pair {
		if other := want[pair[1-i]]; want[p] == "/" && other != "/" && flushed[other] == "" {
			delete(stored, p)
		}
	}
	follow(t, ns, stored, what)
	for _, p := range pair {
		if id := want[p]; id != "/" && flushed[id] == "" {
			stored[p] = id
		}
	}
}

// testModel makes thousands of random changes to a namespace and to the oracle, and
// compares each answer, and now and then the whole tree.
func testModel(t *testing.T, factory Factory) {
	steps := 3000
	if testing.Short() {
		steps = 500
	}
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		rnd := rand.New(rand.NewPCG(1, uint64(steps)))
		want, got := Oracle{}, Subject{t, ns}
		names := []string{"a", "b", "ü", "x.y", "long name, with=signs"}
		randomPath := func() string {
			var p strings.Builder
			p.WriteString(names[rnd.IntN(len(names))])
			for rnd.IntN(2) == 0 {
				p.WriteString("/" + names[rnd.IntN(len(names))])
			}
			return p.String()
		}
		stored := Oracle{}  // content of a store that follows the operations
		flushed := Oracle{} // files of which the namespace has that on record
		for i := range steps {
			p, q, replace := randomPath(), randomPath(), rnd.IntN(2) == 0
			var k bb.Kind
			var err error
			what := ""
			switch n := rnd.IntN(24); {
			case n < 5:
				what = "create " + p
				id := bb.FileID(i + 1).String()
				k, err = want.Add(p, id), got.Add(p, id)
				if k == 0 {
					stored[p] = id
				}
			case n < 10:
				what = "mkdir " + p
				k, err = want.Add(p, "/"), got.Add(p, "/")
				if k == 0 {
					stored[p] = "/"
				}
			case n < 13:
				what = "remove " + p
				k, err = want.Remove(p), got.Remove(p, namespace.RemoveOptions{StoreOp: true})
			case n < 14:
				what = "remove all " + p
				k, err = want.RemoveAll(p), got.RemoveAll(p, namespace.RemoveOptions{StoreOp: true})
			case n < 18:
				what = "rename " + p + " " + q
				k, err = want.Rename(p, q, replace), got.rename(p, q, namespace.RenameOptions{Replace: replace, StoreOp: true})
			case n < 19 && want[p] != "" && want[p] != "/":
				what = "list, after the flush of " + p
				got.flush(p)
				flushed[want[p]] = p
			case n < 22:
				what = "exchange " + p + " " + q
				k, err = want.Exchange(p, q), got.exchange(p, q, namespace.ExchangeOptions{StoreOp: true})
				if k == 0 && p != q {
					followExchange(t, ns, stored, want, flushed, what, p, q)
				}
			default:
				what = "list " + p
				k = want.dir(p)
				e, lerr := ns.Resolve(metatest.Context(t), p)
				if lerr == nil && !e.IsDir() {
					lerr = bb.NotDirectory
				}
				if err = lerr; err == nil && !slices.Equal(Names(t, ns, e.Dir), want.list(p)) {
					t.Fatalf("step %d: %s: %q, want %q", i, what, Names(t, ns, e.Dir), want.list(p))
				}
			}
			if bb.KindOf(err) != k {
				t.Fatalf("step %d: %s: %v, want kind %v", i, what, err, k)
			}
			follow(t, ns, stored, what)
			if i%250 == 0 || i == steps-1 {
				if tree := Paths(t, ns); !maps.Equal(tree, map[string]string(want)) {
					t.Fatalf("step %d: %v, want %v", i, tree, want)
				}
				if !maps.Equal(stored, want) {
					t.Fatalf("step %d: the store has %v, want %v", i, stored, want)
				}
				CheckPaths(t, ns)
			}
		}
	})
}

// follow carries out the pending operations on the store's content.
func follow(t *testing.T, ns namespace.Tree, stored Oracle, what string) {
	if strings.HasPrefix(what, "list") || strings.HasPrefix(what, "create") || strings.HasPrefix(what, "mkdir") {
		return
	}
	ops, err := ns.StoreOps(metatest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		k := bb.Kind(0)
		if op.Op == namespace.OpRename {
			k = stored.Rename(op.OldPath, op.NewPath, true)
		} else if stored[op.OldPath] != "" || !strings.HasPrefix(what, "exchange") {
			k = stored.Remove(op.OldPath)
		}
		if k != 0 {
			t.Fatalf("after %s: the store cannot follow %+v: %v", what, op, k)
		}
		if _, err := ns.DoneStoreOp(metatest.Context(t), op.Revision); err != nil {
			t.Fatal(err)
		}
	}
}
