package kv

import (
	"context"
	"errors"
	"testing"

	"forebay/meta/metatest"
)

// TestSilentAfterRemoval: a server that has dropped a bucket may answer nobody who writes to
// it. A change, or a read, ends all the same: the bucket is gone.
func TestSilentAfterRemoval(t *testing.T) {
	t.Parallel()
	b := testBucket(t)
	if err := b.Destroy(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.c.Intercept(func(ctx context.Context, msgs []*Message) (*Message, error) {
		return nil, ErrUncertain
	})
	if _, _, err := b.Create(metatest.Context(t), "x", []byte("x"), 0); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a change: %v", err)
	}
	if _, err := b.Get(metatest.Context(t), "x"); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a read: %v", err)
	}
}

func FuzzParseAck(f *testing.F) {
	for _, s := range []string{
		`{"stream":"KV_x","seq":123}`, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"x","seq":0}`,
		`{"stream":"x","seq":9,"batch":"b","count":2}`, `{"seq":99999999999999999999999}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if seq, err := parseAck(b); (err == nil) != (seq > 0) {
			t.Fatalf("%q: %d %v", b, seq, err)
		}
	})
}
