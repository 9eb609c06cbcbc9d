package meta

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metapb"
)

// A daemon that changes a record keeps what it does not know of it.
func TestNewerFieldsStay(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ns := newBuffer(t, m, "buf")
	ctx := testContext(t)
	e := create(t, ns, bb.RootDir, "f")
	e.Flushed = bb.Flushed{Generation: 1, ETag: "e"}
	if _, err := ns.Put(ctx, e); err != nil {
		t.Fatal(err)
	}
	d := mkdir(t, ns, bb.RootDir, "d")

	var entry metapb.Entry
	flushed := func() proto.Message { return entry.Flushed }
	kvtest.AddUnknown(t, ns.b, entryKey(bb.RootDir, "f"), &entry, flushed)
	var dir, other metapb.Directory
	kvtest.AddUnknown(t, ns.b, dirKey(d.Dir), &dir)
	var spec metapb.Buffer
	kvtest.AddUnknown(t, m.system, bufferKey("buf"), &spec)

	if _, err := ns.Update(ctx, bb.RootDir, "f", func(e *bb.Entry) error { e.Mode = 0o600; return nil }); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, entryKey(bb.RootDir, "f"), &entry, flushed)
	if _, err := ns.Rename(ctx, bb.RootDir, "f", d.Dir, "g", RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, entryKey(d.Dir, "g"), &entry, flushed)
	if _, err := ns.Remove(ctx, bb.RootDir, "d", RemoveOptions{}); bb.KindOf(err) != bb.NotEmpty {
		t.Fatalf("removing a directory with a file: %v", err)
	}
	kvtest.WantUnknown(t, ns.b, dirKey(d.Dir), &dir)
	if _, err := ns.Rename(ctx, bb.RootDir, "d", bb.RootDir, "e", RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, dirKey(d.Dir), &other)
	b, err := m.Buffer(ctx, "buf")
	if err != nil {
		t.Fatal(err)
	}
	b.Rest, b.Job = "", "7" // who changes it need not know
	if _, err := m.UpdateBuffer(ctx, b); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, m.system, bufferKey("buf"), &spec)
}

// relabel rewrites a record as one of another format.
func relabel(ctx context.Context, b *kv.Bucket, key string, format byte) error {
	r, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	r.Data[0] = format
	_, err = b.Put(ctx, key, r.Data, r.Seq)
	return err
}

// What must not be ignored makes a record one that older daemons refuse, and say so.
func TestRecordsOfNewerFormats(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ctx := testContext(t)
	for name, replicas := range map[string]int{"one": 1, "two": 2} {
		if _, err := m.CreateBuffer(ctx, bb.Buffer{Name: name, Replicas: replicas}); err != nil {
			t.Fatal(err)
		}
		r, err := m.system.Get(ctx, bufferKey(name))
		if err != nil || int(r.Data[0]) != replicas {
			t.Errorf("%s: a record of format %d: %v", name, r.Data[0], err)
		}
	}
	if err := relabel(ctx, m.system, bufferKey("two"), kv.NewestFormat+1); err != nil {
		t.Fatal(err)
	}
	_, err := m.Buffer(ctx, "two")
	wantKind(t, "a buffer of a newer format", err, bb.Unsupported)
	if err == nil || !strings.Contains(err.Error(), "record format 3, this release knows 1 to 2") || !strings.Contains(err.Error(), "use the release that wrote it") {
		t.Errorf("it says %v", err)
	}
	_, err = m.Namespace(ctx, "two")
	wantKind(t, "its namespace", err, bb.Unsupported)
	wantKind(t, "destroying it", m.DestroyBuffer(ctx, "two"), bb.Unsupported)
	if all, err := m.Buffers(ctx); err != nil || len(all) != 1 || m.Stats().Garbage == 0 {
		t.Errorf("%d buffers, %d unread: %v", len(all), m.Stats().Garbage, err)
	}

	ns := newBuffer(t, m, "ops")
	e := create(t, ns, bb.RootDir, "f")
	op, err := ns.storeOp(ctx, StoreOp{Op: OpRemove, OldPath: "f", File: e.File}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ns.b.Put(ctx, op.Key, op.Data, op.Own); err != nil {
		t.Fatal(err)
	}
	if n, err := ns.TakeOverStoreOps(ctx, ns.m.opts.Node); err != nil || n != 1 {
		t.Fatalf("took over %d: %v", n, err)
	}
	taken, err := ns.b.Get(ctx, op.Key)
	if err != nil || op.Data[0] != kv.FormatFirst || taken.Data[0] != kv.FormatSecond {
		t.Errorf("an operation has format %d, and %d when another node has taken it over: %v", op.Data[0], taken.Data[0], err)
	}
	op.Data[0], op.Own = kv.NewestFormat+1, taken.Seq
	if _, err := ns.b.Put(ctx, op.Key, op.Data, op.Own); err != nil {
		t.Fatal(err)
	}
	_, err = ns.StoreOps(ctx)
	wantKind(t, "operations of which one is newer", err, bb.Unsupported)
}
