package meta

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/embedded"
)

func TestMain(m *testing.M) {
	if os.Getenv("FOREBAY_META_CHILD") != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// testContext ends a test that hangs.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// memoryDir returns a folder in memory.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "meta-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func startServer(t testing.TB, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(testContext(t), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func startListening(t testing.TB, dir, listen string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(testContext(t), embedded.Options{Dir: dir, Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connectTo(t testing.TB, o Options) *Meta {
	t.Helper()
	if o.Node == "" {
		o.Node = "me"
	}
	o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	m, err := Connect(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

type testWriter struct{ testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.Logf("%s", p)
	return len(p), nil
}

// mode is a way in which a namespace answers.
type mode struct {
	sole   bool
	copies int32 // that its bucket is taken to have: reads of more than one put barriers
}

var modes = map[string]mode{"sole writer": {true, 1}, "several writers": {false, 1}, "several copies": {false, 3}}

// in makes a namespace answer as its mode says.
func (m mode) in(ns *Namespace) *Namespace {
	ns.b.AssumeCopies(m.copies)
	return ns
}

// eachMode runs a test on a new namespace in each mode.
func eachMode(t *testing.T, test func(*testing.T, *Namespace)) {
	t.Helper()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, t.TempDir())
			test(t, mode.in(newBuffer(t, connectTo(t, Options{InProcess: s, SoleWriter: mode.sole}), "buf")))
		})
	}
}

func newBuffer(t testing.TB, m *Meta, name string) *Namespace {
	t.Helper()
	if _, err := m.CreateBuffer(testContext(t), bb.Buffer{Name: name, Mode: 0o755, UID: 7}); err != nil {
		t.Fatal(err)
	}
	ns, err := m.Namespace(testContext(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// file makes an entry that can be created.
func file(t testing.TB, ns *Namespace, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	id, err := ns.m.IDs().NewFileID(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: id, Generation: 1, Size: 10, Holders: []bb.NodeID{"n1"}, Mode: 0o644}
}

func create(t testing.TB, ns *Namespace, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e := file(t, ns, dir, name)
	var err error
	if e.Revision, err = ns.Create(testContext(t), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func mkdir(t testing.TB, ns *Namespace, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e, err := ns.Mkdir(testContext(t), dir, name, Owner{Mode: 0o755})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func wantKind(t testing.TB, what string, err error, kind bb.Kind) {
	t.Helper()
	if kind == 0 && err != nil || kind != 0 && bb.KindOf(err) != kind {
		t.Errorf("%s: %v, want kind %v", what, err, kind)
	}
}

func names(t testing.TB, ns *Namespace, dir bb.DirID) []string {
	t.Helper()
	l, err := ns.NewLister(testContext(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	entries, more := l.Page("", 1<<20)
	if more {
		t.Error("more than all")
	}
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// tree returns every path that can be reached from the root, with a file's id or
// "/" for a directory.
func tree(t testing.TB, ns *Namespace) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(dir bb.DirID, at string, depth int)
	walk = func(dir bb.DirID, at string, depth int) {
		if depth > 200 {
			t.Fatal("the tree has a cycle")
		}
		l, err := ns.NewLister(testContext(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		entries, _ := l.Page("", 1<<20)
		for _, e := range entries {
			p := join(at, e.Name)
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

// check that every directory's reverse record leads to where it is.
func checkPaths(t testing.TB, ns *Namespace) {
	t.Helper()
	for p, what := range tree(t, ns) {
		if what != "/" {
			continue
		}
		e, err := ns.Resolve(testContext(t), p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if got, err := ns.PathOf(testContext(t), e.Dir); got != p || err != nil {
			t.Errorf("directory %v lies at %q but its records say %q (%v)", e.Dir, p, got, err)
		}
	}
}
