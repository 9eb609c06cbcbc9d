package nslog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/tail"
)

// holding is a namespace in a simulated log with an end that other daemons hold.
type holding struct {
	t     *testing.T
	rnd   *rand.Rand
	log   *simulated
	tails []*tail.Tail // of the daemons, of which the first holds the records that the owner appends
	seen  uint64       // revision of an answer
	short bool         // a loss is reported
	e     *nslog.Engine
	text  bytes.Buffer
	names []string
	made  int
}

func newHolding(t *testing.T, seed uint64) *holding {
	h := &holding{t: t, rnd: rand.New(rand.NewPCG(seed, 4)), log: &simulated{}, tails: []*tail.Tail{tail.New(tail.Limits{Age: time.Hour})}}
	h.start()
	return h
}

// start has the next process own the log.
func (h *holding) start() {
	h.t.Helper()
	time.Sleep(time.Millisecond) // no two claims in one microsecond
	e, err := nslog.Open(metatest.Context(h.t), &process{simulated: h.log}, newIDs(), nslog.Options{
		Buffer: "buf", Node: "me", CheckpointBytes: 3000, Settle: time.Hour, Logger: slog.New(slog.NewTextHandler(&h.text, nil)),
		Short: func() { h.short = true },
		Keep:  func(_ context.Context, r tail.Record) { h.tails[0].Add(time.Now(), r) },
		Held: func(_ context.Context, from uint64) (all owner.Held) {
			for _, one := range h.tails {
				page, _, _ := one.Page(0, 1<<40, func(r *tail.Record) bool { return owner.FirstOf(r.Data) >= from })
				all.Records = append(page, all.Records...)
			}
			all.Seen = h.seen
			return all
		},
	})
	if err == nil {
		h.e = e
		err = e.Prepare(metatest.Context(h.t), &bb.Buffer{Name: "buf", Mode: 0o755})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// change makes some changes.
func (h *holding) change(n int) {
	h.t.Helper()
	ctx := metatest.Context(h.t)
	for range n {
		kind := h.rnd.IntN(4)
		if len(h.names) == 0 || kind < 2 {
			h.made++
			name := fmt.Sprint("f", h.made)
			h.seen = namespacetest.Create(h.t, h.e, bb.RootDir, name).Revision
			h.names = append(h.names, name)
			continue
		}
		i := h.rnd.IntN(len(h.names))
		var err error
		if kind == 2 {
			h.made++
			to := fmt.Sprint("r", h.made)
			_, err = h.e.Rename(ctx, bb.RootDir, h.names[i], bb.RootDir, to, namespace.RenameOptions{StoreOp: h.made%2 == 0})
			h.names[i] = to
		} else {
			_, err = h.e.Remove(ctx, bb.RootDir, h.names[i], namespace.RemoveOptions{StoreOp: h.made%2 == 0})
			h.names = append(h.names[:i], h.names[i+1:]...)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// An owner ends, and its server has lost any end of the log: also claims, checkpoints, and records
// that were stored again before. All is there with its revisions, while the daemons that hold it
// live.
func TestHeldEndOfTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, seed)
			h.change(20)
			settled := h.log.last
			for range 8 {
				h.change(h.rnd.IntN(30))
				want := contentsOf(t, h.e)
				h.e.Close()
				switch h.rnd.IntN(4) {
				case 0: // the server has lost nothing
				case 1:
					h.log.setBack(settled)
				default:
					h.log.setBack(settled + h.rnd.Uint64N(h.log.last-settled+1))
				}
				if h.rnd.IntN(3) == 0 { // another daemon holds from now on
					h.tails = append([]*tail.Tail{tail.New(tail.Limits{Age: time.Hour})}, h.tails...)
				}
				h.start()
				if got := contentsOf(t, h.e); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: %d names, want %d\n%s", seed, len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]), &h.text)
				}
			}
			if h.short || strings.Contains(h.text.String(), "no daemon holds") {
				t.Errorf("seed %d: a loss is logged\n%s", seed, &h.text)
			}
			want := contentsOf(t, h.e)
			h.e.Close()
			h.start()
			if got := contentsOf(t, h.e); !reflect.DeepEqual(got, want) {
				t.Errorf("seed %d: another start has %d names, want %d", seed, len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]))
			}
			h.e.Close()
		})
	}
}

// A record that no daemon holds is missing. If an answer or a later record names it, that is
// logged. Records after a gap are not stored.
func TestLostEndOfTheLog(t *testing.T) {
	t.Parallel()
	for _, gap := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, 1)
			h.change(20)
			want, settled := contentsOf(t, h.e), h.log.last
			h.change(20)
			h.tails[0] = tail.New(tail.Limits{Age: time.Hour}) // the daemon that held it is gone, too
			if gap {
				h.change(20)
				h.seen = 0
			}
			h.e.Close()
			h.log.setBack(settled)
			h.start()
			got := contentsOf(t, h.e)
			if !reflect.DeepEqual(got.entries, want.entries) {
				t.Errorf("%d names, want %d", len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]))
			}
			if !h.short || !strings.Contains(h.text.String(), "no daemon holds the rest") {
				t.Errorf("the loss is not logged:\n%s", &h.text)
			}
			h.e.Close()
		})
	}
}
