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
	"forebay/meta/metatest"
	"forebay/meta/txn"
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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

func newBuffer(t testing.TB, m *Meta, name string) *txn.Tree {
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

func wantKind(t testing.TB, what string, err error, kind bb.Kind) {
	t.Helper()
	metatest.WantKind(t, what, err, kind)
}
