package meta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/embedded"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/stream"
)

func TestBuffers(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ctx := testContext(t)
	b := bb.Buffer{
		Name: "ckpt-1", UID: 1, GID: 2, Mode: 0o750, Capacity: 1 << 40, Backing: "file:///lustre/me", BackingID: "posix1:ef53:7:2:/scratch", Durability: bb.DurabilityFlushed,
		Codec: "zstd", NoFlush: bb.DefaultNoFlush(), FlushLimit: 5, DirtyAge: time.Minute, NoWait: true, Receipt: true, Job: "42", Replicas: 2, Existing: bb.ExistingKeep,
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
		data, err := sealBuffer(bufferKey("b"), &bb.Buffer{Name: "b", Existing: recorded}, keptIn{id: 1})
		if err != nil {
			t.Fatal(err)
		}
		if b, in, err := openBuffer(bufferKey("b"), data, 1); err != nil || b.Existing != want || in.engine != EngineBuckets {
			t.Errorf("recorded %q: %q, kept in %q (%v), want %q", recorded, b.Existing, in.engine, err, want)
		}
	}
}

func TestDestroyBuffer(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"sole writer": {SoleWriter: true}, "several writers": {}, "log": {SoleWriter: true, Engine: EngineLog}} {
		t.Run(name, func(t *testing.T) {
			o.InProcess = startServer(t, t.TempDir())
			m := connectTo(t, o)
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
	for _, engine := range []Engine{EngineBuckets, EngineLog} {
		t.Run(string(engine), func(t *testing.T) { repairBuffers(t, engine) })
	}
}

func repairBuffers(t *testing.T, engine Engine) {
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s, SoleWriter: true})
	ctx := testContext(t)
	half := func(name string, state bb.BufferState, made bool) {
		id, err := m.ids.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b := bb.Buffer{Name: name, State: state}
		data, err := sealBuffer(bufferKey(name), &b, keptIn{id, engine})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.system.Put(ctx, bufferKey(name), data, 0); err != nil {
			t.Fatal(err)
		}
		if !made {
			return
		}
		in := interface{ Ensure(context.Context) error }(kv.New(m.conn, bucketName(name, id), kv.BucketOptions{}))
		if engine == EngineLog {
			in = stream.New(m.conn, logPrefix+bucketName(name, id))
		}
		if err := in.Ensure(ctx); err != nil {
			t.Fatal(err)
		}
	}
	half("record-only", bb.BufferActive, false)
	half("no-root", bb.BufferActive, true)
	half("marked", bb.BufferDestroying, true)
	half("marked-deleted", bb.BufferDestroying, false)
	_, err := m.Namespace(ctx, "marked")
	wantKind(t, "namespace of a buffer being destroyed", err, bb.NotFound)

	m.Close()
	again := connectTo(t, Options{InProcess: s, SoleWriter: true})
	all, err := again.Buffers(ctx)
	if err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
	if left, err := again.allStored(ctx, engine); err != nil || len(left) != 1 {
		t.Errorf("%v are left (%v), want that of the buffer without a root", left, err)
	}
	for _, name := range []string{"record-only", "no-root"} {
		ns, err := again.Namespace(ctx, name)
		if name == "record-only" && engine == EngineLog {
			wantKind(t, "a namespace whose log is not there", err, bb.Lost) // it was made before the record
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		namespacetest.Create(t, ns, bb.RootDir, "f")
		if _, err := ns.Root(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := again.DestroyBuffer(ctx, "record-only"); err != nil {
		t.Error(err)
	}
	if left, err := again.allStored(ctx, engine); err != nil || len(left) != 1 {
		t.Errorf("%v are left of a buffer that was destroyed (%v)", left, err)
	}
}

// TestEngines: a buffer keeps the engine that it was made with, despite later settings, and its
// names.
func TestEngines(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, t.TempDir())
	names := map[string]Engine{"a": EngineAuto, "b": EngineBuckets, "c": EngineLog}
	for name, engine := range names {
		m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: engine})
		namespacetest.Create(t, newBuffer(t, m, name), bb.RootDir, "f")
		m.Close()
	}
	for _, engine := range []Engine{EngineBuckets, EngineLog} {
		m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: engine})
		for name := range names {
			ns, err := m.Namespace(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if got := namespacetest.Names(t, ns, bb.RootDir); !slices.Equal(got, []string{"f"}) {
				t.Errorf("%s, with %s: it holds %q", name, engine, got)
			}
			if again, err := m.Namespace(ctx, name); again != ns || err != nil {
				t.Errorf("%s is opened twice (%v)", name, err)
			}
			b, err := m.Buffer(ctx, name)
			if err == nil {
				b.Job += "1"
				_, err = m.UpdateBuffer(ctx, b)
			}
			if err != nil {
				t.Error(err)
			}
		}
		m.Close()
	}
	several := connectTo(t, Options{InProcess: s})
	for name, engine := range names {
		r, err := several.system.Get(ctx, bufferKey(name))
		isLog := engine != EngineBuckets
		if err != nil || isLog != (r.Data[0] == kv.FormatThird) {
			t.Errorf("%s: a record of format %d (%v)", name, r.Data[0], err)
		}
		_, err = several.Namespace(ctx, name)
		if isLog {
			wantKind(t, "a log with several writers", err, bb.Unsupported)
		} else if err != nil {
			t.Error(err)
		}
	}
}

func TestEngineRefused(t *testing.T) {
	t.Parallel()
	for o, want := range map[*Options]bb.Kind{
		{Engine: EngineLog}:                 bb.Unsupported,
		{Engine: "other", SoleWriter: true}: bb.Invalid,
	} {
		o.URLs = []string{"nats://127.0.0.1:1"}
		_, err := Connect(testContext(t), *o)
		wantKind(t, string(o.Engine), err, want)
	}
}

