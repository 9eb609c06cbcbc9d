package meta

import (
	"testing"

	"forebay/meta/metatest"
)

// testBucket returns a bucket on a server of its own.
func testBucket(t *testing.T) *bucket {
	t.Helper()
	s := metatest.StartServer(t, t.TempDir())
	c, err := dial(metatest.Context(t), connOptions{InProcess: s, Logger: metatest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	b := c.bucket("test", bucketOptions{})
	if err := b.ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return b
}
