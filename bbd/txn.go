package bbd

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Transactions (docs/transactions.md; meta/txn.go has their records). Any daemon may be asked
// for any step, and each may be repeated: what was done is found in the records.

const (
	outputMode = 0o755
	// txnKept is how long the record of a transaction that is over answers whoever repeats
	// a commit or an abort.
	txnKept = 24 * time.Hour
	// reapEvery is how often all transactions are looked after.
	reapEvery = 5 * time.Second
)

func (d *Daemon) txnBegin(ctx context.Context, r *rpc.Request, m *wire.TxnBegin) (proto.Message, error) {
	const op = "begin transaction"
	b, err := d.bufferFor(ctx, r.Session(), op, m.Buffer)
	if err != nil {
		return nil, err
	}
	if c := b.d.cluster; c != nil {
		if err := c.AllSupport("transactions", wire.VersionTxns); err != nil {
			return nil, err
		}
	}
	path, err := bb.CleanPath(m.Destination)
	if err == nil && (path == "" || bb.Hidden(path)) {
		err = bb.E(bb.Invalid, op, b.address(path), "its destination has to be a directory below the root")
	}
	if err != nil {
		return nil, err
	}
	c := *r.Caller()
	spec := bb.Txn{Destination: path, Key: m.Key, UID: c.UID, GID: c.GIDs[0], Lease: time.Duration(m.LeaseNs)}
	// Every task of a job may ask, and after the job is over as well: its destination is not made again.
	now, begun, err := b.ns.BegunTxn(ctx, spec)
	if err != nil {
		return nil, bb.Wrap(op, b.address(path), err)
	}
	if begun {
		return b.txnMessage(&now), nil
	}
	if _, err := d.mkdir(ctx, r, &wire.Mkdir{Buffer: m.Buffer, Path: path, Mode: outputMode, Parents: true}); err != nil {
		return nil, err
	}
	e, err := b.lookup(ctx, c, op, path)
	if err != nil {
		return nil, err
	}
	if !c.Permits(e.UID, e.GID, e.Mode, access.Write|access.Execute) {
		return nil, access.Denied(op, b.address(path), "write the directory")
	}
	spec.Dir = e.Dir
	t, err := b.ns.BeginTxn(ctx, spec)
	if err != nil {
		return nil, bb.Wrap(op, b.address(path), err)
	}
	if t.State == bb.TxnOpen {
		b.d.emit(bb.Event{Kind: bb.EventTxnBegun, Buffer: b.name, Path: path, Reason: t.ID.String()})
	}
	return b.txnMessage(&t), nil
}

