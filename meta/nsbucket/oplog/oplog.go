// Package oplog keeps, in the bucket of a namespace, the renames and removals that the backing store has yet to
// follow. It must never depend on the change of an operation, nor the store.
package oplog

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/record"
)

// Log is the operations of one namespace that are pending. It is safe for concurrent use.
type Log struct {
	b          *kv.Bucket
	ids        namespace.IDs
	buffer     string
	node       bb.NodeID
	distrusted atomic.Uint64 // how often the server has been found to have gone back
	keys       opKeys
}

// New returns the log in the bucket of a buffer's namespace. Its operations belong to a node at first.
func New(b *kv.Bucket, ids namespace.IDs, buffer string, node bb.NodeID) *Log {
	return &Log{b: b, ids: ids, buffer: buffer, node: node}
}

// Distrust makes followers read everything again. The server has been found to have gone back.
func (l *Log) Distrust() { l.distrusted.Add(1) }

// opKeys hands out the keys of operations. A key that was deleted leaves a marker for good, so keys
// are used again once their operations are done. There are as many as were ever pending at a time.
// They begin with an id of this process's own.
type opKeys struct {
	sync.Mutex
	prefix string
	made   int
	free   map[string]uint64 // and the revisions of their markers
}

func (k *opKeys) take(ctx context.Context, ids namespace.IDs) (key string, marker uint64, err error) {
	k.Lock()
	defer k.Unlock()
	for key, marker := range k.free {
		delete(k.free, key)
		return key, marker, nil
	}
	if k.prefix == "" {
		id, err := ids.Next(ctx)
		if err != nil {
			return "", 0, err
		}
		k.prefix, k.free = record.OpPrefix+strconv.FormatUint(id, 16)+"-", map[string]uint64{}
	}
	k.made++
	return k.prefix + strconv.Itoa(k.made), 0, nil
}

// giveBack takes back the key of an operation that is done, or was not stored.
func (k *opKeys) giveBack(key string, marker uint64) {
	k.Lock()
	defer k.Unlock()
	if k.prefix != "" && strings.HasPrefix(key, k.prefix) {
		k.free[key] = marker
	}
}

// GiveBack takes back the keys of operations of a batch that changed nothing.
func (l *Log) GiveBack(changes []kv.Change) {
	for i := range changes {
		if strings.HasPrefix(changes[i].Key, record.OpPrefix) {
			l.keys.giveBack(changes[i].Key, changes[i].Own)
		}
	}
}

// Change makes the change that stores an operation, if paths is still the revision
// of the paths key.
func (l *Log) Change(ctx context.Context, op namespace.StoreOp, paths uint64) (kv.Change, error) {
	key, marker, err := l.keys.take(ctx, l.ids)
	if err != nil {
		return kv.Change{}, err
	}
	op.By = l.node
	data, err := record.SealOp(key, &op)
	return kv.Change{Key: key, Data: data, Check: record.PathsKey, Expected: paths, Own: marker}, err
}

// StoreOps returns the pending operations in the order in which they happened. An operation that
// cannot be decoded is counted, logged and left out. If there is one that only newer releases
// define, it is bb.Unsupported. It reads all of them (see PendingOps).
func (l *Log) StoreOps(ctx context.Context) ([]namespace.StoreOp, error) {
	ops, _, err := l.PendingOps().Read(ctx)
	return ops, err
}

// opRecords returns the newest records of all operations by their keys, those that are done
// too, and the last sequence among them.
func (l *Log) opRecords(ctx context.Context) (found map[string]kv.Record, last uint64, err error) {
	found = map[string]kv.Record{}
	err = l.b.Scan(ctx, record.OpPrefix+"*", func(r *kv.Record) error {
		found[r.Key] = *r
		last = max(last, r.Seq)
		return nil
	})
	return found, last, err
}

// openOps decodes records of operations, by their keys: nil for those that are done or cannot be
// decoded. An operation that only newer releases define is an error, since later ones must not
// overtake it.
func (l *Log) openOps(records map[string]kv.Record) (map[string]*namespace.StoreOp, error) {
	ops := make(map[string]*namespace.StoreOp, len(records))
	for key, r := range records {
		ops[key] = nil
		if !r.Live() {
			continue
		}
		op, err := record.OpenOp(key, r.Data, r.Seq)
		if bb.KindOf(err) == bb.Unsupported {
			return nil, err
		}
		if err != nil {
			l.b.Unreadable(key, err)
			continue
		}
		ops[key] = &op
	}
	return ops, nil
}

// TakeOverStoreOps makes the pending operations of another node this node's own, each by
// compare-and-set, and returns how many. Their order stays. Operations that the other node strikes
// out first, or a third node takes over, are left to them. After an error it is repeated.
func (l *Log) TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error) {
	const what = "take over store operations"
	follower := l.follow()
	if _, _, err := follower.Read(ctx); err != nil {
		return 0, bb.Wrap(what, l.buffer, err)
	}
	for key, op := range follower.byKey {
		if op.By != from {
			continue
		}
		op.By = l.node
		data, err := record.SealOp(key, &op)
		if err == nil {
			_, err = l.b.Put(ctx, key, data, op.Revision)
		}
		if errors.Is(err, kv.ErrRevision) {
			continue
		}
		if err != nil {
			return taken, kv.Wrap(what, l.buffer, err)
		}
		taken++
	}
	return taken, nil
}

// StoreOpPending reports whether an operation is still pending at a revision. It was neither
// carried out nor taken over.
func (l *Log) StoreOpPending(ctx context.Context, revision uint64) (bool, error) {
	r, err := l.opAt(ctx, revision)
	return err == nil && r.Live(), err
}

func (l *Log) opAt(ctx context.Context, revision uint64) (kv.Record, error) {
	r, err := l.b.GetSeq(ctx, record.OpPrefix+"*", revision)
	if err == nil && r.Live() && !strings.HasPrefix(r.Key, record.OpPrefix) {
		return kv.Record{}, bb.E(bb.Invalid, "store operation", strconv.FormatUint(revision, 10), "is not one")
	}
	return r, kv.Wrap("store operation", strconv.FormatUint(revision, 10), err)
}

// DoneStoreOp deletes a pending operation at a revision, and reports whether it was there. It is
// not if this was done before, or if another node has taken it over.
func (l *Log) DoneStoreOp(ctx context.Context, revision uint64) (bool, error) {
	r, err := l.opAt(ctx, revision)
	if err != nil || !r.Live() {
		return false, err
	}
	marker, err := l.b.Remove(ctx, r.Key, revision)
	if errors.Is(err, kv.ErrRevision) {
		return false, nil
	}
	if err == nil {
		l.keys.giveBack(r.Key, marker)
	}
	return err == nil, kv.Wrap("store operation", strconv.FormatUint(revision, 10), err)
}
