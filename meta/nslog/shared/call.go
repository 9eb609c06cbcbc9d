package shared

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
)

// Caller carries calls to other daemons. It is safe for concurrent use. A call may arrive several
// times, late, or never. After an error it may have arrived or not. The other daemon answers with
// its Tree's Handle. Neither side changes a call or an answer.
type Caller interface {
	Call(ctx context.Context, to bb.NodeID, c *Call) (*Answer, error)
}

// Op is the operation of a call: a method of namespace.Tree, or a part of one.
type Op uint8

// Its number is on the wire. It keeps its meaning, and is not used twice.
const (
	opRoot Op = iota + 1
	opLookup
	opResolve
	opResolveParent
	opEntryOf
	opPathOf
	opRemoved
	opList
	opListAll
	opScanPage // a page of the owner's table
	opStoreOps
	opStoreOpPending
	opOutcome // of a change that was carried out before
	opSample
	opDirGone
	opCovers
	opRecord
	opRecords // a page of them, by their keys
)

const (
	opPrepare Op = iota + 64 // changes from here on
	opCreate
	opPut
	opSetAttr
	opMkdir
	opMkdirAll
	opRename
	opRemove
	opDoneStoreOp
	opTakeOverStoreOps
	opEndSession
	opConfirm
	opCommit  // of records
	opPutWith // an entry, and records
)

// Call is a daemon's request to the owner. The fields that count depend on Op.
type Call struct {
	Owner     nslog.Incarnation // that it is meant for
	From      bb.NodeID
	ID        nslog.ID // of a change; Number 0: none
	Op        Op
	Dir       bb.DirID
	Name      string // or a path, or a key, or a filter of keys
	ToDir     bb.DirID
	ToName    string   // or the key that a page of records comes after
	Entry     bb.Entry // of a change
	File      bb.FileID
	Revision  uint64
	Number    int // of entries at most, or of a page
	Node      bb.NodeID
	Attr      namespace.Attr
	Directory Directory
	Options   CallOptions
	Changes   []kv.Change // of records
}

// Directory is what a new directory is to have.
type Directory struct {
	namespace.Owner
	MTime time.Time // of the root
}

// CallOptions are those of a rename or a removal.
type CallOptions struct {
	Replace  bool
	StoreOp  bool
	Revision uint64
}

// Status is whether an answer is the owner's.
type Status uint8

// The statuses. With all but Served, the call's outcome is unknown.
const (
	Served Status = iota + 1
	NotOwner
	OtherIncarnation // Answer.Owner is the right one
)

// Answer is the answer to a call.
type Answer struct {
	Status   Status
	Owner    nslog.Incarnation
	Entry    bb.Entry
	Replaced *bb.Entry
	Entries  []bb.Entry
	Ops      []namespace.StoreOp
	Records  []kv.Record
	Revised  []uint64 // revisions of changed records
	Dir      bb.DirID
	Name     string // or a path
	Revision uint64
	Count    int
	Yes      bool // more, done, there, pending or removed
	Failure  *Failure
}

// Failure is an error that was carried from another daemon.
type Failure struct {
	Kind              bb.Kind
	Op, Path          string
	Node              bb.NodeID
	Reason, Remedy    string
	Unknown, Conflict bool
	Unfolded          bb.TxnID
}

func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Kind: bb.KindOf(err), Reason: err.Error(), Unknown: errors.Is(err, bb.ErrUnknownOutcome), Conflict: errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrRevision)}
	var e *bb.Error
	if errors.As(err, &e) {
		f.Op, f.Path, f.Node = e.Op, e.Path, e.Node
		f.Reason, f.Remedy = e.Why()
	}
	var u *namespace.Unfolded
	if errors.As(err, &u) {
		f.Unfolded = u.ID
	}
	return f
}

func (f *Failure) err() error {
	if f == nil {
		return nil
	}
	e := &bb.Error{Kind: f.Kind, Op: f.Op, Path: f.Path, Node: f.Node, Err: errors.New(f.Reason), Remedy: f.Remedy, Unknown: f.Unknown}
	switch {
	case f.Conflict:
		e.Err = kv.ErrConflict
	case f.Unfolded != 0:
		e.Err = &namespace.Unfolded{ID: f.Unfolded}
	}
	return e
}
