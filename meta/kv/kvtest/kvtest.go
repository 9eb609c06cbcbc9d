// Package kvtest has the common parts of tests of the packages over meta/kv: connections, buckets and
// records of newer releases. It must never depend on the meaning of a record.
package kvtest

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/metatest"
)

// Dial returns a connection that ends with the test.
func Dial(t testing.TB, o conn.Options) *conn.Conn {
	t.Helper()
	o.Logger = metatest.Logger(t)
	c, err := conn.Dial(metatest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Bucket returns a bucket of a name, which is made if it is not there.
func Bucket(t testing.TB, c *conn.Conn, name string) *kv.Bucket {
	t.Helper()
	b := kv.New(c, name, kv.BucketOptions{Gone: kv.NeverGone})
	if err := b.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

// unknown is the field that a newer release adds to any message, here.
var unknown = protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a newer release")

// AddUnknown rewrites a record as a newer release would have: with fields that this one
// does not define, in the message and in each inner one that change names.
func AddUnknown(t testing.TB, b *kv.Bucket, key string, m proto.Message, inner ...func() proto.Message) {
	t.Helper()
	ctx := metatest.Context(t)
	r, err := b.Get(ctx, key)
	if err == nil {
		err = kv.Open(key, r.Data, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.ProtoReflect().SetUnknown(unknown)
	for _, of := range inner {
		of().ProtoReflect().SetUnknown(unknown)
	}
	data, err := kv.Seal(key, m)
	if err == nil {
		_, err = b.Put(ctx, key, data, r.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// WantUnknown fails unless a record, and each inner message of it, has the field of AddUnknown.
func WantUnknown(t testing.TB, b *kv.Bucket, key string, m proto.Message, inner ...func() proto.Message) {
	t.Helper()
	r, err := b.Get(metatest.Context(t), key)
	if err == nil {
		err = kv.Open(key, r.Data, m)
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	for _, m := range append([]func() proto.Message{func() proto.Message { return m }}, inner...) {
		if string(m().ProtoReflect().GetUnknown()) != string(unknown) {
			t.Errorf("%s: what a newer release stored in %T is gone", key, m())
		}
	}
}
