package txn_test

import (
	"context"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/nsbucket"
	"forebay/meta/nslog"
	"forebay/meta/nslog/shared/sharedtest"
	"forebay/meta/stream"
	"forebay/meta/txn/txntest"
)

// ids are those of one process.
type ids struct {
	base uint64
	last atomic.Uint64
}

func (i *ids) Next(context.Context) (uint64, error) { return i.base + i.last.Add(1), nil }

var buffer = &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}

// TestEngines runs the suite on each engine, in each way in which it answers.
func TestEngines(t *testing.T) {
	for _, m := range []struct {
		name   string
		sole   bool
		copies int32 // that the bucket counts as having; with more than one, reads put barriers
	}{{"sole writer", true, 1}, {"several writers", false, 1}, {"several copies", false, 3}} {
		t.Run(m.name, func(t *testing.T) {
			txntest.Test(t, func(t *testing.T) txntest.Open {
				server := metatest.StartServer(t, t.TempDir())
				var only *txntest.Engine
				return func() txntest.Engine {
					if only != nil {
						return *only
					}
					b := kv.New(kvtest.Dial(t, conn.Options{InProcess: server}), "forebay-buf-1", kv.BucketOptions{Gone: kv.NeverGone})
					ns := nsbucket.Open(b, &ids{base: kv.Random64() >> 1}, nsbucket.Options{Buffer: "buf", Node: "me", SoleWriter: m.sole})
					if err := ns.Prepare(metatest.Context(t), buffer); err != nil {
						t.Fatal(err)
					}
					b.AssumeCopies(m.copies)
					e := txntest.Engine{Namespace: ns, Records: b}
					if m.sole {
						only = &e
					}
					return e
				}
			})
		})
	}
	t.Run("shared log", func(t *testing.T) {
		txntest.Test(t, func(t *testing.T) txntest.Open {
			members := sharedtest.New(t)
			owner, user := members.Start(t, "owner"), members.Start(t, "user")
			if err := owner.Claim(metatest.Context(t)); err != nil {
				t.Fatal(err)
			}
			if err := owner.Prepare(metatest.Context(t), buffer); err != nil {
				t.Fatal(err)
			}
			return func() txntest.Engine { return txntest.Engine{Namespace: user, Records: user.Records()} }
		})
	})
	for name, size := range map[string]int{"log": 1 << 30, "log with many checkpoints": 2000} {
		t.Run(name, func(t *testing.T) {
			txntest.Test(t, func(t *testing.T) txntest.Open {
				s := stream.New(kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())}), "NS_buf")
				if err := s.Ensure(metatest.Context(t)); err != nil {
					t.Fatal(err)
				}
				e, err := nslog.Open(metatest.Context(t), s, &ids{base: kv.Random64() >> 1}, nslog.Options{
					Buffer: "buf", Node: "me", CheckpointBytes: size, Logger: metatest.Logger(t),
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(e.Close)
				if err := e.Prepare(metatest.Context(t), buffer); err != nil {
					t.Fatal(err)
				}
				return func() txntest.Engine { return txntest.Engine{Namespace: e, Records: e.Records()} }
			})
		})
	}
}
