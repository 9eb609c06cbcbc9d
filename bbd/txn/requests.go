package txn

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Transactions (docs/transactions.md). Package meta/txn has their records. Any daemon may receive
// any step, and each may be repeated. Finished steps are found in the records.

// entryOverhead is an entry's size in a list of them beyond its own size, and a bit more.
const entryOverhead = 16

// outputMode is the mode of a destination that is created.
const outputMode = 0o755

// Begin begins a transaction.
func (s *Service) Begin(ctx context.Context, r call.Request, m *wire.TxnBegin) (proto.Message, error) {
	const op = "begin transaction"
	b, err := s.o.Enter(ctx, r, op, m.Buffer)
	if err != nil {
		return nil, err
	}
	if c := s.o.Cluster; c != nil {
		if err := c.AllSupport("transactions", wire.VersionTxns); err != nil {
			return nil, err
		}
	}
	path, err := bb.CleanPath(m.Destination)
	if err == nil && (path == "" || bb.Hidden(path)) {
		err = bb.E(bb.Invalid, op, address(b, path), "its destination has to be a directory below the root")
	}
	if err != nil {
		return nil, err
	}
	c := *r.Caller()
	spec := bb.Txn{Destination: path, Key: m.Key, UID: c.UID, GID: c.GIDs[0], Lease: time.Duration(m.LeaseNs)}
	// Every task of a job may request it, and also after the job is over. Its destination is not
	// made again.
	now, begun, err := b.Tree().BegunTxn(ctx, spec)
	if err != nil {
		return nil, bb.Wrap(op, address(b, path), err)
	}
	if begun {
		return message(b, &now), nil
	}
	if err := b.MakeDirs(ctx, c, path, outputMode); err != nil {
		return nil, err
	}
	e, err := b.Lookup(ctx, c, op, path)
	if err != nil {
		return nil, err
	}
	if !c.Permits(e.UID, e.GID, e.Mode, access.Write|access.Execute) {
		return nil, access.Denied(op, address(b, path), "write the directory")
	}
	spec.Dir = e.Dir
	t, err := b.Tree().BeginTxn(ctx, spec)
	if err != nil {
		return nil, bb.Wrap(op, address(b, path), err)
	}
	if t.State == bb.TxnOpen {
		s.o.Emit(bb.Event{Kind: bb.EventTxnBegun, Buffer: m.Buffer, Path: path, Reason: t.ID.String()})
	}
	return message(b, &t), nil
}

// message describes a transaction to clients. The steps to its visibility are left out.
func message(b Buffer, t *bb.Txn) *wire.Txn {
	m := &wire.Txn{
		Buffer: b.Spec().Name, Id: t.ID.String(), Destination: t.Destination, Key: t.Key, State: string(t.State),
		Path: t.Path(), Uid: t.UID, Gid: t.GID, CreatedNs: t.Created.UnixNano(), LeaseNs: int64(t.Lease), Reason: t.Reason,
	}
	if !t.Ended.IsZero() {
		m.EndedNs = t.Ended.UnixNano()
	}
	if t.State.Decided() && !t.State.Over() {
		m.State = wire.TxnCommitted
	}
	for _, p := range t.Replace {
		if p == "" {
			p = "."
		}
		m.Replace = append(m.Replace, p)
	}
	return m
}

// txn returns a transaction of the user. Another one's looks like none.
func (s *Service) txn(ctx context.Context, r call.Request, op, buffer, name string) (Buffer, bb.Txn, error) {
	b, err := s.o.Enter(ctx, r, op, buffer)
	if err != nil {
		return nil, bb.Txn{}, err
	}
	id, err := bb.ParseTxnID(name)
	if err != nil {
		return nil, bb.Txn{}, err
	}
	t, err := b.Tree().Txn(ctx, id)
	if err == nil && !r.Caller().Owns(t.UID) {
		err = bb.E(bb.NotFound, op, name, "there is no such transaction")
	}
	return b, t, bb.Wrap(op, name, err)
}

