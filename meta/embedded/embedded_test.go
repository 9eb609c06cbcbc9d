package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/namespace"
)

func TestMain(m *testing.M) {
	if os.Getenv("FOREBAY_NATS_SERVER") != "" {
		natsServer()
		return
	}
	if os.Getenv(movesEnv) != "" {
		fmt.Fprintln(os.Stderr, moveAndDie())
		os.Exit(1)
	}
	if os.Getenv(benchEnv) != "" {
		runBenchServer()
		return
	}
	// A server was seen to leave these loops of stream stores behind after its end, while many tests ran. They say nothing about
	// this package. A server that is still running has many goroutines besides.
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(server+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreTopFunction(server+"/ats.Register.func1"))
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestListen(t *testing.T) {
	s, err := Start(testContext(t), Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncInterval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") || strings.HasSuffix(s.URL(), ":0") {
		t.Errorf("%s", s.URL())
	}
	inside := use(t, meta.Options{InProcess: s}, "buf")
	outside, err := meta.Connect(testContext(t), meta.Options{URLs: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	if _, err := outside.Buffer(testContext(t), "buf"); err != nil {
		t.Error(err)
	}
	inside.Close()
}

// use connects, makes a buffer with a file in a directory, renames the directory,
// lists it and removes it all.
func use(t *testing.T, o meta.Options, buffer string) *meta.Meta {
	t.Helper()
	ctx := testContext(t)
	m, err := meta.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if _, err := m.CreateBuffer(ctx, bb.Buffer{Name: buffer}); err != nil {
		t.Fatal(err)
	}
	ns, err := m.Namespace(ctx, buffer)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ns.MkdirAll(ctx, "a/b", namespace.Owner{Mode: 0o755})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "g"} {
		id, err := m.IDs().NewFileID(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e := bb.Entry{Parent: d.Dir, Name: name, Type: bb.TypeFile, File: id}
		if e.Revision, err = ns.Create(ctx, e); err != nil {
			t.Fatal(err)
		}
		e.Size = 5
		if _, err = ns.Put(ctx, e); err != nil {
			t.Fatal(err)
		}
		_, err = ns.Create(ctx, e)
		wantKind(t, err, bb.Exists)
	}
	if _, err := ns.Rename(ctx, bb.RootDir, "a", bb.RootDir, "z", namespace.RenameOptions{StoreOp: true}); err != nil {
		t.Fatal(err)
	}
	_, err = ns.Remove(ctx, d.Parent, "b", namespace.RemoveOptions{})
	wantKind(t, err, bb.NotEmpty)
	if e, err := ns.Resolve(ctx, "z/b/f"); err != nil || e.Size != 5 {
		t.Errorf("%+v %v", e, err)
	}
	if err := ns.RemoveAll(ctx, d.Parent, "b", namespace.RemoveOptions{StoreOp: true}, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func wantKind(t *testing.T, err error, kind bb.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, want kind %v", err, kind)
	}
}

func TestBadOptions(t *testing.T) {
	for what, o := range map[string]Options{
		"no directory":    {},
		"every interface": {Dir: t.TempDir(), Listen: ":4222"},
		"another address": {Dir: t.TempDir(), Listen: "10.0.0.1:4222"},
		"no port":         {Dir: t.TempDir(), Listen: "127.0.0.1"},
		"interval":        {Dir: t.TempDir(), SyncInterval: -1},
	} {
		if s, err := Start(testContext(t), o); !errors.Is(err, bb.Invalid) {
			t.Errorf("%s: %v", what, err)
			if s != nil {
				s.Shutdown()
			}
		}
	}
}

func TestPortInUse(t *testing.T) {
	s, err := Start(testContext(t), Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	ctx, cancel := context.WithTimeout(testContext(t), 3*time.Second)
	defer cancel()
	again, err := Start(ctx, Options{Dir: t.TempDir(), Listen: strings.TrimPrefix(s.URL(), "nats://")})
	if err == nil {
		again.Shutdown()
		t.Fatal("two servers listen on one port")
	}
	wantKind(t, err, bb.Unavailable)
}
