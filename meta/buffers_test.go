package meta

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace/namespacetest"
)

func TestBuffers(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ctx := testContext(t)
	b := bb.Buffer{
		Name: "ckpt-1", UID: 1, GID: 2, Mode: 0o750, Capacity: 1 << 40, Backing: "file:///lustre/me", BackingID: "posix1:ef53:7:2:/scratch", Durability: bb.DurabilityFlushed,
		Codec: "zstd", Keep: bb.DefaultKeep(), FlushLimit: 5, DirtyAge: time.Minute, NoWait: true, Receipt: true, Job: "42", Replicas: 2, Existing: bb.ExistingKeep,
	}
	made, err := m.CreateBuffer(ctx, b)
	if err != nil || made.State != bb.BufferActive || made.Created.IsZero() || made.Revision == 0 {
		t.Fatalf("%+v %v", made, err)
	}
	got, err := m.Buffer(ctx, "ckpt-1")
	if err != nil || !reflect.DeepEqual(got, made) {
		t.Errorf("%+v, want %+v (%v)", got, made, err)
	}
	_, err = m.CreateBuffer(ctx, b)
	wantKind(t, "create again", err, bb.Exists)
	for _, bad := range []bb.Buffer{{}, {Name: "UPPER"}, {Name: "x", Capacity: -1}, {Name: "x", Replicas: -1}, {Name: "x", Replicas: 3}, {Name: "../x"}} {
		_, err = m.CreateBuffer(ctx, bad)
		wantKind(t, "create "+bad.Name, err, bb.Invalid)
	}
	_, err = m.Buffer(ctx, "none")
	wantKind(t, "unknown", err, bb.NotFound)
	_, err = m.Namespace(ctx, "none")
	wantKind(t, "namespace of unknown", err, bb.NotFound)

	got.Job, got.State = "", bb.BufferOrphan
	newer, err := m.UpdateBuffer(ctx, got)
	if err != nil || newer.Revision <= got.Revision {
		t.Errorf("%+v %v", newer, err)
	}
	_, err = m.UpdateBuffer(ctx, got)
	wantKind(t, "update of an old revision", err, bb.Busy)
	newBuffer(t, m, "a")
	all, err := m.Buffers(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "a" || !reflect.DeepEqual(all[1], newer) {
		t.Errorf("%+v %v", all, err)
	}
}

// TestBufferOfAnOlderRelease: a record without a choice means the default of the releases that wrote
// such ones.
func TestBufferOfAnOlderRelease(t *testing.T) {
	t.Parallel()
	for recorded, want := range map[bb.Existing]bb.Existing{"": bb.ExistingOverwrite, bb.ExistingKeep: bb.ExistingKeep} {
		data, err := sealBuffer(bufferKey("b"), &bb.Buffer{Name: "b", Existing: recorded}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if b, _, err := openBuffer(bufferKey("b"), data, 1); err != nil || b.Existing != want {
			t.Errorf("recorded %q: %q (%v), want %q", recorded, b.Existing, err, want)
		}
	}
}

func TestDestroyBuffer(t *testing.T) {
	t.Parallel()
	for name, sole := range map[string]bool{"sole writer": true, "several writers": false} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, t.TempDir())
			m := connectTo(t, Options{InProcess: s, SoleWriter: sole})
			ctx := testContext(t)
			old := newBuffer(t, m, "buf")
			namespacetest.Create(t, old, bb.RootDir, "f")
			if err := m.DestroyBuffer(ctx, "buf"); err != nil {
				t.Fatal(err)
			}
			wantKind(t, "destroy again", m.DestroyBuffer(ctx, "buf"), bb.NotFound)
			_, err := old.Lookup(ctx, bb.RootDir, "f")
			wantKind(t, "lookup in a destroyed buffer", err, bb.NotFound)
			_, err = old.Create(ctx, namespacetest.File(bb.RootDir, "late"))
			wantKind(t, "create in a destroyed buffer", err, bb.NotFound)
			next := newBuffer(t, m, "buf")
			_, err = old.Create(ctx, namespacetest.File(bb.RootDir, "late"))
			wantKind(t, "create through the old namespace", err, bb.NotFound)
			if got := namespacetest.Names(t, next, bb.RootDir); len(got) != 0 {
				t.Errorf("the new buffer holds %q", got)
			}
		})
	}
}

func TestConcurrentDestroy(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	a, b := connectTo(t, Options{InProcess: s}), connectTo(t, Options{InProcess: s})
	for range 10 {
		newBuffer(t, a, "buf")
		var wg sync.WaitGroup
		for _, m := range []*Meta{a, b, a} {
			wg.Go(func() {
				if err := m.DestroyBuffer(testContext(t), "buf"); err != nil && !errors.Is(err, bb.NotFound) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, err := m.Namespace(testContext(t), "buf"); err != nil && !errors.Is(err, bb.NotFound) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, err := a.Buffer(testContext(t), "buf")
		wantKind(t, "after", err, bb.NotFound)
	}
}

// Each state that a crash can leave between the steps of creating and destroying.
func TestRepairBuffers(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ctx := testContext(t)
	half := func(name string, state bb.BufferState, bucket bool) {
		id, err := m.ids.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b := bb.Buffer{Name: name, State: state}
		data, err := sealBuffer(bufferKey(name), &b, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.system.Put(ctx, bufferKey(name), data, 0); err != nil {
			t.Fatal(err)
		}
		if bucket {
			if err := m.conn.Bucket(bucketName(name, id), kv.BucketOptions{}).Ensure(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	half("record-only", bb.BufferActive, false)
	half("no-root", bb.BufferActive, true)
	half("marked", bb.BufferDestroying, true)
	half("marked-deleted", bb.BufferDestroying, false)
	_, err := m.Namespace(ctx, "marked")
	wantKind(t, "namespace of a buffer being destroyed", err, bb.NotFound)

	again := connectTo(t, Options{InProcess: s})
	all, err := again.Buffers(ctx)
	if err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
	for _, name := range []string{"record-only", "no-root"} {
		ns, err := again.Namespace(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		namespacetest.Create(t, ns, bb.RootDir, "f")
		if _, err := ns.Root(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := m.DestroyBuffer(ctx, "record-only"); err != nil {
		t.Error(err)
	}
}
