package nslog_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ids are those of one process.
type ids struct {
	base uint64
	last atomic.Uint64
}

func (i *ids) Next(context.Context) (uint64, error) { return i.base + i.last.Add(1), nil }

func newIDs() *ids { return &ids{base: kv.Random64() >> 1} }

// openOn opens the namespace of a log. It ends with the test.
func openOn(t testing.TB, log owner.Log, o nslog.Options) *nslog.Engine {
	t.Helper()
	o.Buffer, o.Logger = "buf", metatest.Logger(t)
	e, err := nslog.Open(metatest.Context(t), log, newIDs(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}); err != nil {
		t.Fatal(err)
	}
	return e
}

// newStream returns a stream on a server.
func newStream(t testing.TB, server conn.InProcess) *stream.Stream {
	t.Helper()
	s := stream.New(kvtest.Dial(t, conn.Options{InProcess: server}), "NS_buf")
	if err := s.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformance runs the suite on a real server, with checkpoints that are due all the time
// and with none.
func TestConformance(t *testing.T) {
	for name, size := range map[string]int{"no checkpoints": 1 << 30, "many checkpoints": 2000} {
		t.Run(name, func(t *testing.T) {
			namespacetest.Test(t, func(t *testing.T) namespacetest.Open {
				e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me", CheckpointBytes: size})
				return func(bb.NodeID) namespace.Tree { return e }
			})
		})
	}
}
