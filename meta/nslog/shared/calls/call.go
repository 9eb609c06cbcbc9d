// Package calls has the calls between daemons that share a namespace, and their encoding. It must never depend on
// the way in which a call travels, nor on the choice of the owner.
package calls

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/once"
)

// Op is the operation of a call: a method of namespace.Tree, or a part of one.
type Op uint8

// The operations that change nothing. A number is on the wire. It keeps its meaning, and is not used twice.
const (
	OpRoot Op = iota + 1
	OpLookup
	OpResolve
	OpResolveParent
	OpEntryOf
	OpPathOf
	OpRemoved
	OpList
	OpListAll
	OpScanPage // a page of the owner's table
	OpStoreOps
	OpStoreOpPending
	OpOutcome // of a change that was carried out before
	OpSample
	OpDirGone
	OpCovers
	OpRecord
	OpRecords // a page of them, by their keys
	OpHeld    // a page of the log's end, as any daemon holds it
	OpHold    // records, at any daemon
	OpRevoke  // leases, at the daemon that has them
	OpUnused  // reports whether a daemon has not served the namespace yet, at any daemon
)

// The operations that change something.
const (
	OpPrepare Op = iota + 64
	OpCreate
	OpPut
	OpSetAttr
	OpMkdir
	OpMkdirAll
	OpRename
	OpRemove
	OpDoneStoreOp
	OpTakeOverStoreOps
	OpEndSession
	OpConfirm
	OpCommit  // of records
	OpPutWith // an entry, and records
	OpExchange
)

// Call is a daemon's request to the owner. The fields that count depend on Op.
type Call struct {
	Owner     nslog.Incarnation // that it is meant for
	From      bb.NodeID
	ID        once.ID // of a change; Number 0: none
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
	Life      [16]byte    // of the daemon that wants a lease on Dir with its look-up, or has one; zero: none
	All       bool        // all leases are revoked
	Restores  bool        // by a daemon that restores its files in a namespace that is being rebuilt
}

type restoringKey struct{}

// Restoring returns the context of calls by which a daemon restores its files.
func Restoring(ctx context.Context) context.Context {
	return context.WithValue(ctx, restoringKey{}, true)
}

// Restores reports whether a context is one of Restoring.
func Restores(ctx context.Context) bool { return ctx.Value(restoringKey{}) != nil }

// Directory has the attributes of a new directory.
type Directory struct {
	namespace.Owner
	MTime time.Time // of the root
}

// CallOptions are those of a rename, an exchange or a removal.
type CallOptions struct {
	Replace  bool
	StoreOp  bool
	Revision uint64
	From, To uint64 // the expected numbers of an exchange
}

// ExchangeOptions are those of an exchange.
func ExchangeOptions(o namespace.ExchangeOptions) CallOptions {
	return CallOptions{StoreOp: o.StoreOp, From: o.From, To: o.To}
}

// Exchange is the other way round.
func (o CallOptions) Exchange() namespace.ExchangeOptions {
	return namespace.ExchangeOptions{StoreOp: o.StoreOp, From: o.From, To: o.To}
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
	Lease    lease.Grant
	Failure  *Failure
}

// Exchanged sets the answer to an exchange, unless that has failed.
func (a *Answer) Exchanged(x namespace.Exchanged, err error) error {
	if err == nil {
		a.Entry, a.Replaced, a.Yes = x.Entry, &x.Other, x.Before
	}
	return err
}

// AsExchanged returns the result of an exchange that had an answer, or an error.
func (a *Answer) AsExchanged(err error) (namespace.Exchanged, error) {
	if err == nil && a.Replaced == nil {
		err = bb.E(bb.Internal, "exchange", a.Entry.Name, "the answer has one entry alone")
	}
	if err != nil {
		return namespace.Exchanged{}, err
	}
	return namespace.Exchanged{Entry: a.Entry, Other: *a.Replaced, Before: a.Yes}, nil
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

// FailureOf returns the part of an error that is carried, or nil for nil.
func FailureOf(err error) *Failure {
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

// Err returns the error.
func (f *Failure) Err() error {
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
