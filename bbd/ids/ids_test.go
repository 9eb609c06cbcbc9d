package ids

import (
	"context"
	"errors"
	"sync"
	"testing"

	"forebay/internal/bb"
)

// blocks counts up, and fails at the number of fails.
type blocks struct {
	last, fails uint64
}

func (b *blocks) Claim(context.Context) (uint64, error) {
	if b.last+1 == b.fails {
		return 0, errors.New("no answer")
	}
	b.last++
	return b.last, nil
}

func claim(t *testing.T, from *blocks) *Claimed {
	t.Helper()
	c, err := Claim(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNext: no id is returned twice to concurrent callers, and none is 0.
func TestNext(t *testing.T) {
	from := &blocks{}
	one, other := claim(t, from), claim(t, from)
	if one.Block() != 1 || other.Block() != 2 {
		t.Fatalf("blocks %d and %d, want 1 and 2", one.Block(), other.Block())
	}
	const each, askers = 200, 4
	got := make([][]uint64, askers)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			for range each {
				got[i] = append(got[i], []*Claimed{one, other}[i%2].Next())
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{0: true}
	for _, ids := range got {
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("%d twice", id)
			}
			seen[id] = true
		}
	}
}

// TestAfter: a generation follows the one before it, also where that is of a later block.
func TestAfter(t *testing.T) {
	from := &blocks{}
	old := claim(t, from)
	newer := claim(t, from)
	n := bb.Generation(newer.Next())
	for range 3 {
		next, err := old.After(t.Context(), n)
		if err != nil || next <= n {
			t.Fatalf("after %d: %d, %v", n, next, err)
		}
		n = next
	}
	if old.Block() != 3 || from.last != 3 {
		t.Errorf("block %d of %d claimed, want one more than two", old.Block(), from.last)
	}
}

// TestUnclaimed: without an answer there is no id that follows, and the block stays.
func TestUnclaimed(t *testing.T) {
	if _, err := Claim(t.Context(), &blocks{fails: 1}); err == nil {
		t.Error("a first block that nobody answered for")
	}
	c := claim(t, &blocks{fails: 2})
	if n, err := c.After(t.Context(), bb.Generation(9<<32)); err == nil {
		t.Errorf("%d follows a generation of a later block", n)
	}
	if id := c.Next(); id>>32 != 1 {
		t.Errorf("%d is not of the block that is there", id)
	}
}
