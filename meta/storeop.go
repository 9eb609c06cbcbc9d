package meta

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
	"forebay/meta/metapb"
)

// Op is what the backing store has to do.
type Op uint8

// The operations.
const (
	OpRename Op = 1 + iota
	OpRemove
)

// StoreOp is a rename or a removal that happened in the namespace and that the
// backing store has yet to follow. It was stored in the same atomic change, and the
// paths are those at that moment; so carried out in the order of Seq, operations
// lead the store to the names of the namespace, whatever crashes in between.
type StoreOp struct {
	Seq      uint64
	Op       Op
	OldPath  string
	NewPath  string // of a rename
	File     bb.FileID
	IsDir    bool
	Flushed  bb.Flushed // what the store held of the file
	Replaced bb.Flushed // what it held of the file that the rename replaced
	By       bb.NodeID  // whose change it was, which is who carries it out; "" if nobody said
}

// opKeys hands out the keys of operations. A key that was deleted leaves a marker for
// good, so keys are used again once their operations are done: there are as many as
// were ever pending at a time. They begin with an id of this process's own.
type opKeys struct {
	sync.Mutex
	prefix string
	made   int
	free   map[string]uint64 // and the revisions of their markers
}

func (k *opKeys) take(ctx context.Context, m *Meta) (key string, marker uint64, err error) {
	k.Lock()
	defer k.Unlock()
	for key, marker := range k.free {
		delete(k.free, key)
		return key, marker, nil
	}
	if k.prefix == "" {
		id, err := m.newID(ctx)
		if err != nil {
			return "", 0, err
		}
		k.prefix, k.free = opPrefix+strconv.FormatUint(id, 16)+"-", map[string]uint64{}
	}
	k.made++
	return k.prefix + strconv.Itoa(k.made), 0, nil
}

// giveBack takes a key back whose operation is done, or was not stored.
func (k *opKeys) giveBack(key string, marker uint64) {
	k.Lock()
	defer k.Unlock()
	if k.prefix != "" && strings.HasPrefix(key, k.prefix) {
		k.free[key] = marker
	}
}

// giveBackOps takes the keys of operations back whose batch changed nothing.
func (ns *Namespace) giveBackOps(changes []change) {
	for i := range changes {
		if strings.HasPrefix(changes[i].key, opPrefix) {
			ns.opKeys.giveBack(changes[i].key, changes[i].own)
		}
	}
}

// storeOp makes the change that stores an operation, if paths is still the revision
// of the paths key.
func (ns *Namespace) storeOp(ctx context.Context, op StoreOp, paths uint64) (change, error) {
	key, marker, err := ns.opKeys.take(ctx, ns.m)
	if err != nil {
		return change{}, err
	}
	data, err := seal(key, &metapb.StoreOp{
		Op: uint32(op.Op), OldPath: op.OldPath, NewPath: op.NewPath, File: uint64(op.File), IsDir: op.IsDir,
		Flushed: flushedRecord(op.Flushed), Replaced: flushedRecord(op.Replaced), By: string(ns.m.opts.Node),
	})
	return change{key: key, data: data, check: pathsKey, expected: paths, own: marker}, err
}

func (ns *Namespace) removalOp(ctx context.Context, e *bb.Entry) (change, error) {
	dir, paths, err := ns.pathOf(ctx, e.Parent)
	if err != nil {
		return change{}, gone(err)
	}
	return ns.removalOpIn(ctx, dir, paths, e)
}

// removalOpIn is removalOp for an entry of the directory that has a path.
func (ns *Namespace) removalOpIn(ctx context.Context, dir string, paths uint64, e *bb.Entry) (change, error) {
	op := StoreOp{Op: OpRemove, OldPath: join(dir, e.Name), File: e.File, IsDir: e.IsDir(), Flushed: e.Flushed}
	return ns.storeOp(ctx, op, paths)
}

// StoreOps returns the pending operations in the order in which they happened. One
// that cannot be decoded is counted, logged and left out.
func (ns *Namespace) StoreOps(ctx context.Context) ([]StoreOp, error) {
	found := map[string]record{}
	err := ns.b.scan(ctx, opPrefix+"*", func(r *record) error {
		found[r.key] = *r
		return nil
	})
	if err != nil {
		return nil, opError("store operations", ns.buffer, err)
	}
	ops := make([]StoreOp, 0, len(found))
	for key, r := range found {
		if !r.live() {
			continue
		}
		var m metapb.StoreOp
		if err := open(key, r.data, &m); err != nil {
			ns.m.garbage(key, err)
			continue
		}
		ops = append(ops, StoreOp{
			Seq: r.seq, Op: Op(m.GetOp()), OldPath: m.GetOldPath(), NewPath: m.GetNewPath(), File: bb.FileID(m.GetFile()),
			IsDir: m.GetIsDir(), Flushed: fromFlushed(m.GetFlushed()), Replaced: fromFlushed(m.GetReplaced()), By: bb.NodeID(m.GetBy()),
		})
	}
	slices.SortFunc(ops, func(a, b StoreOp) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	return ops, nil
}

// DoneStoreOp deletes a pending operation. It is idempotent.
func (ns *Namespace) DoneStoreOp(ctx context.Context, seq uint64) error {
	r, err := ns.b.getSeq(ctx, opPrefix+"*", seq)
	if err != nil {
		return opError("store operation", strconv.FormatUint(seq, 10), err)
	}
	if !r.live() {
		return nil
	}
	if !strings.HasPrefix(r.key, opPrefix) {
		return bb.E(bb.Invalid, "store operation", strconv.FormatUint(seq, 10), "is not one")
	}
	marker, err := ns.b.remove(ctx, r.key, seq)
	if errors.Is(err, errConflict) {
		return nil // somebody else did
	}
	if err == nil {
		ns.opKeys.giveBack(r.key, marker)
	}
	return opError("store operation", strconv.FormatUint(seq, 10), err)
}

// getSeq returns the record of a key that matches a filter and has a revision, if
// there still is one.
func (b *bucket) getSeq(ctx context.Context, filter string, seq uint64) (record, error) {
	query := map[string]any{"seq": seq}
	for {
		r, err := b.askDirect(ctx, query)
		if err == nil && r.seq == 0 && b.replicated() {
			err = b.scan(ctx, filter, func(other *record) error { // that copy may lack it
				if other.seq == seq {
					r = *other
				}
				return nil
			})
		}
		if err == nil {
			return r, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return record{}, err
		}
	}
}

// askDirect sends a get to the server that holds the bucket.
func (b *bucket) askDirect(ctx context.Context, query map[string]any) (record, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return record{}, err
	}
	msg, err := b.c.request(ctx, &nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_" + b.name, Data: body})
	if err != nil {
		return record{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return b.message(msg)
	case "404":
		return record{}, nil
	default:
		return record{}, bb.E(bb.Internal, "get", b.name, "server status "+status)
	}
}
