package kv

import (
	"testing"

	"go.uber.org/goleak"

	"forebay/meta/conn"
	"forebay/meta/metatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBucket returns a bucket on a server of its own.
func testBucket(t testing.TB) *Bucket {
	t.Helper()
	s := metatest.StartServer(t, t.TempDir())
	c, err := conn.Dial(metatest.Context(t), conn.Options{InProcess: s, Logger: metatest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b := New(c, "test", BucketOptions{})
	if err := b.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return b
}
