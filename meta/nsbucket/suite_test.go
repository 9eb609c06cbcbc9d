package nsbucket_test

import (
	"context"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nsbucket"
)

// ids are those of one process.
type ids struct {
	base uint64
	last atomic.Uint64
}

func (i *ids) Next(context.Context) (uint64, error) { return i.base + i.last.Add(1), nil }

// TestConformance runs the suite in each way in which a namespace answers.
func TestConformance(t *testing.T) {
	for _, m := range []struct {
		name   string
		sole   bool
		copies int32 // that the bucket counts as having; with more than one, reads put barriers
	}{{"sole writer", true, 1}, {"several writers", false, 1}, {"several copies", false, 3}} {
		t.Run(m.name, func(t *testing.T) {
			namespacetest.Test(t, func(t *testing.T) namespacetest.Open {
				server := metatest.StartServer(t, t.TempDir())
				var only namespace.Tree
				return func(node bb.NodeID) namespace.Tree {
					if only != nil {
						return only
					}
					b := kv.New(kvtest.Dial(t, conn.Options{InProcess: server}), "forebay-buf-1", kv.BucketOptions{Gone: kv.NeverGone})
					ns := nsbucket.Open(b, &ids{base: kv.Random64() >> 1}, nsbucket.Options{Buffer: "buf", Node: node, SoleWriter: m.sole})
					if err := ns.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}); err != nil {
						t.Fatal(err)
					}
					b.AssumeCopies(m.copies)
					if m.sole {
						only = ns
					}
					return ns
				}
			})
		})
	}
}
