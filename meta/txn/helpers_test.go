package txn

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mode is a way in which a namespace answers.
type mode struct {
	name   string
	sole   bool
	copies int32 // that its bucket is taken to have: reads of more than one put barriers; 0: as it is
}

var modes = []mode{{"sole writer", true, 1}, {"several writers", false, 1}, {"several copies", false, 3}}

// process is a process that uses a namespace.
type process struct {
	*Tree
	conn   *kv.Conn
	bucket *kv.Bucket
}

// ids are those of one process.
type ids struct{ base, last atomic.Uint64 }

func (i *ids) Next(context.Context) (uint64, error) { return i.base.Load() + i.last.Add(1), nil }

// start starts a process that uses the namespace on a server.
func start(t *testing.T, server kv.InProcess, m mode) *process {
	t.Helper()
	c := kvtest.Dial(t, kv.Options{InProcess: server})
	b := c.Bucket("forebay-buf-1", kv.BucketOptions{Gone: kv.NeverGone})
	own := &ids{}
	own.base.Store(kv.Random64() >> 1)
	ns := namespace.Open(b, own, namespace.Options{Buffer: "buf", Node: "me", SoleWriter: m.sole})
	if err := ns.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}); err != nil {
		t.Fatal(err)
	}
	if m.copies > 0 {
		b.AssumeCopies(m.copies)
	}
	return &process{&Tree{ns, New(ns, b)}, c, b}
}