// Get returns a transaction.
func (s *Service) Get(ctx context.Context, r call.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := s.txn(ctx, r, "transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	return withTasks(ctx, b, &t)
}

func withTasks(ctx context.Context, b Buffer, t *bb.Txn) (*wire.Txn, error) {
	m := message(b, t)
	tasks, err := b.Tree().TxnTasks(ctx, t.ID)
	m.Tasks = uint32(len(tasks))
	return m, err
}

// List returns the user's transactions of a buffer.
func (s *Service) List(ctx context.Context, r call.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := s.o.Enter(ctx, r, "transactions", m.Name)
	if err != nil {
		return nil, err
	}
	all, err := b.Tree().Txns(ctx)
	if err != nil {
		return nil, err
	}
	reply, size := &wire.Txns{}, 0
	for i := range all {
		if !r.Caller().Owns(all[i].UID) {
			continue
		}
		m, err := withTasks(ctx, b, &all[i])
		if err != nil {
			return nil, err
		}
		m.Replace = nil
		if size += proto.Size(m) + entryOverhead; size > wire.MaxMessage {
			break // the newest are the ones that matter
		}
		reply.Txns = append(reply.Txns, m)
	}
	return reply, nil
}

// Renew renews the lease of a transaction.
func (s *Service) Renew(ctx context.Context, r call.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := s.txn(ctx, r, "renew transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	t, err = b.Tree().RenewTxn(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return message(b, &t), nil
}

// Adopt makes the output of one attempt that of its task.
func (s *Service) Adopt(ctx context.Context, r call.Request, m *wire.TxnAdopt) (proto.Message, error) {
	const op = "adopt"
	b, t, err := s.txn(ctx, r, op, m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	winner, err := b.Tree().AdoptTxn(ctx, t.ID, m.Task, m.Attempt)
	if err != nil {
		return nil, err
	}
	if winner == m.Attempt {
		err = b.Tree().MergeTask(ctx, t.ID, m.Task, m.Attempt, b.Mover())
	} else {
		err = b.Tree().DropAttempt(ctx, t.ID, m.Task, m.Attempt, b.Mover())
	}
	return &wire.TxnAdopted{Winner: winner}, bb.Wrap(op, m.Task, err)
}

// Commit commits a transaction.
func (s *Service) Commit(ctx context.Context, r call.Request, m *wire.TxnCommit) (proto.Message, error) {
	const op = "commit transaction"
	b, t, err := s.txn(ctx, r, op, m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	if t, err = b.Tree().CommitTxn(ctx, t.ID, m.Replace); err != nil {
		return nil, err
	}
	if !t.State.Decided() {
		if t, err = decide(ctx, b, *r.Caller(), &t); err != nil {
			return nil, bb.Wrap(op, address(b, t.Destination), err)
		}
		s.o.Emit(bb.Event{Kind: bb.EventTxnDecided, Buffer: m.Buffer, Path: t.Destination, Reason: t.ID.String()})
	}
	safe := b.Spec().Durability == bb.DurabilityFlushed
	if !t.State.Over() {
		b.Materializer().Start(t.ID)
		if m.Wait || safe {
			if err := b.Materializer().Wait(ctx, t.ID); err != nil {
				return nil, bb.Wrap(op, address(b, t.Destination), err)
			}
			if t, err = b.Tree().Txn(ctx, t.ID); err != nil {
				return nil, err
			}
		}
	}
	if safe {
		if err := flushed(ctx, b, *r.Caller(), &t); err != nil {
			return nil, err
		}
	}
	return message(b, &t), nil
}

// flushed waits until the store has the files that a transaction has made visible.
func flushed(ctx context.Context, b Buffer, c access.Caller, t *bb.Txn) error {
	path, err := b.Tree().PathOf(ctx, t.Dir)
	if bb.KindOf(err) == bb.NotFound {
		return nil // the destination was removed since
	}
	if err != nil {
		return err
	}
	return b.Flushed(ctx, c, "commit transaction", path)
}

// decide takes a transaction that is being committed to its decision.
func decide(ctx context.Context, b Buffer, c access.Caller, t *bb.Txn) (bb.Txn, error) {
	const op = "commit transaction"
	if err := b.Tree().MergeTasks(ctx, t.ID, b.Mover()); err != nil {
		return *t, err
	}
	path, err := b.Tree().PathOf(ctx, t.Dir)
	if err != nil {
		return *t, err
	}
	// Transactions that are committed into a directory above come before this.
	if err := b.MaterializeAbove(ctx, op, path); err != nil {
		return *t, err
	}
	e, err := b.Tree().EntryOf(ctx, t.Dir)
	if err != nil {
		return *t, err
	}
	output, err := b.Lookup(ctx, access.Daemon(), op, t.Path()+"/output")
	if err == nil {
		err = mayMerge(ctx, b, c, &output, &e)
	}
	if err != nil {
		return *t, err
	}
	decided := *t
	err = b.Materializer().Do(ctx, func() (err error) {
		decided, err = b.Tree().DecideTxn(ctx, t.ID)
		return err
	})
	return decided, err
}

// mayMerge checks, before it is decided, that a user may change the directories that the
// output is to be merged with.
func mayMerge(ctx context.Context, b Buffer, c access.Caller, output, to *bb.Entry) error {
	if c.System {
		return nil
	}
	if !c.Permits(to.UID, to.GID, to.Mode, access.Write|access.Execute) {
		return access.Denied("commit transaction", address(b, to.Name), "write the directory")
	}
	return b.Tree().Scan(ctx, output.Dir, func(e bb.Entry) error {
		if !e.IsDir() {
			return nil
		}
		target, err := b.Tree().Lookup(ctx, to.Dir, e.Name)
		switch {
		case bb.KindOf(err) == bb.NotFound || err == nil && !target.IsDir():
			return nil
		case err != nil:
			return err
		}
		return mayMerge(ctx, b, c, &e, &target)
	})
}

// Abort ends a transaction without a trace.
func (s *Service) Abort(ctx context.Context, r call.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := s.txn(ctx, r, "abort transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	if t, err = s.abort(ctx, b, t.ID, "it was aborted on request"); err != nil {
		return nil, err
	}
	return message(b, &t), nil
}

// abort ends a transaction. Its leftovers are removed now or, if that fails, by the
// reaper.
func (s *Service) abort(ctx context.Context, b Buffer, id bb.TxnID, reason string) (bb.Txn, error) {
	before, err := b.Tree().Txn(ctx, id)
	if err != nil {
		return before, err
	}
	t, err := b.Tree().AbortTxn(ctx, id, reason)
	if err != nil {
		return t, err
	}
	if before.State != bb.TxnAborted {
		s.o.Emit(bb.Event{Kind: bb.EventTxnAborted, Buffer: b.Spec().Name, Path: t.Destination, Reason: t.ID.String() + ": " + reason})
	}
	if err := b.Tree().CleanTxn(ctx, id, b.Mover()); err != nil {
		s.o.Log.Warn("the files of an aborted transaction were not removed", "buffer", b.Spec().Name, "transaction", id, "err", err)
	}
	return t, nil
}
