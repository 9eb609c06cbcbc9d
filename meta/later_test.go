package meta

import (
	"context"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metapb"
)

// A daemon that changes a record keeps its unknown fields.
func TestNewerFieldsStay(t *testing.T) {
	t.Parallel()
	m := connectTo(t, Options{InProcess: startServer(t, t.TempDir())})
	newBuffer(t, m, "buf")
	ctx := testContext(t)
	var spec metapb.Buffer
	kvtest.AddUnknown(t, m.system, bufferKey("buf"), &spec)
	b, err := m.Buffer(ctx, "buf")
	if err != nil {
		t.Fatal(err)
	}
	b.Rest, b.Job = "", "7" // a writer need not have the fields
	if _, err := m.UpdateBuffer(ctx, b); err != nil {
		t.Fatal(err)
	}
	kvtest.WantUnknown(t, m.system, bufferKey("buf"), &spec)
}

// relabel rewrites a record as one of another format.
func relabel(ctx context.Context, b *kv.Bucket, key string, format byte) error {
	r, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	r.Data[0] = format
	_, err = b.Put(ctx, key, r.Data, r.Seq)
	return err
}

// A field that must not be ignored makes a record one that older daemons refuse, with an error.
func TestRecordsOfNewerFormats(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	m := connectTo(t, Options{InProcess: s})
	ctx := testContext(t)
	for name, replicas := range map[string]int{"one": 1, "two": 2} {
		if _, err := m.CreateBuffer(ctx, bb.Buffer{Name: name, Replicas: replicas}); err != nil {
			t.Fatal(err)
		}
		r, err := m.system.Get(ctx, bufferKey(name))
		if err != nil || int(r.Data[0]) != replicas {
			t.Errorf("%s: a record of format %d: %v", name, r.Data[0], err)
		}
	}
	if err := relabel(ctx, m.system, bufferKey("two"), kv.NewestFormat+1); err != nil {
		t.Fatal(err)
	}
	_, err := m.Buffer(ctx, "two")
	wantKind(t, "a buffer of a newer format", err, bb.Unsupported)
	if err == nil || !strings.Contains(err.Error(), "record format 4, this release reads 1 to 3") || !strings.Contains(err.Error(), "use the release that wrote it") {
		t.Errorf("it says %v", err)
	}
	_, err = m.Namespace(ctx, "two")
	wantKind(t, "its namespace", err, bb.Unsupported)
	wantKind(t, "destroying it", m.DestroyBuffer(ctx, "two"), bb.Unsupported)
	if all, err := m.Buffers(ctx); err != nil || len(all) != 1 || m.Stats().Garbage == 0 {
		t.Errorf("%d buffers, %d unread: %v", len(all), m.Stats().Garbage, err)
	}
}
