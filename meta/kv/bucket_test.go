package kv

import (
	"context"
	"errors"
	"testing"

	"forebay/meta/conn"
	"forebay/meta/metatest"
)

// TestSilentAfterRemoval: a server that has dropped a bucket may leave writes to it without an
// answer. A change, or a read, ends all the same, with the error that the bucket is gone.
func TestSilentAfterRemoval(t *testing.T) {
	t.Parallel()
	b := testBucket(t)
	if err := b.Destroy(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.c.Intercept(func(ctx context.Context, msgs []*conn.Message) (*conn.Message, error) {
		return nil, ErrUncertain
	})
	if _, _, err := b.Create(metatest.Context(t), "x", []byte("x"), 0); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a change: %v", err)
	}
	if _, err := b.Get(metatest.Context(t), "x"); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a read: %v", err)
	}
}
