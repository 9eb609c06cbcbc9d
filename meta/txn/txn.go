// Package txn has the transactions of a namespace: their records, the change that decides, the
// union for readers until the output has its final places, and the moves to these. It must never
// know how a namespace stores an entry, nor where a file's bytes lie. It moves entries with a
// Mover, and needs of an engine Namespace and Records, whose conformance suite is txntest.
//
// internal/bb/txn.go draws the states of a transaction. Its files lie in the tree as all files do, below a hidden directory:
//
//	.txn/ID/attempt/TASK/ATTEMPT/…   files of attempts
//	.txn/ID/output/…                 adopted files, in one tree
//
// and their records in a key space of their own, each changed by compare-and-set:
//
//	t.ID.run          the transaction. It changes with its state alone
//	t.ID.lease        rewritten at each sign of life of the client
//	t.ID.task.TASK    the attempt that is the task's output; made by a batch that checks
//	                  t.ID.run, so none is made once its state is committing
//
// The decision is one batch of
//
//	t.ID.run              committing → replacing or folding
//	x.decided             rewritten, for concurrent listings
//	e.PARENT.DESTINATION  names the transaction
//
// Every walk to something below the destination reads its entry. No other entry leads a reader to the transaction, so other paths pay
// nothing for it. From then on readers look into the output too (overlay.go), until it is folded (materialize.go).
package txn

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/namespace"
	"forebay/meta/retry"
)

const (
	txnPrefix  = "t."
	decidedKey = "x.decided"

	attemptDir = "attempt"
	outputDir  = "output"

	maxTxnKey     = 1 << 10
	maxReplaced   = 20_000
	defaultLease  = 10 * time.Minute
	shortestLease = 100 * time.Millisecond
)

func txnKey(id bb.TxnID) string      { return txnPrefix + id.String() + ".run" }
func txnLeaseKey(id bb.TxnID) string { return txnPrefix + id.String() + ".lease" }

func txnTaskKey(id bb.TxnID, task string) string {
	return string(kv.AppendToken([]byte(txnPrefix+id.String()+".task."), task))
}

func parseTxnKey(key string) (bb.TxnID, bool) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(key, txnPrefix), ".run")
	if !ok {
		return 0, false
	}
	id, err := bb.ParseTxnID(name)
	return id, err == nil
}

func sealTxn(t *bb.Txn) ([]byte, error) {
	return kv.Seal(txnKey(t.ID), kv.WithRest(&metapb.Txn{
		State: string(t.State), Destination: t.Destination, Dir: uint64(t.Dir), Key: t.Key, Uid: t.UID, Gid: t.GID,
		Lease: int64(t.Lease), Created: kv.Nanos(t.Created), Ended: kv.Nanos(t.Ended), Replace: t.Replace, Output: uint64(t.Output), Reason: t.Reason,
	}, t.Rest))
}

func openTxn(r *kv.Record) (bb.Txn, error) {
	id, ok := parseTxnKey(r.Key)
	if !ok {
		return bb.Txn{}, bb.E(bb.Checksum, "decode", r.Key, "is not a transaction's key")
	}
	var m metapb.Txn
	if err := kv.Open(r.Key, r.Data, &m); err != nil {
		return bb.Txn{}, err
	}
	return bb.Txn{
		ID: id, State: bb.TxnState(m.GetState()), Destination: m.GetDestination(), Dir: bb.DirID(m.GetDir()), Key: m.GetKey(),
		UID: m.GetUid(), GID: m.GetGid(), Lease: time.Duration(m.GetLease()), Created: kv.FromNanos(m.Created), Ended: kv.FromNanos(m.Ended),
		Replace: m.GetReplace(), Output: bb.DirID(m.GetOutput()), Reason: m.GetReason(), Revision: r.Seq, Rest: kv.Rest(&m),
	}, nil
}

// Transactions are those of one namespace. It is safe for concurrent use. All users of one process
// share one Transactions a namespace.
type Transactions struct {
	ns      Namespace
	records Records
	sole    bool // this process alone decides

	decisions atomic.Uint64 // of transactions, by this process
	decided   atomic.Uint64 // a revision that the decided key has had
	replacing atomic.Pointer[replacements]
}

// New returns the transactions of a namespace, which has their records.
func New(ns Namespace, records Records) *Transactions {
	return &Transactions{ns: ns, records: records, sole: ns.SoleWriter()}
}

