package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/tail"
	"forebay/meta/stream"
)

// removable is a log that can be removed as a whole, and made again.
type removable struct {
	*process
	gone  bool
	again int // the append after which it is removed once more; 0: none
}

func (r *removable) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages, r.purged, r.last, r.gone = nil, nil, 0, true
}

func (r *removable) setOdds(odds int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.odds, r.dead = odds, false
}

func (r *removable) remake(context.Context) error {
	return r.step(func() { r.gone = false })
}

func (r *removable) missing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return stream.ErrGone
	}
	return nil
}

func (r *removable) Append(ctx context.Context, subject string, data []byte, f stream.Fence) (uint64, error) {
	if err := r.missing(); err != nil {
		return 0, err
	}
	defer func() {
		if r.again--; r.again == 0 {
			r.remove()
		}
	}()
	return r.process.Append(ctx, subject, data, f)
}

func (r *removable) Last(ctx context.Context, subject string) (stream.Message, error) {
	if err := r.missing(); err != nil {
		return stream.Message{}, err
	}
	return r.process.Last(ctx, subject)
}

// A log is removed under its owner, which makes it again with all that it had: with the change that found it gone, and
// for the next owner. If the owner is killed at any step, the next one has all names, or refuses the log.
func TestLogIsRemoved(t *testing.T) {
	t.Parallel()
	whole, refused := 0, 0
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			ctx := metatest.Context(t)
			log := &removable{process: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(seed, 9))}}
			e := openOn(t, log, nslog.Options{Node: "me", CheckpointBytes: 3000, Remake: log.remake})
			for i := range 50 {
				namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("f", i))
			}
			want := contentsOf(t, e)
			odds := int(seed % 15) // of each step: the process is killed
			log.remove()
			log.setOdds(odds)
			_, err := e.Create(ctx, namespacetest.File(bb.RootDir, "found it gone"))
			if odds == 0 {
				if err != nil {
					t.Fatalf("a change of a log that is gone: %v", err)
				}
				want = contentsOf(t, e)
			}
			e.Close()
			log.setOdds(0)
			time.Sleep(time.Second)
			if log.gone {
				return // it was killed before
			}
			next, err := nslog.Open(ctx, log, newIDs(), nslog.Options{Buffer: "buf", Node: "next", Floor: func() uint64 { return 1 }, Logger: metatest.Logger(t)})
			if err != nil {
				if bb.KindOf(err) != bb.Lost {
					t.Errorf("seed %d: %v", seed, err)
				}
				refused++
				return
			}
			defer next.Close()
			got := contentsOf(t, next)
			delete(got.entries[bb.RootDir], "found it gone")
			delete(want.entries[bb.RootDir], "found it gone")
			if !reflect.DeepEqual(got.entries, want.entries) {
				t.Errorf("seed %d: %d names of %d are there", seed, len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]))
			}
			whole++
		})
	}
	if whole == 0 || refused == 0 {
		t.Errorf("all names were there %d times, and the log was refused %d times", whole, refused)
	}
}

// A log that is removed once more while its owner stores all in it is made again once more.
func TestLogIsRemovedAgain(t *testing.T) {
	t.Parallel()
	for again := range 6 {
		synctest.Test(t, func(t *testing.T) {
			log := &removable{process: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(1, 9))}}
			e := openOn(t, log, nslog.Options{Node: "me", CheckpointBytes: 3000, Remake: log.remake})
			for i := range 50 {
				namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("f", i))
			}
			log.remove()
			log.again = again
			namespacetest.Create(t, e, bb.RootDir, "found it gone")
			for i := range 6 {
				namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("after that ", i))
			}
			want := contentsOf(t, e)
			e.Close()
			if got := contentsOf(t, openOn(t, log, nslog.Options{Node: "next"})); log.again > 0 || !reflect.DeepEqual(got.entries, want.entries) {
				t.Errorf("removed after append %d: %d names of %d are there", again, len(got.entries[bb.RootDir]), len(want.entries[bb.RootDir]))
			}
		})
	}
}

// The log of a buffer that was destroyed is not made again.
func TestLogIsDestroyed(t *testing.T) {
	t.Parallel()
	log := &removable{process: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(1, 9))}}
	e := openOn(t, log, nslog.Options{Node: "me", Remake: func(context.Context) error { return stream.ErrGone }})
	log.remove()
	if _, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "f")); bb.KindOf(err) != bb.NotFound || !log.gone {
		t.Errorf("a change of a log that was destroyed: %v", err)
	}
}

// An owner that was replaced, without notice, does not store its table in a log that has lost the next owner's changes,
// if any daemon has an answer of that one, or a record. While its lease lasts there was no other owner.
func TestLogIsRemovedUnderAnOldOwner(t *testing.T) {
	t.Parallel()
	change := (&record.Head{First: 1 << 60}).BeginChanges(nil)
	change = record.Seal(record.AppendRemove(change, record.RootKey))
	for name, c := range map[string]struct {
		held  owner.Held
		lapse time.Duration
		want  error
	}{
		"nothing is known of another owner":     {owner.Held{}, time.Hour, nil},
		"a daemon has an answer of a later one": {owner.Held{Seen: 1 << 60}, time.Hour, owner.ErrReplaced},
		"a daemon holds a record of it":         {owner.Held{Records: []tail.Record{{Seq: 9, Data: change}}}, time.Hour, owner.ErrReplaced},
		"the lease lasts":                       {owner.Held{Seen: 1 << 60}, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &removable{process: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(1, 9))}}
			replaced := false
			e := openOn(t, log, nslog.Options{Node: "me", Lease: time.Minute, Remake: log.remake, Held: func(context.Context, uint64) owner.Held {
				if replaced {
					return c.held
				}
				return owner.Held{}
			}})
			namespacetest.Create(t, e, bb.RootDir, "before")
			replaced = true
			log.remove()
			time.Sleep(c.lapse)
			_, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "f"))
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
}
