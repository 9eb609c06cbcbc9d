// Package namespacetest is the conformance suite of namespaces: the promises of every engine under
// namespace.Tree, alone and with several processes at it. It must never depend on how an engine stores
// anything.
package namespacetest

import (
	"path"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

// Open opens a namespace as a separate process of a node does.
type Open func(node bb.NodeID) namespace.Tree

// Factory makes an empty namespace and returns a function that opens it. Where one process alone
// may change it, the same Tree is opened each time.
type Factory func(t *testing.T) Open

// Test runs the suite on namespaces that factory makes.
func Test(t *testing.T, factory Factory) {
	for name, test := range map[string]func(*testing.T, Factory){
		"CreateLookupPut":               testCreateLookupPut,
		"RecreateAfterRemove":           testRecreateAfterRemove,
		"BadNames":                      testBadNames,
		"ResolveNamesTheComponent":      testResolveNamesTheComponent,
		"RootAttributes":                testRootAttributes,
		"SetAttr":                       testSetAttr,
		"Xattrs":                        testXattrs,
		"Mkdir":                         testMkdir,
		"RemoveDirectory":               testRemoveDirectory,
		"Special":                       testSpecial,
		"Rename":                        testRename,
		"Exchange":                      testExchange,
		"ExchangeTwice":                 testExchangeTwice,
		"ExchangeOps":                   testExchangeOps,
		"ConcurrentExchange":            testConcurrentExchange,
		"RemoveAll":                     testRemoveAll,
		"StoreOps":                      testStoreOps,
		"RenameKeepsReplaced":           testRenameKeepsReplaced,
		"AttemptsFollowRenames":         testAttemptsFollowRenames,
		"TakeOverStoreOps":              testTakeOverStoreOps,
		"Model":                         testModel,
		"ConcurrentCreate":              testConcurrentCreate,
		"ConcurrentUpdate":              testConcurrentUpdate,
		"ConcurrentRenameIntoEachOther": testConcurrentRenameIntoEachOther,
		"ConcurrentRemoveDirectory":     testConcurrentRemoveDirectory,
		"ListDuringChanges":             testListDuringChanges,
		"ScanAllDuringRenames":          testScanAllDuringRenames,
		"RemovedIsEvidence":             testRemovedIsEvidence,
		"FollowStoreOps":                testFollowStoreOps,
		"ClosesAreOrdered":              testClosesAreOrdered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, factory)
		})
	}
}

// one runs a test on a new namespace.
func (factory Factory) one(t *testing.T, test func(*testing.T, namespace.Tree)) {
	t.Helper()
	test(t, factory(t)("me"))
}

// pair runs a test on a new namespace that two processes use, or one twice.
func (factory Factory) pair(t *testing.T, test func(t *testing.T, a, b namespace.Tree)) {
	t.Helper()
	open := factory(t)
	test(t, open("me"), open("me"))
}

// lastFile is the last id that a test has given to a file.
var lastFile atomic.Uint64

// File makes an entry that can be created.
func File(dir bb.DirID, name string) bb.Entry {
	id := bb.FileID(1<<60 + lastFile.Add(1))
	return bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: id, Generation: 1, Size: 10, Holders: []bb.NodeID{"n1"}, Mode: 0o644}
}

// Create creates a file.
func Create(t testing.TB, ns namespace.Tree, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e := File(dir, name)
	var err error
	if e.Revision, err = ns.Create(metatest.Context(t), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// Mkdir makes a directory.
func Mkdir(t testing.TB, ns namespace.Tree, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e, err := ns.Mkdir(metatest.Context(t), dir, name, namespace.Owner{Mode: 0o755})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// entries lists a directory.
func entries(t testing.TB, ns namespace.Tree, dir bb.DirID) []bb.Entry {
	t.Helper()
	var all []bb.Entry
	for after, more := "", true; more; {
		var page []bb.Entry
		var err error
		if page, more, err = ns.List(metatest.Context(t), dir, after, bb.MaxPageSize); err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if len(page) > 0 {
			after = page[len(page)-1].Name
		}
	}
	return all
}

// Names returns the names in a directory.
func Names(t testing.TB, ns namespace.Tree, dir bb.DirID) []string {
	t.Helper()
	var out []string
	for _, e := range entries(t, ns, dir) {
		out = append(out, e.Name)
	}
	return out
}

// Paths returns every path that can be reached from the root, with a file's id or
// "/" for a directory.
func Paths(t testing.TB, ns namespace.Tree) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(dir bb.DirID, at string, depth int)
	walk = func(dir bb.DirID, at string, depth int) {
		if depth > 200 {
			t.Fatal("the tree has a cycle")
		}
		for _, e := range entries(t, ns, dir) {
			p := path.Join(at, e.Name)
			if e.IsDir() {
				out[p] = "/"
				walk(e.Dir, p, depth+1)
			} else {
				out[p] = e.File.String()
			}
		}
	}
	walk(bb.RootDir, "", 0)
	return out
}

// CheckPaths checks that every directory has the path that leads to it.
func CheckPaths(t testing.TB, ns namespace.Tree) {
	t.Helper()
	for p, what := range Paths(t, ns) {
		if what != "/" {
			continue
		}
		e, err := ns.Resolve(metatest.Context(t), p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if got, err := ns.PathOf(metatest.Context(t), e.Dir); got != p || err != nil {
			t.Errorf("directory %v lies at %q but its records say %q (%v)", e.Dir, p, got, err)
		}
	}
}
