package nsbucket

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metapb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/record"
)

// A daemon that changes a record keeps its unknown fields.
func TestNewerFieldsStay(t *testing.T) {
	t.Parallel()
	ns := start(t, metatest.StartServer(t, t.TempDir()), modes[1], "me")
	ctx := metatest.Context(t)
	e := create(t, ns, bb.RootDir, "f")
	e.Flushed = bb.Flushed{Generation: 1, ETag: "e"}
	if _, err := ns.Put(ctx, e); err != nil {
		t.Fatal(err)
	}
	d := mkdir(t, ns, bb.RootDir, "d")

	var entry metapb.Entry
	flushed := func() proto.Message { return entry.Flushed }
	kvtest.AddUnknown(t, ns.b, record.EntryKey(bb.RootDir, "f"), &entry, flushed)
	var dir, other metapb.Directory
	kvtest.AddUnknown(t, ns.b, record.DirKey(d.Dir), &dir)

	if _, err := ns.Update(ctx, bb.RootDir, "f", func(e *bb.Entry) error { e.Mode = 0o600; return nil }); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, record.EntryKey(bb.RootDir, "f"), &entry, flushed)
	if _, err := ns.Rename(ctx, bb.RootDir, "f", d.Dir, "g", namespace.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, record.EntryKey(d.Dir, "g"), &entry, flushed)
	if _, err := ns.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{}); bb.KindOf(err) != bb.NotEmpty {
		t.Fatalf("removing a directory with a file: %v", err)
	}
	kvtest.WantUnknown(t, ns.b, record.DirKey(d.Dir), &dir)
	if _, err := ns.Rename(ctx, bb.RootDir, "d", bb.RootDir, "e", namespace.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, ns.b, record.DirKey(d.Dir), &other)
}

// A node that takes an operation over makes it one that older daemons refuse.
func TestOperationsOfNewerFormats(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	ns := start(t, metatest.StartServer(t, t.TempDir()), modes[1], "me")
	e := create(t, ns, bb.RootDir, "f")
	op, err := ns.ops.Change(ctx, namespace.StoreOp{Op: namespace.OpRemove, OldPath: "f", File: e.File}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ns.b.Put(ctx, op.Key, op.Data, op.Own); err != nil {
		t.Fatal(err)
	}
	if n, err := ns.TakeOverStoreOps(ctx, "me"); err != nil || n != 1 {
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
	metatest.WantKind(t, "operations of which one is newer", err, bb.Unsupported)
}