// txnMessage tells clients of a transaction; how it becomes what they see is not theirs.
func (b *buffer) txnMessage(t *bb.Txn) *wire.Txn {
	m := &wire.Txn{
		Buffer: b.name, Id: t.ID.String(), Destination: t.Destination, Key: t.Key, State: string(t.State),
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
func (d *Daemon) txn(ctx context.Context, r *rpc.Request, op, buffer, name string) (*buffer, bb.Txn, error) {
	b, err := d.bufferFor(ctx, r.Session(), op, buffer)
	if err != nil {
		return nil, bb.Txn{}, err
	}
	id, err := bb.ParseTxnID(name)
	if err != nil {
		return nil, bb.Txn{}, err
	}
	t, err := b.ns.Txn(ctx, id)
	if err == nil && !r.Caller().Owns(t.UID) {
		err = bb.E(bb.NotFound, op, name, "there is no such transaction")
	}
	return b, t, bb.Wrap(op, name, err)
}

func (d *Daemon) txnGet(ctx context.Context, r *rpc.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := d.txn(ctx, r, "transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	return b.txnWithTasks(ctx, &t)
}

func (b *buffer) txnWithTasks(ctx context.Context, t *bb.Txn) (*wire.Txn, error) {
	m := b.txnMessage(t)
	tasks, err := b.ns.TxnTasks(ctx, t.ID)
	m.Tasks = uint32(len(tasks))
	return m, err
}

func (d *Daemon) txnList(ctx context.Context, r *rpc.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "transactions", m.Name)
	if err != nil {
		return nil, err
	}
	all, err := b.ns.Txns(ctx)
	if err != nil {
		return nil, err
	}
	reply, size := &wire.Txns{}, 0
	for i := range all {
		if !r.Caller().Owns(all[i].UID) {
			continue
		}
		m, err := b.txnWithTasks(ctx, &all[i])
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

func (d *Daemon) txnRenew(ctx context.Context, r *rpc.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := d.txn(ctx, r, "renew transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	t, err = b.ns.RenewTxn(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return b.txnMessage(&t), nil
}

func (d *Daemon) txnAdopt(ctx context.Context, r *rpc.Request, m *wire.TxnAdopt) (proto.Message, error) {
	const op = "adopt"
	b, t, err := d.txn(ctx, r, op, m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	winner, err := b.ns.AdoptTxn(ctx, t.ID, m.Task, m.Attempt)
	if err != nil {
		return nil, err
	}
	if winner == m.Attempt {
		err = b.ns.MergeTask(ctx, t.ID, m.Task, m.Attempt, mover{b})
	} else {
		err = b.ns.DropAttempt(ctx, t.ID, m.Task, m.Attempt, mover{b})
	}
	return &wire.TxnAdopted{Winner: winner}, bb.Wrap(op, m.Task, err)
}

func (d *Daemon) txnCommit(ctx context.Context, r *rpc.Request, m *wire.TxnCommit) (proto.Message, error) {
	const op = "commit transaction"
	b, t, err := d.txn(ctx, r, op, m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	if t, err = b.ns.CommitTxn(ctx, t.ID, m.Replace); err != nil {
		return nil, err
	}
	if !t.State.Decided() {
		if t, err = b.decide(ctx, *r.Caller(), &t); err != nil {
			return nil, bb.Wrap(op, b.address(t.Destination), err)
		}
		b.d.emit(bb.Event{Kind: bb.EventTxnDecided, Buffer: b.name, Path: t.Destination, Reason: t.ID.String()})
	}
	safe := b.Spec().Durability == bb.DurabilityFlushed
	if !t.State.Over() {
		b.startFold(t.ID)
		if m.Wait || safe {
			if err := b.fold(ctx, t.ID); err != nil {
				return nil, bb.Wrap(op, b.address(t.Destination), err)
			}
			if t, err = b.ns.Txn(ctx, t.ID); err != nil {
				return nil, err
			}
		}
	}
	if safe {
		if err := b.flushedCommit(ctx, *r.Caller(), &t); err != nil {
			return nil, err
		}
	}
	return b.txnMessage(&t), nil
}

// flushedCommit waits until the store has what a transaction has made visible.
func (b *buffer) flushedCommit(ctx context.Context, c access.Caller, t *bb.Txn) error {
	path, err := b.ns.PathOf(ctx, t.Dir)
	if bb.KindOf(err) == bb.NotFound {
		return nil // the destination was removed since
	}
	if err != nil {
		return err
	}
	return b.flushedBelow(ctx, c, "commit transaction", path)
}

// decide takes a transaction that is being committed to its decision.
func (b *buffer) decide(ctx context.Context, c access.Caller, t *bb.Txn) (bb.Txn, error) {
	const op = "commit transaction"
	if err := b.ns.MergeTasks(ctx, t.ID, mover{b}); err != nil {
		return *t, err
	}
	path, err := b.ns.PathOf(ctx, t.Dir)
	if err != nil {
		return *t, err
	}
	// What is committed into a directory above comes before this.
	if _, _, err := b.parent(ctx, access.Daemon(), op, path); err != nil {
		return *t, err
	}
	e, err := b.ns.EntryOf(ctx, t.Dir)
	if err != nil {
		return *t, err
	}
	output, err := b.lookup(ctx, access.Daemon(), op, t.Path()+"/output")
	if err == nil {
		err = b.mayFold(ctx, c, &output, &e)
	}
	if err != nil {
		return *t, err
	}
	decided := *t
	err = b.folding(ctx, func() (err error) {
		decided, err = b.ns.DecideTxn(ctx, t.ID)
		return err
	})
	return decided, err
}

// mayFold checks, before it is decided, that a user may change the directories that the
// output is to be merged with.
func (b *buffer) mayFold(ctx context.Context, c access.Caller, output, to *bb.Entry) error {
	if c.System {
		return nil
	}
	if !c.Permits(to.UID, to.GID, to.Mode, access.Write|access.Execute) {
		return access.Denied("commit transaction", b.address(to.Name), "write the directory")
	}
	return b.ns.Scan(ctx, output.Dir, func(e bb.Entry) error {
		if !e.IsDir() {
			return nil
		}
		target, err := b.ns.Lookup(ctx, to.Dir, e.Name)
		switch {
		case bb.KindOf(err) == bb.NotFound || err == nil && !target.IsDir():
			return nil
		case err != nil:
			return err
		}
		return b.mayFold(ctx, c, &e, &target)
	})
}

func (d *Daemon) txnAbort(ctx context.Context, r *rpc.Request, m *wire.TxnName) (proto.Message, error) {
	b, t, err := d.txn(ctx, r, "abort transaction", m.Buffer, m.Id)
	if err != nil {
		return nil, err
	}
	if t, err = b.abort(ctx, t.ID, "somebody asked for it"); err != nil {
		return nil, err
	}
	return b.txnMessage(&t), nil
}

// abort ends a transaction. What it leaves is removed now or, if that fails, by whoever
// looks after transactions.
func (b *buffer) abort(ctx context.Context, id bb.TxnID, reason string) (bb.Txn, error) {
	before, err := b.ns.Txn(ctx, id)
	if err != nil {
		return before, err
	}
	t, err := b.ns.AbortTxn(ctx, id, reason)
	if err != nil {
		return t, err
	}
	if before.State != bb.TxnAborted {
		b.d.emit(bb.Event{Kind: bb.EventTxnAborted, Buffer: b.name, Path: t.Destination, Reason: t.ID.String() + ": " + reason})
	}
	if err := b.ns.CleanTxn(ctx, id, mover{b}); err != nil {
		b.d.log.Warn("removing what an aborted transaction has left", "buffer", b.name, "transaction", id, "err", err)
	}
	return t, nil
}

// reaper looks after the transactions that nobody else looks after any more. One daemon
// does, the first of those that are ready; that two do for a moment does no harm.
type reaper struct {
	d      *Daemon
	leases map[leaseOf]leaseSeen
}

type leaseOf struct {
	buffer string
	id     bb.TxnID
}

// leaseSeen is a lease as it was found, and since when, by this host's monotonic clock.
type leaseSeen struct {
	revision uint64
	since    time.Time
}

func (d *Daemon) reapTxns() {
	r := &reaper{d: d, leases: map[leaseOf]leaseSeen{}}
	tick := time.NewTicker(d.cfg.Limits.reap())
	defer tick.Stop()
	for {
		r.round() // the first at once, for what was decided before a restart
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round looks after the transactions of all buffers, if this daemon is the one to do it.
func (r *reaper) round() {
	d := r.d
	if d.cluster != nil && cluster.Coordinator(d.cluster.Members()) != d.cfg.Node {
		clear(r.leases) // whoever does it now counts from when it began
		return
	}
	all, err := d.existingBuffers(d.ctx)
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn("looking after transactions", "err", err)
	}
	for _, b := range all {
		if err := r.look(d.ctx, b); err != nil && d.ctx.Err() == nil && bb.KindOf(err) != bb.NotFound {
			d.log.Warn("looking after transactions", "buffer", b.name, "err", err)
		}
	}
}

// existingBuffers returns all buffers that there are, and takes up those that only other
// daemons were asked for so far.
func (d *Daemon) existingBuffers(ctx context.Context) ([]*buffer, error) {
	if d.cluster == nil {
		return d.allBuffers(), nil
	}
	specs, err := d.meta.Buffers(ctx)
	if err != nil {
		return nil, err
	}
	var all []*buffer
	for i := range specs {
		b, err := d.buffer(ctx, specs[i].Name)
		if bb.KindOf(err) == bb.NotFound {
			continue // destroyed meanwhile
		}
		if err != nil {
			return all, err
		}
		all = append(all, b)
	}
	return all, nil
}

// look does what is to be done for the transactions of one buffer.
func (r *reaper) look(ctx context.Context, b *buffer) error {
	all, err := b.ns.Txns(ctx)
	if err != nil {
		return err
	}
	known := map[bb.TxnID]bb.TxnState{}
	for i := range all {
		t := &all[i]
		known[t.ID] = t.State
		switch {
		case t.State.Over():
			delete(r.leases, leaseOf{b.name, t.ID})
			if time.Since(t.Ended) > txnKept {
				err = b.ns.ForgetTxn(ctx, t.ID)
			}
		case t.State.Decided():
			b.startFold(t.ID)
		default:
			err = r.expire(ctx, b, t)
		}
		if err != nil {
			return err
		}
	}
	// What was begun, or went on, while it was being aborted has left a tree.
	left, err := b.ns.HiddenTxns(ctx)
	for i := 0; i < len(left) && err == nil; i++ {
		if state, ok := known[left[i]]; ok && state.Over() {
			err = b.ns.CleanTxn(ctx, left[i], mover{b})
		}
	}
	return err
}

// expire aborts a transaction whose lease has stayed as it is for too long.
func (r *reaper) expire(ctx context.Context, b *buffer, t *bb.Txn) error {
	revision, err := b.ns.TxnLease(ctx, t.ID)
	if err != nil {
		return err
	}
	of, now := leaseOf{b.name, t.ID}, time.Now()
	seen, ok := r.leases[of]
	if !ok || seen.revision != revision {
		r.leases[of] = leaseSeen{revision, now}
		return nil
	}
	if now.Sub(seen.since) < t.Lease {
		return nil
	}
	_, err = b.abort(ctx, t.ID, "its lease of "+t.Lease.String()+" was not renewed")
	if bb.KindOf(err) == bb.Busy {
		return nil // it was committed a moment ago
	}
	return err
}
