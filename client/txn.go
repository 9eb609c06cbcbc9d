package client

import (
	"context"
	"path"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Txn makes the files of many tasks part of one directory in one step. Readers see all of it or
// nothing. Any process may hold one for the same transaction (Buffer.Txn). It may be used
// concurrently and needs no closing.
type Txn struct {
	b  *Buffer
	id string
}

// TxnSpec describes a transaction to begin.
type TxnSpec struct {
	// Destination is the directory that the output goes to. If it is not there, it is made, with
	// those above it. It cannot be the root.
	Destination string
	// Key makes Begin idempotent. The same key of the same user is the same transaction. "" begins
	// a new one.
	Key string
	// Lease is how long the transaction lasts without being renewed. 0: ten minutes.
	Lease time.Duration
}

// TxnState is a transaction's place in its lifetime.
type TxnState string

// The states of a transaction.
const (
	TxnOpen       TxnState = "open"
	TxnCommitting TxnState = "committing"
	TxnCommitted  TxnState = wire.TxnCommitted // readers see the output, daemons are giving it its final names
	TxnFolded     TxnState = "folded"          // and all has its final name
	TxnAborted    TxnState = "aborted"
)

// TxnInfo describes a transaction.
type TxnInfo struct {
	ID          string        `json:"id"`
	Buffer      string        `json:"buffer"`
	Destination string        `json:"destination"` // when it began
	Key         string        `json:"key,omitempty"`
	State       TxnState      `json:"state"`
	Path        string        `json:"path"` // of its hidden directory
	UID         uint32        `json:"uid"`
	GID         uint32        `json:"gid"`
	Created     time.Time     `json:"created"`
	Ended       time.Time     `json:"ended,omitzero"` // when it was committed or aborted
	Lease       time.Duration `json:"lease"`          // nanoseconds
	Replace     []string      `json:"replace,omitempty"`
	Reason      string        `json:"reason,omitempty"` // why it was aborted
	Tasks       int           `json:"tasks"`            // adopted
}

func asTxn(m *wire.Txn) TxnInfo {
	t := TxnInfo{
		ID: m.Id, Buffer: m.Buffer, Destination: m.Destination, Key: m.Key, State: TxnState(m.State), Path: m.Path, UID: m.Uid, GID: m.Gid,
		Created: time.Unix(0, m.CreatedNs), Lease: time.Duration(m.LeaseNs), Replace: m.Replace, Reason: m.Reason, Tasks: int(m.Tasks),
	}
	if m.EndedNs != 0 {
		t.Ended = time.Unix(0, m.EndedNs)
	}
	return t
}

// Begin begins a transaction, or returns the one of the same key, in any state. ErrUnsupported if a
// daemon of the cluster is too old.
func (b *Buffer) Begin(ctx context.Context, spec TxnSpec) (*Txn, error) {
	clean, err := bb.CheckPath("begin transaction", b.name, spec.Destination)
	if err != nil {
		return nil, err
	}
	m := &wire.TxnBegin{Buffer: b.name, Destination: clean, Key: spec.Key, LeaseNs: int64(spec.Lease)}
	var reply wire.Txn
	if err := b.c.conn.Ask(ctx, wire.Type_TYPE_TXN_BEGIN, m, &reply); err != nil {
		return nil, bb.Wrap("begin transaction", b.address(clean), err)
	}
	return b.Txn(reply.Id), nil
}

// Txn returns the transaction of an id, which another process has begun.
func (b *Buffer) Txn(id string) *Txn { return &Txn{b: b, id: id} }

// Txns lists the user's transactions, the newest first, and for the system all.
func (b *Buffer) Txns(ctx context.Context) ([]TxnInfo, error) {
	var reply wire.Txns
	if err := b.c.conn.Ask(ctx, wire.Type_TYPE_TXN_LIST, &wire.BufferName{Name: b.name}, &reply); err != nil {
		return nil, bb.Wrap("transactions", b.address(""), err)
	}
	all := make([]TxnInfo, 0, len(reply.Txns))
	for _, m := range reply.Txns {
		all = append(all, asTxn(m))
	}
	return all, nil
}

// ID returns the transaction's name in its buffer.
func (t *Txn) ID() string { return t.id }

// Path returns the directory that an attempt of a task writes below. It has to be made
// (MkdirAll). Both names are any text without a slash.
func (t *Txn) Path(task, attempt string) string {
	return path.Join(bb.HiddenDir, t.id, "attempt", task, attempt)
}

func (t *Txn) ask(ctx context.Context, op string, typ wire.Type) (TxnInfo, error) {
	var reply wire.Txn
	err := t.b.c.conn.Ask(ctx, typ, &wire.TxnName{Buffer: t.b.name, Id: t.id}, &reply)
	return asTxn(&reply), bb.Wrap(op, t.id, err)
}

// Info returns how the transaction is now.
func (t *Txn) Info(ctx context.Context) (TxnInfo, error) {
	return t.ask(ctx, "transaction", wire.Type_TYPE_TXN_GET)
}

// Adopt makes the closed files of an attempt the output of its task, unless another attempt was
// faster. The winner is returned, and the files of the others are removed. It may be repeated.
// ErrCancelled if the transaction was aborted, ErrBusy if it is being committed without this task.
func (t *Txn) Adopt(ctx context.Context, task, attempt string) (winner string, err error) {
	var reply wire.TxnAdopted
	m := &wire.TxnAdopt{Buffer: t.b.name, Id: t.id, Task: task, Attempt: attempt}
	err = t.b.c.conn.Ask(ctx, wire.Type_TYPE_TXN_ADOPT, m, &reply)
	return reply.Winner, bb.Wrap("adopt", task, err)
}

// CommitOptions are the options of a commit.
type CommitOptions struct {
	// Replace are directories, relative to the destination ("." for itself), whose content
	// goes in the same step.
	Replace []string
	// Wait until all files have their final names, and begin to be flushed. Drain does so
	// too.
	Wait bool
}

// Commit makes all adopted output part of the destination, in one step. It may be repeated, by any
// client, after any outcome of the first attempt. It is committed once. It returns ErrCancelled if
// it was aborted, and ErrNotFound if the destination was removed.
func (t *Txn) Commit(ctx context.Context, o CommitOptions) (TxnInfo, error) {
	var reply wire.Txn
	m := &wire.TxnCommit{Buffer: t.b.name, Id: t.id, Replace: o.Replace, Wait: o.Wait}
	err := t.b.c.conn.Ask(ctx, wire.Type_TYPE_TXN_COMMIT, m, &reply)
	return asTxn(&reply), bb.Wrap("commit transaction", t.id, err)
}

// Abort removes all that was written under the transaction. It may be repeated. ErrBusy if
// it is committed.
func (t *Txn) Abort(ctx context.Context) (TxnInfo, error) {
	return t.ask(ctx, "abort transaction", wire.Type_TYPE_TXN_ABORT)
}

// Renew extends the transaction's lease. ErrCancelled if it was aborted.
func (t *Txn) Renew(ctx context.Context) (TxnInfo, error) {
	return t.ask(ctx, "renew transaction", wire.Type_TYPE_TXN_RENEW)
}

// Keep renews the transaction's lease until it is committed or aborted, or ctx ends. The error has
// the reason. nil means that it is committed.
func (t *Txn) Keep(ctx context.Context) error {
	for {
		info, err := t.Renew(ctx)
		switch {
		case err != nil && (bb.KindOf(err) != bb.Unavailable || ctx.Err() != nil):
			return err
		case err == nil && info.State != TxnOpen && info.State != TxnCommitting:
			return nil
		}
		pause := info.Lease / 3
		if err != nil {
			pause = time.Second
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return bb.Wrap("renew transaction", t.id, context.Cause(ctx))
		}
	}
}