// TestNamespaceTogether: callers at the same time get one namespace.
func TestNamespaceTogether(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: EngineLog})
	newBuffer(t, m, "b")
	m.Close()
	m = connectTo(t, Options{InProcess: s, SoleWriter: true})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			ns, err := m.Namespace(testContext(t), "b")
			if err == nil {
				_, err = ns.Create(testContext(t), namespacetest.File(bb.RootDir, fmt.Sprint(i)))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestDestroyedWhileOpened: if a buffer is destroyed at the moment when its namespace has been
// opened, nothing of it is kept.
func TestDestroyedWhileOpened(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{EngineBuckets, EngineLog} {
		ctx := testContext(t)
		s := startServer(t, t.TempDir())
		m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: engine})
		newBuffer(t, m, "b")
		m.Close()
		m = connectTo(t, Options{InProcess: s, SoleWriter: true})
		m.keeping = func() {
			m.keeping = nil
			if err := m.DestroyBuffer(ctx, "b"); err != nil {
				t.Error(err)
			}
		}
		_, err := m.Namespace(ctx, "b")
		wantKind(t, "the namespace of a buffer that was destroyed", err, bb.NotFound)
		if n := len(m.mu.spaces); n != 0 {
			t.Errorf("%s: %d namespaces are kept", engine, n)
		}
	}
}

// A log that the server does not have, as after a start with an unreadable part of it, is not made
// again, since all its names would be gone. When the server has it again, it is served.
func TestLostLog(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	o := Options{SoleWriter: true, Engine: EngineLog}
	start := func() (*embedded.Server, *Meta) {
		s := startServer(t, dir)
		o.InProcess = s
		return s, connectTo(t, o)
	}
	stop := func(s *embedded.Server, m *Meta) {
		m.Close()
		s.Shutdown()
	}
	s, m := start()
	namespacetest.Create(t, newBuffer(t, m, "b"), bb.RootDir, "f")
	stop(s, m)
	inf := filepath.Join(metatest.StreamDir(t, dir, "NS_forebay-b-"), "meta.inf")
	whole, err := os.ReadFile(inf)
	if err == nil {
		err = os.WriteFile(inf, whole[:len(whole)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, m = start()
		_, err := m.Namespace(ctx, "b")
		wantKind(t, "a log that the server does not have", err, bb.Lost)
		if err != nil && !strings.Contains(err.Error(), "copy of the namespace server's folder") {
			t.Error(err)
		}
		stop(s, m)
	}
	if err := os.WriteFile(inf, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, m = start()
	ns, err := m.Namespace(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if got := namespacetest.Names(t, ns, bb.RootDir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("names %q", got)
	}
}

// TestOrphans: if its buffer was destroyed, or if it is empty, a namespace of no buffer is deleted.
// Where the server may have lost the record of a buffer, nothing is deleted.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{EngineBuckets, EngineLog} {
		ctx := testContext(t)
		m := connectTo(t, Options{InProcess: startServer(t, t.TempDir()), SoleWriter: true, Engine: engine})
		orphan := func(buffer string, id uint64, used bool) {
			name := bucketName(buffer, id)
			in := interface{ Ensure(context.Context) error }(kv.New(m.conn, name, kv.BucketOptions{}))
			log := stream.New(m.conn, logPrefix+name)
			if engine == EngineLog {
				in = log
			}
			err := in.Ensure(ctx)
			if err == nil && used && engine == EngineLog {
				_, err = log.Append(ctx, "log", []byte("x"), stream.Fence{Subject: "log"})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"served", "forgotten", "destroyed"} {
			namespacetest.Create(t, newBuffer(t, m, name), bb.RootDir, "f")
		}
		if err := m.DestroyBuffer(ctx, "destroyed"); err != nil {
			t.Fatal(err)
		}
		orphan("destroyed", 99, true)
		orphan("served", 99, true)
		orphan("begun", 99, false)
		if err := metatest.ForgetBuffer(ctx, m.opts.InProcess, "forgotten"); err != nil {
			t.Fatal(err)
		}
		m.orphanAge = -time.Hour
		if err := m.Repair(ctx); err != nil {
			t.Fatal(err)
		}
		left, err := m.allStored(ctx, engine)
		for i := range left {
			left[i] = left[i][:strings.LastIndexByte(left[i], '-')]
		}
		slices.Sort(left)
		want := []string{"forebay-forgotten", "forebay-served"}
		if engine == EngineBuckets {
			want = append([]string{"forebay-begun"}, want...) // unknown of a bucket
		}
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("%s: %v are left (%v), want %v", engine, left, err, want)
		}
	}
}

// TestChooseEngine: a new buffer gets a log only where each daemon serves it, unless the setting names an engine.
func TestChooseEngine(t *testing.T) {
	t.Parallel()
	older := bb.E(bb.Unsupported, "request", "logs", "node n2 is older")
	for _, c := range []struct {
		setting Engine
		serves  bool
		lacks   error
		want    Engine
		refused bool
	}{
		{"", true, nil, EngineLog, false},
		{EngineAuto, true, nil, EngineLog, false},
		{EngineAuto, true, older, EngineBuckets, false},
		{EngineAuto, false, nil, EngineBuckets, false},
		{EngineBuckets, true, nil, EngineBuckets, false},
		{EngineBuckets, true, older, EngineBuckets, false},
		{EngineLog, true, nil, EngineLog, false},
		{EngineLog, true, older, "", true},
	} {
		got, err := chooseEngine(c.setting, c.serves, c.lacks)
		if (err != nil) != c.refused || !c.refused && got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