// Tree is a namespace with its transactions.
type Tree struct {
	namespace.Tree
	*Transactions
}

// BeginTxn begins a transaction into t.Destination, a directory whose id is t.Dir, for the user and
// with the key and lease of t, and returns it. The same user's same key is the same transaction. It
// is returned in any state. If that has another destination, it is Exists.
func (x *Transactions) BeginTxn(ctx context.Context, t bb.Txn) (bb.Txn, error) {
	const op = "begin transaction"
	switch {
	case t.Dir == 0 || t.Dir == bb.RootDir || t.Destination == "":
		return t, bb.E(bb.Invalid, op, t.Destination, "its destination has to be a directory below the root of the buffer")
	case bb.Hidden(t.Destination):
		return t, bb.E(bb.Invalid, op, t.Destination, "its destination is a directory of transactions")
	case len(t.Key) > maxTxnKey:
		return t, bb.E(bb.Invalid, op, fmt.Sprintf("%.64q", t.Key), fmt.Sprintf("a key has at most %d bytes", maxTxnKey))
	case t.Lease != 0 && t.Lease < shortestLease:
		return t, bb.E(bb.Invalid, op, t.Lease.String(), "the lease is too short")
	}
	if t.Lease == 0 {
		t.Lease = defaultLease
	}
	if t.ID = bb.TxnIDOf(t.UID, t.Key); t.Key == "" {
		t.ID = bb.TxnID(max(kv.Random64(), 1))
	}
	t.State, t.Created = bb.TxnOpen, time.Now().Round(0).UTC()
	now, err := x.createTxn(ctx, t)
	if err != nil {
		return t, kv.Wrap(op, t.Destination, err)
	}
	if now.Dir != t.Dir && !now.State.Decided() {
		return now, otherTxn(&t, &now)
	}
	return now, x.goOn(ctx, &t, &now)
}

// BegunTxn returns the transaction of the user's key of t, in any state, if it was begun. Exists if
// it has another destination.
func (x *Transactions) BegunTxn(ctx context.Context, t bb.Txn) (now bb.Txn, begun bool, err error) {
	if t.Key == "" {
		return t, false, nil
	}
	now, err = x.Txn(ctx, bb.TxnIDOf(t.UID, t.Key))
	if errors.Is(err, bb.NotFound) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	return now, true, x.goOn(ctx, &t, &now)
}

func otherTxn(t, now *bb.Txn) error {
	return bb.E(bb.Exists, "begin transaction", t.Destination, "the key is that of transaction "+now.ID.String()+", into "+now.Destination).
		WithRemedy("use another key, or abort that one")
}

// goOn continues the existing transaction of t's id.
func (x *Transactions) goOn(ctx context.Context, t, now *bb.Txn) error {
	if now.UID != t.UID || now.Key != t.Key || now.Destination != t.Destination {
		return otherTxn(t, now)
	}
	if now.State != bb.TxnOpen {
		return nil
	}
	return bb.Wrap("begin transaction", t.Destination, x.makeTxnDirs(ctx, now))
}

// createTxn stores a transaction, or returns the present one.
func (x *Transactions) createTxn(ctx context.Context, t bb.Txn) (bb.Txn, error) {
	data, err := sealTxn(&t)
	if err != nil {
		return t, err
	}
	seq, there, err := x.records.Create(ctx, txnKey(t.ID), data, 0)
	if errors.Is(err, kv.ErrRevision) {
		return openTxn(&there)
	}
	t.Revision = seq
	return t, err
}

// makeTxnDirs makes the hidden tree. The directory of all transactions has no owner.
func (x *Transactions) makeTxnDirs(ctx context.Context, t *bb.Txn) error {
	if _, err := x.ns.MkdirAll(ctx, bb.HiddenDir, namespace.Owner{Mode: 0o711}); err != nil {
		return err
	}
	for _, dir := range []string{attemptDir, outputDir} {
		if _, err := x.ns.MkdirAll(ctx, t.Path()+"/"+dir, namespace.Owner{UID: t.UID, GID: t.GID, Mode: 0o700}); err != nil {
			return err
		}
	}
	return nil
}

// Txn returns a transaction. If there is none, or it was deleted, it is NotFound.
func (x *Transactions) Txn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "transaction"
	r, err := x.records.Get(ctx, txnKey(id))
	if err != nil {
		return bb.Txn{}, kv.Wrap(op, id.String(), err)
	}
	if !r.Live() {
		return bb.Txn{}, bb.E(bb.NotFound, op, id.String(), "there is no such transaction").
			WithRemedy("finished transactions are removed after a day")
	}
	return openTxn(&r)
}

