package kv

import (
	"errors"
	"strconv"
	"testing"

	"forebay/meta/conn"
	"forebay/meta/metatest"
)

// TestScanGap: a scan that loses messages on their way continues behind the last one that came, and misses none.
func TestScanGap(t *testing.T) {
	t.Parallel()
	b := testBucket(t)
	ctx := metatest.Context(t)
	const keys = 2 * SmallScan
	for i := range keys {
		if _, err := b.Put(ctx, "k."+strconv.Itoa(i), []byte("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	lost := map[uint64]bool{}
	b.c.LoseFed(func(m conn.Fed) bool { // each tenth, the first time
		lose := m.Seq%(keys/10) == 0 && !lost[m.Seq]
		if lose {
			lost[m.Seq] = true
		}
		return lose
	})
	seen, last := map[string]bool{}, uint64(0)
	err := b.Scan(ctx, "k.>", func(r *Record) error {
		if r.Seq <= last {
			t.Errorf("sequence %d after %d", r.Seq, last)
		}
		seen[r.Key], last = true, r.Seq
		return nil
	})
	if err != nil || len(seen) != keys || len(lost) < 9 {
		t.Errorf("%d of %d keys, %d messages were lost: %v", len(seen), keys, len(lost), err)
	}
	enough := errors.New("enough")
	if err := b.Scan(ctx, "k.>", func(*Record) error { return enough }); err != enough {
		t.Errorf("a scan that is ended: %v", err)
	}
	if err := b.Scan(ctx, "k.>", func(*Record) error { return ErrStop }); err != nil {
		t.Errorf("a scan that has enough: %v", err)
	}
}
