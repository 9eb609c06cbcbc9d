package nsbucket

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// mode is a way in which a namespace answers.
type mode struct {
	name   string
	sole   bool
	copies int32 // that its bucket counts as having; with more than one, reads put barriers
}

var modes = []mode{{"sole writer", true, 1}, {"several writers", false, 1}, {"several copies", false, 3}}

// testIDs are the ids of one process, and its connection.
type testIDs struct {
	conn *conn.Conn
	base uint64
	last atomic.Uint64
}

func (i *testIDs) Next(context.Context) (uint64, error) { return i.base + i.last.Add(1), nil }

// connOf returns the connection of a namespace that start has opened.
func connOf(ns *Namespace) *conn.Conn { return ns.ids.(*testIDs).conn }

// start opens the namespace on a server as a process of a node does.
func start(t testing.TB, server conn.InProcess, m mode, node bb.NodeID) *Namespace {
	t.Helper()
	c := kvtest.Dial(t, conn.Options{InProcess: server})
	b := kv.New(c, "forebay-buf-1", kv.BucketOptions{Gone: kv.NeverGone})
	ns := Open(b, &testIDs{conn: c, base: kv.Random64() >> 1}, Options{Buffer: "buf", Node: node, SoleWriter: m.sole})
	if err := ns.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}); err != nil {
		t.Fatal(err)
	}
	b.AssumeCopies(m.copies)
	return ns
}

// eachMode runs a test on a new namespace in each mode.
func eachMode(t *testing.T, test func(*testing.T, *Namespace)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { test(t, start(t, metatest.StartServer(t, t.TempDir()), m, "me")) })
	}
}

// file makes an entry that can be created.
func file(ns *Namespace, dir bb.DirID, name string) bb.Entry {
	id, _ := ns.ids.Next(context.Background())
	return bb.Entry{Parent: dir, Name: name, Type: bb.TypeFile, File: bb.FileID(id), Generation: 1, Size: 10, Holders: []bb.NodeID{"n1"}, Mode: 0o644}
}

func create(t testing.TB, ns *Namespace, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e := file(ns, dir, name)
	var err error
	if e.Revision, err = ns.Create(metatest.Context(t), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func mkdir(t testing.TB, ns *Namespace, dir bb.DirID, name string) bb.Entry {
	t.Helper()
	e, err := ns.Mkdir(metatest.Context(t), dir, name, namespace.Owner{Mode: 0o755})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// names returns the names in a directory.
func names(t testing.TB, ns *Namespace, dir bb.DirID) []string {
	t.Helper()
	var out []string
	entries, more, err := ns.List(metatest.Context(t), dir, "", bb.MaxPageSize)
	if err != nil || more {
		t.Fatal(err, more)
	}
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// all returns the names of all files and directories, which no two of them share, with a
// file's id or "/" for a directory.
func all(t testing.TB, ns *Namespace) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := ns.ScanAll(metatest.Context(t), func(e bb.Entry) error {
		out[e.Name] = "/"
		if !e.IsDir() {
			out[e.Name] = e.File.String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
