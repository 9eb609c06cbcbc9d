package kv

import (
	"context"
	"sync"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
)

// Readers that wait for a barrier share the next one, and one that stops waiting delays none of the
// others.
func TestBarriersAreShared(t *testing.T) {
	t.Parallel()
	b := testBucket(t)
	before, err := b.barrier(metatest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	under, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // one is under way
		_, _ = b.barriers.Do(metatest.Context(t), func(context.Context) (uint64, error) {
			close(under)
			<-end
			return 0, nil
		})
	})
	<-under
	impatient, cancel := context.WithTimeout(metatest.Context(t), 20*time.Millisecond)
	defer cancel()
	const readers = 50
	wg.Go(func() {
		if _, err := b.barrier(impatient); bb.KindOf(err) != bb.Unavailable {
			t.Errorf("a reader that gave up: %v", err)
		}
	})
	time.Sleep(5 * time.Millisecond)
	for range readers {
		wg.Go(func() {
			if seq, err := b.barrier(metatest.Context(t)); err != nil || seq <= before {
				t.Errorf("barrier %d after %d: %v", seq, before, err)
			}
		})
	}
	<-impatient.Done()
	time.Sleep(20 * time.Millisecond)
	close(end)
	wg.Wait()
	if after, err := b.barrier(metatest.Context(t)); err != nil || after > before+10 {
		t.Errorf("%d readers put %d barriers: %v", readers, after-before, err)
	}
}

// The answer of a copy without the barrier is not trusted.
func TestPassed(t *testing.T) {
	t.Parallel()
	records := []Record{{Key: "e.1.a", Seq: 9}, {Key: "x.=", Seq: 7}}
	for seq, want := range map[uint64]bool{6: true, 7: true, 8: false} {
		if passed(records, seq) != want {
			t.Errorf("a barrier of %d in an answer of 7: %v", seq, !want)
		}
	}
	if passed(records[:1], 5) {
		t.Error("an answer without a barrier")
	}
}

// A server that refuses a change because of an outdated revision decides nothing. The stored record
// does.
func TestRefusalIsChecked(t *testing.T) {
	t.Parallel()
	b := testBucket(t)
	ctx := metatest.Context(t)
	seq, err := b.Put(ctx, "k", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	changes := []Change{{Key: "k", Data: []byte("2"), Expected: seq}, {Key: "l", Data: []byte("2")}}
	became := func(id string, lost bool) error { _, err := b.becameOf(ctx, id, changes, lost); return err }
	if err := became("id", false); err != ErrInProcess {
		t.Errorf("all that it expects holds: %v", err)
	}
	if _, err := b.Put(ctx, "l", []byte("other"), 0); err != nil {
		t.Fatal(err)
	}
	if err := became("id", true); err != ErrRevision {
		t.Errorf("it can never be carried out, and was not: %v", err)
	}
	if _, err := b.Put(ctx, "k", []byte("other"), seq); err != nil {
		t.Fatal(err)
	}
	if err := became("id", true); bb.KindOf(Wrap("x", "", err)) != bb.Unavailable {
		t.Errorf("nobody knows: %v", err)
	}
	if err := became("id", false); err != ErrRevision {
		t.Errorf("it was sent once, and refused: %v", err)
	}
}
