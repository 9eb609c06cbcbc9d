package meta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// Transactions of a namespace (internal/bb/txn.go draws their states). What they are
// about lies in the tree as everything does, below a hidden directory:
//
//	.txn/ID/attempt/TASK/ATTEMPT/…   what attempts write
//	.txn/ID/output/…                 what was adopted, in one tree
//
// and their records in a key space of their own, each changed by compare-and-set:
//
//	t.ID.run          the transaction. It changes with its state alone
//	t.ID.lease        rewritten whenever the client says that it lives
//	t.ID.task.TASK    the attempt that is the task's output; made by a batch that checks
//	                  t.ID.run, so none is made once that says committing
//
// What decides is one batch of
//
//	t.ID.run              committing → replacing or folding
//	x.decided             rewritten, for whoever has been listing meanwhile
//	e.PARENT.DESTINATION  names the transaction
//
// Every walk to something below the destination reads its entry: there and nowhere else
// does a reader learn of the transaction, so it costs nothing where there is none. From then
// on readers look into the output too (overlay.go), until it is folded (fold.go).
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

// BeginTxn begins a transaction into t.Destination, a directory whose id is t.Dir, for
// the user and with the key and lease of t, and returns it. The same user's same key is
// the same transaction: it is returned in whatever state it is. Exists if that has another
// destination.
func (ns *Namespace) BeginTxn(ctx context.Context, t bb.Txn) (bb.Txn, error) {
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
	now, err := ns.createTxn(ctx, t)
	if err != nil {
		return t, kv.Wrap(op, t.Destination, err)
	}
	if now.Dir != t.Dir && !now.State.Decided() {
		return now, otherTxn(&t, &now)
	}
	return now, ns.goOn(ctx, &t, &now)
}

// BegunTxn returns the transaction of the user's key of t, in whatever state it is, if it was
// begun. Exists if it has another destination.
func (ns *Namespace) BegunTxn(ctx context.Context, t bb.Txn) (now bb.Txn, begun bool, err error) {
	if t.Key == "" {
		return t, false, nil
	}
	now, err = ns.Txn(ctx, bb.TxnIDOf(t.UID, t.Key))
	if errors.Is(err, bb.NotFound) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	return now, true, ns.goOn(ctx, &t, &now)
}

func otherTxn(t, now *bb.Txn) error {
	return bb.E(bb.Exists, "begin transaction", t.Destination, "the key is that of transaction "+now.ID.String()+", into "+now.Destination).
		WithRemedy("use another key, or abort that one")
}

// goOn has whoever wants to begin t go on with what there is of the same id.
func (ns *Namespace) goOn(ctx context.Context, t, now *bb.Txn) error {
	if now.UID != t.UID || now.Key != t.Key || now.Destination != t.Destination {
		return otherTxn(t, now)
	}
	if now.State != bb.TxnOpen {
		return nil
	}
	return bb.Wrap("begin transaction", t.Destination, ns.makeTxnDirs(ctx, now))
}

// createTxn stores a transaction, or returns the one that there is.
func (ns *Namespace) createTxn(ctx context.Context, t bb.Txn) (bb.Txn, error) {
	data, err := sealTxn(&t)
	if err != nil {
		return t, err
	}
	seq, there, err := ns.b.Create(ctx, txnKey(t.ID), data, 0)
	if errors.Is(err, kv.ErrRevision) {
		return openTxn(&there)
	}
	t.Revision = seq
	return t, err
}

// makeTxnDirs makes the hidden tree. The directory of all transactions is nobody's.
func (ns *Namespace) makeTxnDirs(ctx context.Context, t *bb.Txn) error {
	if _, err := ns.enter(ctx, bb.RootDir, bb.HiddenDir, Owner{Mode: 0o711}); err != nil {
		return err
	}
	for _, dir := range []string{attemptDir, outputDir} {
		if _, err := ns.MkdirAll(ctx, t.Path()+"/"+dir, Owner{UID: t.UID, GID: t.GID, Mode: 0o700}); err != nil {
			return err
		}
	}
	return nil
}

