package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
)

func recordsOf(t *testing.T, e *nslog.Engine) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := e.Records().Scan(metatest.Context(t), ">", func(r *kv.Record) error {
		found[r.Key] = fmt.Sprint(string(r.Data), " at ", r.Seq)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Records are there after a start, with and without a checkpoint, and removed ones are not. An
// owner that was replaced changes none.
func TestRecordsRestart(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	for name, size := range map[string]int{"without checkpoints": 1 << 30, "with many": 1000} {
		s := newStream(t, metatest.StartServer(t, t.TempDir()))
		e := openOn(t, s, nslog.Options{Node: "me", CheckpointBytes: size})
		d := namespacetest.Mkdir(t, e, bb.RootDir, "d")
		for i := range 200 {
			key := fmt.Sprintf("t.%d.run", i)
			if _, _, err := e.Records().Create(ctx, key, []byte("first"), 0); err != nil {
				t.Fatal(err)
			}
			r, err := e.Records().Get(ctx, key)
			switch {
			case err != nil:
			case i%3 == 0:
				_, err = e.Records().Put(ctx, key, []byte("second"), r.Seq)
			case i%3 == 1:
				_, err = e.Records().Remove(ctx, key, r.Seq)
			default:
				d.Txn = bb.TxnID(i)
				err = e.PutWith(ctx, &d, kv.Change{Key: key, Data: []byte("decided"), Expected: r.Seq})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := recordsOf(t, e)
		if len(want) != 133 {
			t.Errorf("%s: %d records, want 133", name, len(want))
		}
		next := openOn(t, s, nslog.Options{Node: "me", CheckpointBytes: size})
		if got := recordsOf(t, next); !maps.Equal(got, want) {
			t.Errorf("%s: after a start there is %v, want %v", name, got, want)
		}
		if got, err := next.Lookup(ctx, bb.RootDir, "d"); err != nil || got.Txn != d.Txn || got.Revision != d.Revision {
			t.Errorf("%s: the entry is %+v (%v), want %+v", name, got, err, d)
		}
		_, _, err := e.Records().Create(ctx, "t.late.run", []byte("late"), 0)
		if !errors.Is(err, owner.ErrReplaced) || errors.Is(err, bb.ErrUnknownOutcome) {
			t.Errorf("%s: a change by an owner that was replaced: %v", name, err)
		}
		if _, err := e.Records().Get(ctx, "t.0.run"); !errors.Is(err, owner.ErrReplaced) {
			t.Errorf("%s: a look-up by it afterwards: %v", name, err)
		}
	}
}

// Callers that stop waiting while their changes are under way leave them to the owner.
func TestCallersGiveUp(t *testing.T) {
	t.Parallel()
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			own := namespacetest.Mkdir(t, e, bb.RootDir, fmt.Sprint("own", i))
			to := namespacetest.Mkdir(t, e, bb.RootDir, fmt.Sprint("to", i))
			rnd := rand.New(rand.NewPCG(9, uint64(i)))
			for n := range 150 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(1000))*time.Microsecond)
				name := fmt.Sprint("f", rnd.IntN(4))
				var err error
				switch n % 7 {
				case 0, 1:
					_, err = e.Create(ctx, namespacetest.File(own.Dir, name))
				case 2:
					_, err = e.Remove(ctx, own.Dir, name, namespace.RemoveOptions{StoreOp: true})
				case 3:
					err = e.RemoveAll(ctx, bb.RootDir, own.Name, namespace.RemoveOptions{StoreOp: true}, nil)
					own, _ = e.MkdirAll(t.Context(), own.Name, namespace.Owner{})
				case 4:
					_, _, err = e.MergeDir(ctx, own.Dir, to.Dir, 0, nil)
				case 5:
					_, err = e.Records().Commit(ctx, []kv.Change{{Key: name, Data: []byte("-")}})
				case 6:
					var ops []namespace.StoreOp
					if ops, err = e.StoreOps(ctx); err == nil && len(ops) > 0 {
						_, err = e.DoneStoreOp(ctx, ops[rnd.IntN(len(ops))].Revision)
					}
				}
				cancel()
				switch k := bb.KindOf(err); {
				case err == nil, errors.Is(err, kv.ErrRevision), k == bb.Unavailable, k == bb.NotFound, k == bb.Exists, k == bb.Cancelled:
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	namespacetest.CheckPaths(t, e)
}