// Txns returns all transactions, the newest first.
func (x *Transactions) Txns(ctx context.Context) ([]bb.Txn, error) {
	found := map[bb.TxnID]bb.Txn{}
	seqs := map[string]uint64{}
	err := x.records.Scan(ctx, txnPrefix+"*.run", func(r *kv.Record) error {
		id, ok := parseTxnKey(r.Key)
		if !ok || r.Seq < seqs[r.Key] {
			return nil
		}
		seqs[r.Key] = r.Seq
		delete(found, id)
		if !r.Live() {
			return nil
		}
		t, err := openTxn(r)
		if err != nil {
			x.records.Unreadable(r.Key, err)
			return nil
		}
		found[id] = t
		return nil
	})
	if err != nil {
		return nil, kv.Wrap("transactions", x.ns.Buffer(), err)
	}
	all := make([]bb.Txn, 0, len(found))
	for _, t := range found {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b bb.Txn) int { return b.Created.Compare(a.Created) })
	return all, nil
}

// TxnTasks returns the adopted attempt of each task.
func (x *Transactions) TxnTasks(ctx context.Context, id bb.TxnID) (map[string]string, error) {
	tasks := map[string]string{}
	err := x.eachTask(ctx, id, func(task string, t *metapb.TxnTask) { tasks[task] = t.GetAttempt() })
	return tasks, err
}

// eachTask calls fn with the adopted tasks. One may come again, with a newer record.
func (x *Transactions) eachTask(ctx context.Context, id bb.TxnID, fn func(string, *metapb.TxnTask)) error {
	err := x.records.Scan(ctx, txnPrefix+id.String()+".task.*", func(r *kv.Record) error {
		task, ok := kv.DecodeToken(r.Key[strings.LastIndexByte(r.Key, '.')+1:])
		if !ok || !r.Live() {
			return nil
		}
		var m metapb.TxnTask
		if err := kv.Open(r.Key, r.Data, &m); err != nil {
			x.records.Unreadable(r.Key, err)
			return nil
		}
		fn(task, &m)
		return nil
	})
	return kv.Wrap("transaction", id.String(), err)
}

// noteMerged records that all of a task is in the output.
func (x *Transactions) noteMerged(ctx context.Context, id bb.TxnID, task string) error {
	t, seq, err := x.txnTask(ctx, id, task)
	if err != nil || t.GetAttempt() == "" || t.GetMerged() {
		return err
	}
	key := txnTaskKey(id, task)
	t.Merged = true
	data, err := kv.Seal(key, t)
	if err != nil {
		return err
	}
	// A faster process has recorded the same, or has deleted the task.
	return kv.Wrap("transaction", id.String(), kv.IgnoreConflict(x.records.Put(ctx, key, data, seq)))
}

// TxnTask returns the adopted attempt of a task, "" if none is.
func (x *Transactions) TxnTask(ctx context.Context, id bb.TxnID, task string) (string, error) {
	t, _, err := x.txnTask(ctx, id, task)
	return t.GetAttempt(), err
}

func (x *Transactions) txnTask(ctx context.Context, id bb.TxnID, task string) (t *metapb.TxnTask, seq uint64, err error) {
	key := txnTaskKey(id, task)
	t = &metapb.TxnTask{}
	r, err := x.records.Get(ctx, key)
	if err != nil || !r.Live() {
		return t, r.Seq, kv.Wrap("transaction", id.String(), err)
	}
	return t, r.Seq, kv.Open(key, r.Data, t)
}

// RenewTxn extends a transaction's lease. Cancelled if it was aborted.
func (x *Transactions) RenewTxn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "renew transaction"
	t, err := x.Txn(ctx, id)
	if err != nil || t.State.Decided() {
		return t, err
	}
	if t.State == bb.TxnAborted {
		return t, aborted(op, &t)
	}
	r, err := x.records.Get(ctx, txnLeaseKey(id))
	if err == nil {
		// A faster process has renewed it as well.
		err = kv.IgnoreConflict(x.records.Put(ctx, txnLeaseKey(id), []byte("-"), r.Seq))
	}
	return t, kv.Wrap(op, id.String(), err)
}