// Txn returns a transaction. NotFound if there is none, or it was forgotten.
func (ns *Namespace) Txn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "transaction"
	r, err := ns.b.Get(ctx, txnKey(id))
	if err != nil {
		return bb.Txn{}, kv.Wrap(op, id.String(), err)
	}
	if !r.Live() {
		return bb.Txn{}, bb.E(bb.NotFound, op, id.String(), "there is no such transaction").
			WithRemedy("one that is over is forgotten after a day")
	}
	return openTxn(&r)
}

// Txns returns all transactions, the newest first.
func (ns *Namespace) Txns(ctx context.Context) ([]bb.Txn, error) {
	found := map[bb.TxnID]bb.Txn{}
	seqs := map[string]uint64{}
	err := ns.b.Scan(ctx, txnPrefix+"*.run", func(r *kv.Record) error {
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
			ns.b.Unreadable(r.Key, err)
			return nil
		}
		found[id] = t
		return nil
	})
	if err != nil {
		return nil, kv.Wrap("transactions", ns.buffer, err)
	}
	all := make([]bb.Txn, 0, len(found))
	for _, t := range found {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b bb.Txn) int { return b.Created.Compare(a.Created) })
	return all, nil
}

// TxnTasks returns the adopted attempt of each task.
func (ns *Namespace) TxnTasks(ctx context.Context, id bb.TxnID) (map[string]string, error) {
	tasks := map[string]string{}
	err := ns.eachTask(ctx, id, func(task string, t *metapb.TxnTask) { tasks[task] = t.GetAttempt() })
	return tasks, err
}

// eachTask calls fn with the adopted tasks. One may come again, with a newer record.
func (ns *Namespace) eachTask(ctx context.Context, id bb.TxnID, fn func(string, *metapb.TxnTask)) error {
	err := ns.b.Scan(ctx, txnPrefix+id.String()+".task.*", func(r *kv.Record) error {
		task, ok := kv.DecodeToken(r.Key[strings.LastIndexByte(r.Key, '.')+1:])
		if !ok || !r.Live() {
			return nil
		}
		var m metapb.TxnTask
		if err := kv.Open(r.Key, r.Data, &m); err != nil {
			ns.b.Unreadable(r.Key, err)
			return nil
		}
		fn(task, &m)
		return nil
	})
	return kv.Wrap("transaction", id.String(), err)
}

// noteMerged notes that all of a task is in the output.
func (ns *Namespace) noteMerged(ctx context.Context, id bb.TxnID, task string) error {
	t, seq, err := ns.txnTask(ctx, id, task)
	if err != nil || t.GetAttempt() == "" || t.GetMerged() {
		return err
	}
	key := txnTaskKey(id, task)
	t.Merged = true
	data, err := kv.Seal(key, t)
	if err != nil {
		return err
	}
	// Whoever was faster has noted the same, or has forgotten the task.
	return kv.Wrap("transaction", id.String(), kv.IgnoreConflict(ns.b.Put(ctx, key, data, seq)))
}

// TxnTask returns the adopted attempt of a task, "" if none is.
func (ns *Namespace) TxnTask(ctx context.Context, id bb.TxnID, task string) (string, error) {
	t, _, err := ns.txnTask(ctx, id, task)
	return t.GetAttempt(), err
}

func (ns *Namespace) txnTask(ctx context.Context, id bb.TxnID, task string) (t *metapb.TxnTask, seq uint64, err error) {
	key := txnTaskKey(id, task)
	t = &metapb.TxnTask{}
	r, err := ns.b.Get(ctx, key)
	if err != nil || !r.Live() {
		return t, r.Seq, kv.Wrap("transaction", id.String(), err)
	}
	return t, r.Seq, kv.Open(key, r.Data, t)
}

// RenewTxn says that a transaction's client lives. Cancelled if it was aborted.
func (ns *Namespace) RenewTxn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "renew transaction"
	t, err := ns.Txn(ctx, id)
	if err != nil || t.State.Decided() {
		return t, err
	}
	if t.State == bb.TxnAborted {
		return t, aborted(op, &t)
	}
	r, err := ns.b.Get(ctx, txnLeaseKey(id))
	if err == nil {
		// Whoever was faster has renewed it as well.
		err = kv.IgnoreConflict(ns.b.Put(ctx, txnLeaseKey(id), []byte("-"), r.Seq))
	}
	return t, kv.Wrap(op, id.String(), err)
}

