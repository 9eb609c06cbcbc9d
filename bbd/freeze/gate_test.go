package freeze

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
)

// entered begins a change, and reports how that ends.
func entered(ctx context.Context, z *Gate) <-chan error {
	end := make(chan error, 1)
	go func() { end <- z.Enter(ctx, "commit") }()
	return end
}

// waits reports whether nothing has come of a channel and nothing will by itself.
func waits[T any](from <-chan T) bool {
	synctest.Wait()
	return len(from) == 0
}

// TestFreeze: a freeze waits for the changes under way, and later ones for its end.
func TestFreeze(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := New("bb://b/")
		if err := z.Enter(t.Context(), "commit"); err != nil {
			t.Fatal(err)
		}
		frozen := make(chan func(), 1)
		go func() {
			thaw, err := z.Freeze(t.Context())
			if err != nil {
				t.Error(err)
			}
			frozen <- thaw
		}()
		if !waits(frozen) {
			t.Fatal("a buffer is frozen during a change")
		}
		later := entered(t.Context(), z)
		if !waits(later) || z.TryEnter() || z.Waiting() != 1 {
			t.Fatalf("a change begins before a freeze has ended; %d wait", z.Waiting())
		}
		z.Leave()
		thaw := <-frozen
		if !waits(later) {
			t.Fatal("a change of a frozen buffer")
		}
		thaw()
		thaw() // which does nothing
		if err := <-later; err != nil || z.Waiting() != 0 || !z.TryEnter() {
			t.Errorf("after the freeze: %v, %d wait", err, z.Waiting())
		}
	})
}

// TestFreezeTwice: changes wait for the last of several freezes.
func TestFreezeTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := New("bb://b/")
		one, err := z.Freeze(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		two, err := z.Freeze(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change := entered(t.Context(), z)
		one()
		if !waits(change) {
			t.Fatal("a change begins while one of two freezes lasts")
		}
		two()
		if err := <-change; err != nil {
			t.Error(err)
		}
	})
}

// TestFreezeEndsUnfrozen: a freeze that changes under way, or its caller, do not wait for leaves nothing
// frozen.
func TestFreezeEndsUnfrozen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patience time.Duration // of the caller
		kind     bb.Kind
	}{
		"changes do not end":  {time.Hour, bb.Busy},
		"its caller gives up": {time.Second, bb.Unavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			z := New("bb://b/")
			if err := z.Enter(t.Context(), "commit"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			defer cancel()
			if _, err := z.Freeze(ctx); bb.KindOf(err) != c.kind {
				t.Errorf("%s: %v, want %v", name, err, c.kind)
			}
			if !z.TryEnter() {
				t.Errorf("%s: the buffer is frozen", name)
			}
		})
	}
}

// TestDestroyed: changes that wait for the end of a freeze get the error that the buffer is gone, and so
// do later ones.
func TestDestroyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := New("bb://b/")
		if _, err := z.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		change := entered(t.Context(), z)
		synctest.Wait()
		z.Destroyed()
		if err := <-change; bb.KindOf(err) != bb.NotFound {
			t.Errorf("what waited: %v", err)
		}
		if err := z.Enter(t.Context(), "commit"); bb.KindOf(err) != bb.NotFound || z.TryEnter() {
			t.Errorf("a later change: %v", err)
		}
	})
}

// TestEnterEnds: a change whose client does not wait any more does not begin.
func TestEnterEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := New("bb://b/")
		thaw, err := z.Freeze(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := z.Enter(ctx, "commit"); err == nil || z.Waiting() != 0 {
			t.Errorf("%v, %d wait", err, z.Waiting())
		}
		thaw()
		again, err := z.Freeze(t.Context()) // which finds no change under way
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}
