package meta

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/txn"
)

// space is the namespace of a buffer that is in use.
type space struct {
	ns   *namespace.Namespace
	tree *txn.Tree
}

// Namespace returns the namespace of a buffer with its transactions. NotFound if there is no
// such buffer, or if it is being destroyed.
func (m *Meta) Namespace(ctx context.Context, buffer string) (*txn.Tree, error) {
	const op = "namespace"
	b, id, err := m.buffer(ctx, op, buffer)
	if err != nil {
		return nil, err
	}
	if b.State == bb.BufferDestroying {
		return nil, bb.E(bb.NotFound, op, buffer, "the buffer is being destroyed")
	}
	s := m.newSpace(buffer, id)
	if old := m.spaceOf(buffer, s.ns.Bucket().Name()); old != nil {
		return old.tree, nil
	}
	prepared := s.ns.Prepare(ctx, &b)
	if prepared != nil && !errors.Is(prepared, kv.ErrNoBucket) {
		return nil, kv.Wrap(op, buffer, prepared)
	}
	// The buffer may have been destroyed before its bucket was made above, or meanwhile.
	if again, newID, err := m.buffer(ctx, op, buffer); err != nil || newID != id || again.State == bb.BufferDestroying {
		if err != nil && !errors.Is(err, bb.NotFound) {
			return nil, err
		}
		return nil, errors.Join(bb.E(bb.NotFound, op, buffer, "the buffer is being destroyed"), s.ns.Bucket().Destroy(ctx))
	}
	if prepared != nil {
		return nil, kv.Wrap(op, buffer, prepared)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.mu.spaces[buffer]; old != nil && old.ns.Bucket().Name() == s.ns.Bucket().Name() {
		return old.tree, nil
	}
	m.mu.spaces[buffer] = s
	return s.tree, nil
}

func (m *Meta) newSpace(buffer string, id uint64) *space {
	ns := namespace.Open(m.bufferBucket(buffer, id), m.ids, namespace.Options{
		Buffer: buffer, Node: m.opts.Node, SoleWriter: m.opts.SoleWriter, CacheEntries: m.opts.CacheEntries,
	})
	return &space{ns: ns, tree: &txn.Tree{Tree: ns, Transactions: txn.New(ns, ns.Bucket())}}
}

// bufferBucket returns the bucket of the namespace of a buffer.
func (m *Meta) bufferBucket(buffer string, id uint64) *kv.Bucket {
	return m.conn.Bucket(bucketName(buffer, id), kv.BucketOptions{
		Absent: m.opts.Replicas <= 1,
		Gone: func(ctx context.Context) (bool, error) {
			b, now, err := m.buffer(ctx, "namespace", buffer)
			if errors.Is(err, bb.NotFound) {
				return true, nil
			}
			return now != id || b.State == bb.BufferDestroying, err
		},
	})
}

// spaceOf returns the namespace of a buffer if it is in use, and in that bucket.
func (m *Meta) spaceOf(buffer, bucket string) *space {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.spaces[buffer]; s != nil && s.ns.Bucket().Name() == bucket {
		return s
	}
	return nil
}