// TxnLease returns a number that changes whenever a transaction's lease is renewed.
func (x *Transactions) TxnLease(ctx context.Context, id bb.TxnID) (uint64, error) {
	r, err := x.records.Get(ctx, txnLeaseKey(id))
	return r.Seq, kv.Wrap("transaction", id.String(), err)
}

func aborted(op string, t *bb.Txn) error {
	why := "the transaction was aborted"
	if t.Reason != "" {
		why += ": " + t.Reason
	}
	return bb.E(bb.Cancelled, op, t.ID.String(), why).WithRemedy("begin another one")
}

// AdoptTxn makes an attempt's files the output of a task, unless another attempt's are. It returns
// the attempt of these files. It returns Cancelled if the transaction was aborted, and Busy if it
// is being committed, or was, without this task.
func (x *Transactions) AdoptTxn(ctx context.Context, id bb.TxnID, task, attempt string) (winner string, err error) {
	const op = "adopt"
	if err := errors.Join(bb.CheckName(task), bb.CheckName(attempt)); err != nil {
		return "", err
	}
	key := txnTaskKey(id, task)
	data, err := kv.Seal(key, &metapb.TxnTask{Attempt: attempt})
	if err != nil {
		return "", err
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		t, err := x.Txn(ctx, id)
		if err != nil {
			return "", err
		}
		if t.State == bb.TxnAborted {
			return "", aborted(op, &t)
		}
		there, seq, err := x.txnTask(ctx, id, task)
		if err != nil || there.GetAttempt() != "" {
			return there.GetAttempt(), err
		}
		if t.State != bb.TxnOpen {
			return "", bb.E(bb.Busy, op, task, "the transaction is "+string(t.State)+", and no task is adopted any more")
		}
		_, err = x.records.Commit(ctx, []kv.Change{
			kv.Check(txnKey(id), t.Revision),
			{Key: key, Data: data, Expected: seq},
		})
		if err == nil {
			return attempt, nil
		}
		if !errors.Is(err, kv.ErrRevision) {
			return "", kv.Wrap(op, task, err)
		}
	}
	return "", kv.Wrap(op, task, kv.ErrRevision)
}

// CommitTxn has no attempt adopted any more, if the transaction is open, and returns it. Replace
// are paths below the destination, "." for itself. Those of the first call count.
func (x *Transactions) CommitTxn(ctx context.Context, id bb.TxnID, replace []string) (bb.Txn, error) {
	const op = "commit transaction"
	if len(replace) > maxReplaced {
		return bb.Txn{}, bb.E(bb.Invalid, op, id.String(), fmt.Sprintf("it replaces more than %d directories", maxReplaced))
	}
	cleaned := make([]string, 0, len(replace))
	for _, p := range replace {
		p, err := bb.CleanPath(p)
		if err != nil {
			return bb.Txn{}, bb.Wrap(op, p, err)
		}
		cleaned = append(cleaned, p)
	}
	return x.changeTxn(ctx, op, id, func(t *bb.Txn) (bool, error) {
		if t.State == bb.TxnAborted {
			return false, aborted(op, t)
		}
		if t.State != bb.TxnOpen {
			return false, nil
		}
		t.State, t.Replace = bb.TxnCommitting, outermost(cleaned)
		return true, nil
	})
}

// outermost leaves out paths below another of the paths.
func outermost(paths []string) []string {
	slices.Sort(paths)
	set := map[string]bool{}
	var out []string
	for _, p := range paths {
		covered := set[""] || set[p]
		for dir := path.Dir(p); dir != "." && !covered; dir = path.Dir(dir) {
			covered = set[dir]
		}
		if !covered {
			set[p] = true
			out = append(out, p)
		}
	}
	return out
}

// AbortTxn ends a transaction that is not decided. Busy if it is. Its remains are
// removed with CleanTxn.
func (x *Transactions) AbortTxn(ctx context.Context, id bb.TxnID, reason string) (bb.Txn, error) {
	const op = "abort transaction"
	return x.changeTxn(ctx, op, id, func(t *bb.Txn) (bool, error) {
		if t.State.Decided() {
			return false, bb.E(bb.Busy, op, id.String(), "it has been committed")
		}
		if t.State == bb.TxnAborted {
			return false, nil
		}
		t.State, t.Reason, t.Ended = bb.TxnAborted, reason, time.Now().Round(0).UTC()
		return true, nil
	})
}

