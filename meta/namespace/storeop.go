package namespace

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"forebay/internal/bb"
	"forebay/meta/kv"
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
//
// It belongs to one node, which carries it out: at first to the one whose change it
// was. Another one makes it its own by compare-and-set (TakeOverStoreOps), which gives
// it a new revision: so whoever finds it pending at the revision that it knows still
// owns it.
type StoreOp struct {
	Seq      uint64 // its place in the order: stays
	Revision uint64 // of its record
	Op       Op
	OldPath  string
	NewPath  string // of a rename
	File     bb.FileID
	IsDir    bool
	Flushed  bb.Flushed // what the store held of the file
	Replaced bb.Flushed // what it held under the new path, which the rename replaces there
	Left     bb.Flushed // what it held under the old path of another file, which this one had replaced
	By       bb.NodeID  // who carries it out; "" if nobody said
	// What flushes may have put under the old path and, of a file's rename that the store
	// follows, under the new one, without a record: bb.Entry.Unrecorded.
	Attempts, ReplacedAttempts []bb.Content
	Rest                       string // what newer releases have stored of it, encoded: it is kept
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

func (k *opKeys) take(ctx context.Context, ids IDs) (key string, marker uint64, err error) {
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
func (ns *Namespace) giveBackOps(changes []kv.Change) {
	for i := range changes {
		if strings.HasPrefix(changes[i].Key, opPrefix) {
			ns.opKeys.giveBack(changes[i].Key, changes[i].Own)
		}
	}
}

// storeOp makes the change that stores an operation, if paths is still the revision
// of the paths key.
func (ns *Namespace) storeOp(ctx context.Context, op StoreOp, paths uint64) (kv.Change, error) {
	key, marker, err := ns.opKeys.take(ctx, ns.ids)
	if err != nil {
		return kv.Change{}, err
	}
	op.By = ns.node
	data, err := sealOp(key, &op)
	return kv.Change{Key: key, Data: data, Check: pathsKey, Expected: paths, Own: marker}, err
}

func sealOp(key string, op *StoreOp) ([]byte, error) {
	format := byte(kv.FormatFirst)
	if op.Seq != 0 {
		format = kv.FormatSecond
	}
	return kv.SealAs(format, key, kv.WithRest(&metapb.StoreOp{
		Op: uint32(op.Op), OldPath: op.OldPath, NewPath: op.NewPath, File: uint64(op.File), IsDir: op.IsDir,
		Flushed: flushedRecord(op.Flushed), Replaced: flushedRecord(op.Replaced), By: string(op.By), Seq: op.Seq,
		Left: flushedRecord(op.Left), Attempts: contentRecords(op.Attempts), ReplacedAttempts: contentRecords(op.ReplacedAttempts),
	}, op.Rest))
}

func (ns *Namespace) removalOp(ctx context.Context, e *bb.Entry) (kv.Change, error) {
	dir, paths, err := ns.pathOf(ctx, e.Parent)
	if err != nil {
		return kv.Change{}, gone(err)
	}
	return ns.removalOpIn(ctx, dir, paths, e)
}

// removalOpIn is removalOp for an entry of the directory that has a path.
func (ns *Namespace) removalOpIn(ctx context.Context, dir string, paths uint64, e *bb.Entry) (kv.Change, error) {
	op := StoreOp{
		Op: OpRemove, OldPath: join(dir, e.Name), File: e.File, IsDir: e.IsDir(), Flushed: e.Flushed, Left: e.Replaced,
		Attempts: e.Unrecorded(),
	}
	return ns.storeOp(ctx, op, paths)
}

// StoreOps returns the pending operations in the order in which they happened. One
// that cannot be decoded is counted, logged and left out. bb.Unsupported if there is one
// that only newer releases know. It reads all of them: see PendingOps.
func (ns *Namespace) StoreOps(ctx context.Context) ([]StoreOp, error) {
	ops, _, err := ns.PendingOps().Read(ctx)
	return ops, err
}

// opRecords returns the newest records of all operations by their keys, those that are done
// too, and the last sequence among them.
func (ns *Namespace) opRecords(ctx context.Context) (found map[string]kv.Record, last uint64, err error) {
	found = map[string]kv.Record{}
	err = ns.b.Scan(ctx, opPrefix+"*", func(r *kv.Record) error {
		found[r.Key] = *r
		last = max(last, r.Seq)
		return nil
	})
	return found, last, err
}

// openOps decodes records of operations, by their keys: nil for those that are done or cannot
// be decoded. One that only newer releases know is an error, since what comes after it must not
// overtake it.
func (ns *Namespace) openOps(records map[string]kv.Record) (map[string]*StoreOp, error) {
	ops := make(map[string]*StoreOp, len(records))
	for key, r := range records {
		ops[key] = nil
		if !r.Live() {
			continue
		}
		var m metapb.StoreOp
		err := kv.Open(key, r.Data, &m)
		if bb.KindOf(err) == bb.Unsupported {
			return nil, err
		}
		if err != nil {
			ns.b.Unreadable(key, err)
			continue
		}
		ops[key] = &StoreOp{
			Seq: cmp.Or(m.GetSeq(), r.Seq), Revision: r.Seq, Op: Op(m.GetOp()), OldPath: m.GetOldPath(), NewPath: m.GetNewPath(),
			File: bb.FileID(m.GetFile()), IsDir: m.GetIsDir(), Flushed: fromFlushed(m.GetFlushed()),
			Replaced: fromFlushed(m.GetReplaced()), Left: fromFlushed(m.GetLeft()), By: bb.NodeID(m.GetBy()),
			Attempts: fromContents(m.GetAttempts()), ReplacedAttempts: fromContents(m.GetReplacedAttempts()),
			Rest: kv.Rest(&m),
		}
	}
	return ops, nil
}

// TakeOverStoreOps makes the pending operations of another node this node's own,
// each by compare-and-set, and returns how many. Their order stays. Those that the other
// one strikes out first, or somebody else takes over, are left to them. After an error
// it is repeated.
func (ns *Namespace) TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error) {
	const what = "take over store operations"
	follower := ns.pendingOps()
	if _, _, err := follower.Read(ctx); err != nil {
		return 0, bb.Wrap(what, ns.buffer, err)
	}
	for key, op := range follower.byKey {
		if op.By != from {
			continue
		}
		op.By = ns.node
		data, err := sealOp(key, &op)
		if err == nil {
			_, err = ns.b.Put(ctx, key, data, op.Revision)
		}
		if errors.Is(err, kv.ErrRevision) {
			continue
		}
		if err != nil {
			return taken, kv.Wrap(what, ns.buffer, err)
		}
		taken++
	}
	return taken, nil
}

// StoreOpPending reports whether an operation is still pending at a revision: nobody
// has carried it out or taken it over.
func (ns *Namespace) StoreOpPending(ctx context.Context, revision uint64) (bool, error) {
	r, err := ns.opAt(ctx, revision)
	return err == nil && r.Live(), err
}

func (ns *Namespace) opAt(ctx context.Context, revision uint64) (kv.Record, error) {
	r, err := ns.b.GetSeq(ctx, opPrefix+"*", revision)
	if err == nil && r.Live() && !strings.HasPrefix(r.Key, opPrefix) {
		return kv.Record{}, bb.E(bb.Invalid, "store operation", strconv.FormatUint(revision, 10), "is not one")
	}
	return r, kv.Wrap("store operation", strconv.FormatUint(revision, 10), err)
}

// DoneStoreOp deletes a pending operation at a revision, and reports whether it was
// there: it is not if this was done before, or if another node has taken it over.
func (ns *Namespace) DoneStoreOp(ctx context.Context, revision uint64) (bool, error) {
	r, err := ns.opAt(ctx, revision)
	if err != nil || !r.Live() {
		return false, err
	}
	marker, err := ns.b.Remove(ctx, r.Key, revision)
	if errors.Is(err, kv.ErrRevision) {
		return false, nil
	}
	if err == nil {
		ns.opKeys.giveBack(r.Key, marker)
	}
	return err == nil, kv.Wrap("store operation", strconv.FormatUint(revision, 10), err)
}
