package nsbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/oplog"
)

// followed keeps a follower's results, as its user would.
type followed struct {
	namespace.OpReader
	ns  *Namespace
	ops map[uint64]namespace.StoreOp // by revision
}

func following(ns *Namespace) *followed {
	return &followed{ns.PendingOps(), ns, map[uint64]namespace.StoreOp{}}
}

// read reads on, and compares with all that is pending.
func (f *followed) read(ctx context.Context, t *testing.T) {
	t.Helper()
	came, went, err := f.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range went {
		if !reflect.DeepEqual(f.ops[op.Revision], op) {
			t.Errorf("%+v went, and never came", op)
		}
		delete(f.ops, op.Revision)
	}
	for i, op := range came {
		if i > 0 && op.Seq <= came[i-1].Seq {
			t.Errorf("operation %d comes after %d", op.Seq, came[i-1].Seq)
		}
		if _, ok := f.ops[op.Revision]; ok {
			t.Errorf("%+v came twice", op)
		}
		f.ops[op.Revision] = op
	}
	all, err := f.ns.StoreOps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]namespace.StoreOp{}
	for _, op := range all {
		want[op.Revision] = op
	}
	if !reflect.DeepEqual(f.ops, want) {
		t.Fatalf("followed %v, pending are %v", f.ops, want)
	}
}

// TestPendingOpsAny follows changes of two nodes, with operations that are done and taken over, and
// a server that is reported to have gone back.
func TestPendingOpsAny(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		if mode.sole {
			continue
		}
		t.Run(mode.name, func(t *testing.T) {
			s := metatest.StartServer(t, t.TempDir())
			ctx := metatest.Context(t)
			ours := start(t, s, mode, "a")
			nodes := []*Namespace{ours, start(t, s, mode, "b")}
			rnd := rand.New(rand.NewPCG(15, 14))
			f := following(ours)
			for i := range 150 {
				ns := nodes[rnd.IntN(2)]
				var err error
				switch rnd.IntN(8) {
				case 0, 1, 2, 3:
					create(t, ns, bb.RootDir, fmt.Sprint(i))
					_, err = ns.Remove(ctx, bb.RootDir, fmt.Sprint(i), namespace.RemoveOptions{StoreOp: true})
				case 4, 5:
					for revision := range f.ops {
						_, err = ns.DoneStoreOp(ctx, revision)
						break
					}
				case 6:
					_, err = ns.TakeOverStoreOps(ctx, []bb.NodeID{"a", "b"}[rnd.IntN(2)])
				case 7:
					if rnd.IntN(4) == 0 {
						ours.Distrust()
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if rnd.IntN(3) > 0 {
					f.read(ctx, t)
				}
			}
			f.read(ctx, t)
		})
	}
}

// TestPendingOpsCost: a read requests the changes alone, however many operations are pending.
func TestPendingOpsCost(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		dir := mkdir(t, ns, bb.RootDir, "d")
		for i := range 200 {
			create(t, ns, dir.Dir, fmt.Sprint(i))
		}
		if err := ns.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{StoreOp: true}, nil); err != nil {
			t.Fatal(err)
		}
		f := following(ns)
		f.read(ctx, t)
		create(t, ns, bb.RootDir, "one")
		if _, err := ns.Remove(ctx, bb.RootDir, "one", namespace.RemoveOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
		asked := 0
		connOf(ns).Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
			asked += len(msgs)
			return connOf(ns).Deliver(ctx, msgs)
		})
		came, went, err := f.Read(ctx)
		connOf(ns).Intercept(nil)
		if err != nil || len(came) != 1 || len(went) != 0 {
			t.Errorf("%d came, %d went: %v", len(came), len(went), err)
		}
		if asked > 4 { // a barrier, it and the operation, and that there are no more
			t.Errorf("%d requests for one new operation among 201", asked)
		}
	})
}

// TestPendingOpsFailed: the findings of a failed read are returned by the next one.
func TestPendingOpsFailed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		f := following(ns)
		f.read(ctx, t)
		for i := range 3 {
			create(t, ns, bb.RootDir, fmt.Sprint(i))
			if _, err := ns.Remove(ctx, bb.RootDir, fmt.Sprint(i), namespace.RemoveOptions{StoreOp: true}); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithCancelCause(ctx)
		asked, stopped := 0, errors.New("stopped half way")
		connOf(ns).Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
			if asked++; asked == 3 {
				cancel(stopped)
				return nil, kv.ErrUncertain
			}
			return connOf(ns).Deliver(ctx, msgs)
		})
		if _, _, err := f.Read(short); !errors.Is(err, stopped) {
			t.Errorf("a read that was stopped: %v", err)
		}
		connOf(ns).Intercept(nil)
		f.read(ctx, t)
	})
}

// TestPendingOpsSetBack: a server that was set back gives sequences again, that were read.
func TestPendingOpsSetBack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := metatest.Context(t)
		f := following(ns)
		f.read(ctx, t)
		create(t, ns, bb.RootDir, "f")
		if _, err := ns.Remove(ctx, bb.RootDir, "f", namespace.RemoveOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
		oplog.Ahead(f.OpReader, 1000) // as if it had read records that the server has lost
		if !ns.b.Replicated() {
			connOf(ns).Reconnected() // after a server of one copy was set back, there is a new connection
		}
		f.read(ctx, t)
		if len(f.ops) != 1 {
			t.Errorf("%d operations", len(f.ops))
		}
	})
}