// TxnLease returns a number that changes whenever a transaction's lease is renewed.
func (ns *Namespace) TxnLease(ctx context.Context, id bb.TxnID) (uint64, error) {
	r, err := ns.b.Get(ctx, txnLeaseKey(id))
	return r.Seq, kv.Wrap("transaction", id.String(), err)
}

func aborted(op string, t *bb.Txn) error {
	why := "the transaction was aborted"
	if t.Reason != "" {
		why += ": " + t.Reason
	}
	return bb.E(bb.Cancelled, op, t.ID.String(), why).WithRemedy("begin another one")
}

// AdoptTxn makes an attempt's files the output of a task, unless another attempt's are:
// the attempt whose files they are is returned. Cancelled if the transaction was aborted;
// Busy if it is being committed, or was, without this task.
func (ns *Namespace) AdoptTxn(ctx context.Context, id bb.TxnID, task, attempt string) (winner string, err error) {
	const op = "adopt"
	if err := errors.Join(bb.CheckName(task), bb.CheckName(attempt)); err != nil {
		return "", err
	}
	key := txnTaskKey(id, task)
	data, err := kv.Seal(key, &metapb.TxnTask{Attempt: attempt})
	if err != nil {
		return "", err
	}
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		t, err := ns.Txn(ctx, id)
		if err != nil {
			return "", err
		}
		if t.State == bb.TxnAborted {
			return "", aborted(op, &t)
		}
		there, seq, err := ns.txnTask(ctx, id, task)
		if err != nil || there.GetAttempt() != "" {
			return there.GetAttempt(), err
		}
		if t.State != bb.TxnOpen {
			return "", bb.E(bb.Busy, op, task, "the transaction is "+string(t.State)+", and no task is adopted any more")
		}
		_, err = ns.b.Commit(ctx, []kv.Change{
			{Key: checkKey, Data: []byte("-"), Check: txnKey(id), Expected: t.Revision},
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

// CommitTxn has no attempt adopted any more, if the transaction is open, and returns it.
// Replace are paths below the destination, "." for itself: those of the first call count.
func (ns *Namespace) CommitTxn(ctx context.Context, id bb.TxnID, replace []string) (bb.Txn, error) {
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
	return ns.changeTxn(ctx, op, id, func(t *bb.Txn) (bool, error) {
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

// outermost leaves out what lies below another of the paths.
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

// AbortTxn ends a transaction that is not decided. Busy if it is. What it leaves is
// removed with CleanTxn.
func (ns *Namespace) AbortTxn(ctx context.Context, id bb.TxnID, reason string) (bb.Txn, error) {
	const op = "abort transaction"
	return ns.changeTxn(ctx, op, id, func(t *bb.Txn) (bool, error) {
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

// changeTxn changes a transaction's record by compare-and-set, if change says so.
func (ns *Namespace) changeTxn(ctx context.Context, op string, id bb.TxnID, change func(*bb.Txn) (bool, error)) (bb.Txn, error) {
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		t, err := ns.Txn(ctx, id)
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
		if t.Revision, err = ns.b.Put(ctx, txnKey(id), data, t.Revision); !errors.Is(err, kv.ErrRevision) {
			return t, kv.Wrap(op, id.String(), err)
		}
	}
	return bb.Txn{}, kv.Wrap(op, id.String(), kv.ErrRevision)
}

// Unfolded is the error of what has to wait until another transaction, which is committed
// into the same directory, is folded.
type Unfolded struct{ ID bb.TxnID }

// Error says so.
func (e *Unfolded) Error() string { return "transaction " + e.ID.String() + " has to be folded first" }

// Is makes it one of kind Busy.
func (e *Unfolded) Is(target error) bool { return target == bb.Busy }

// DecideTxn is the step that commits: before it nothing of the transaction is to be seen,
// after it all. All that was adopted is in the output. It returns the transaction, decided
// by whomever. An error of type *Unfolded names the transaction that is in the way; NotFound:
// the destination is gone; Cancelled: it was aborted.
func (ns *Namespace) DecideTxn(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "commit transaction"
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		t, err := ns.tryDecide(ctx, id)
		if !errors.Is(err, kv.ErrRevision) {
			return t, kv.Wrap(op, id.String(), err)
		}
	}
	return bb.Txn{}, kv.Wrap(op, id.String(), kv.ErrRevision)
}

func (ns *Namespace) tryDecide(ctx context.Context, id bb.TxnID) (bb.Txn, error) {
	const op = "commit transaction"
	t, err := ns.Txn(ctx, id)
	switch {
	case err != nil || t.State.Decided():
		return t, err
	case t.State == bb.TxnAborted:
		return t, aborted(op, &t)
	case t.State != bb.TxnCommitting:
		return t, bb.E(bb.Internal, op, id.String(), "it is "+string(t.State))
	}
	e, err := ns.EntryOf(ctx, t.Dir)
	if errors.Is(err, bb.NotFound) {
		return t, bb.E(bb.NotFound, op, t.Destination, "the destination has been removed").WithRemedy("abort the transaction")
	}
	if err != nil {
		return t, err
	}
	if e.Txn != 0 {
		return t, &Unfolded{e.Txn}
	}
	output, err := ns.Resolve(ctx, t.Path()+"/"+outputDir)
	if err != nil {
		return t, err
	}
	decided, err := ns.b.Get(ctx, decidedKey)
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
	key := entryKey(e.Parent, e.Name)
	entry, err := sealEntry(key, &marked)
	if err != nil {
		return t, err
	}
	changes := []kv.Change{
		{Key: txnKey(id), Data: run, Expected: t.Revision},
		{Key: decidedKey, Data: []byte("-"), Expected: decided.Seq},
		{Key: key, Data: entry, Expected: e.Revision},
	}
	err = ns.commit(ctx, changes, []entryChange{{entryID{e.Parent, e.Name}, 2, &marked}}, nil)
	ns.decisions.Add(1)
	if errors.Is(err, kv.ErrRevision) {
		ns.entries.forget(entryID{e.Parent, e.Name})
		ns.dirs.forget(t.Dir)
	}
	if err != nil {
		return t, err
	}
	return ns.Txn(ctx, id)
}

// EntryOf returns the entry of a directory below the root, wherever it is. NotFound if it
// was removed.
func (ns *Namespace) EntryOf(ctx context.Context, dir bb.DirID) (bb.Entry, error) {
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		d, err := ns.fetchDir(ctx, dir)
		if err != nil {
			return bb.Entry{}, kv.Wrap("lookup", dir.String(), err)
		}
		if !d.live {
			return bb.Entry{}, bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
		}
		c, err := ns.load(ctx, d.value.parent, d.value.name)
		if err != nil {
			return bb.Entry{}, kv.Wrap("lookup", dir.String(), err)
		}
		if c.live && c.value.Dir == dir {
			return c.value, nil
		}
		// It was renamed or removed between the two reads, or lies in a directory that was removed.
		ns.entries.forget(entryID{d.value.parent, d.value.name})
		if up, err := ns.fetchDir(ctx, d.value.parent); err == nil && d.value.parent != bb.RootDir && !up.live {
			return bb.Entry{}, bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
		}
	}
	return bb.Entry{}, kv.Wrap("lookup", dir.String(), kv.ErrRevision)
}

// ForgetTxn deletes the records of a transaction that is over and of which nothing is left.
func (ns *Namespace) ForgetTxn(ctx context.Context, id bb.TxnID) error {
	const op = "forget transaction"
	t, err := ns.Txn(ctx, id)
	if errors.Is(err, bb.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !t.State.Over() {
		return bb.E(bb.Busy, op, id.String(), "it is "+string(t.State))
	}
	if err := ns.forgetTasks(ctx, id); err != nil {
		return err
	}
	return kv.Wrap(op, id.String(), kv.IgnoreConflict(ns.b.Remove(ctx, txnKey(id), t.Revision)))
}

// forgetTasks deletes the records that only a transaction which is not over needs.
func (ns *Namespace) forgetTasks(ctx context.Context, id bb.TxnID) error {
	var keys []kv.Record
	err := ns.b.Scan(ctx, txnPrefix+id.String()+".>", func(r *kv.Record) error {
		if r.Live() && r.Key != txnKey(id) {
			keys = append(keys, *r)
		}
		return nil
	})
	for i := 0; i < len(keys) && err == nil; i++ {
		err = kv.IgnoreConflict(ns.b.Remove(ctx, keys[i].Key, keys[i].Seq))
	}
	return kv.Wrap("forget transaction", id.String(), err)
}