// changeTxn changes a transaction's record by compare-and-set, if change returns true.
func (x *Transactions) changeTxn(ctx context.Context, op string, id bb.TxnID, change func(*bb.Txn) (bool, error)) (bb.Txn, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		t, err := x.Txn(ctx, id)
		if err != nil {
			return t, err
		}
		changed, err := change(&t)
		if err != nil || !changed {
			return t, err
		}
		data, err := sealTxn(&t)
		if err != nil {
			return t, err
		}
		if t.Revision, err = x.records.Put(ctx, txnKey(id), data, t.Revision); !errors.Is(err, kv.ErrRevision) {
			return t, kv.Wrap(op, id.String(), err)
		}
	}
	return bb.Txn{}, kv.Wrap(op, id.String(), kv.ErrRevision)
}

// DecideTxn is the step that commits. Before it nothing of the transaction is visible, after it
// all. All adopted files are in the output. It returns the decided transaction, by any decider. An
// error of type *Unfolded names the transaction that is in the way. NotFound means that the
// destination is gone, and Cancelled that it was aborted.
func (x *Transactions) DecideTxn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "commit transaction"
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		t, err := x.tryDecide(ctx, id)
		if !errors.Is(err, kv.ErrRevision) {
			return t, kv.Wrap(op, id.String(), err)
		}
	}
	return bb.Txn{}, kv.Wrap(op, id.String(), kv.ErrRevision)
}

func (x *Transactions) tryDecide(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "commit transaction"
	t, err := x.Txn(ctx, id)
	switch {
	case err != nil || t.State.Decided():
		return t, err
	case t.State == bb.TxnAborted:
		return t, aborted(op, &t)
	case t.State != bb.TxnCommitting:
		return t, bb.E(bb.Internal, op, id.String(), "it is "+string(t.State))
	}
	e, err := x.ns.EntryOf(ctx, t.Dir)
	if errors.Is(err, bb.NotFound) {
		return t, bb.E(bb.NotFound, op, t.Destination, "the destination has been removed").WithRemedy("abort the transaction")
	}
	if err != nil {
		return t, err
	}
	if e.Txn != 0 {
		return t, &namespace.Unfolded{ID: e.Txn}
	}
	output, err := x.ns.Resolve(ctx, t.Path()+"/"+outputDir)
	if err != nil {
		return t, err
	}
	decided, err := x.records.Get(ctx, decidedKey)
	if err != nil {
		return t, err
	}
	t.State, t.Output, t.Ended = bb.TxnFolding, output.Dir, time.Now().Round(0).UTC()
	if len(t.Replace) > 0 {
		t.State = bb.TxnReplacing
	}
	marked := e
	marked.Txn = id
	run, err := sealTxn(&t)
	if err != nil {
		return t, err
	}
	err = x.ns.PutWith(
		ctx, &marked,
		kv.Change{Key: txnKey(id), Data: run, Expected: t.Revision},
		kv.Change{Key: decidedKey, Data: []byte("-"), Expected: decided.Seq},
	)
	x.decisions.Add(1)
	if err != nil {
		return t, err
	}
	return x.Txn(ctx, id)
}

// ForgetTxn deletes the records of a transaction that is over and of which nothing is left.
func (x *Transactions) ForgetTxn(ctx context.Context, id bb.TxnID) error {
	const op = "forget transaction"
	t, err := x.Txn(ctx, id)
	if errors.Is(err, bb.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !t.State.Over() {
		return bb.E(bb.Busy, op, id.String(), "it is "+string(t.State))
	}
	if err := x.forgetTasks(ctx, id); err != nil {
		return err
	}
	return kv.Wrap(op, id.String(), kv.IgnoreConflict(x.records.Remove(ctx, txnKey(id), t.Revision)))
}

// forgetTasks deletes the records that only a transaction which is not over needs.
func (x *Transactions) forgetTasks(ctx context.Context, id bb.TxnID) error {
	var keys []kv.Record
	err := x.records.Scan(ctx, txnPrefix+id.String()+".>", func(r *kv.Record) error {
		if r.Live() && r.Key != txnKey(id) {
			keys = append(keys, *r)
		}
		return nil
	})
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(breadth)
	for i := 0; i < len(keys) && err == nil; i++ {
		g.Go(func() error { return kv.IgnoreConflict(x.records.Remove(gctx, keys[i].Key, keys[i].Seq)) })
	}
	return kv.Wrap("forget transaction", id.String(), errors.Join(err, g.Wait()))
}
