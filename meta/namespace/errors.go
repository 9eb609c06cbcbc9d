package namespace

import (
	"forebay/internal/bb"
	"forebay/meta/kv"
)

// Unfolded is the error of a change that has to wait until a transaction, which is committed into
// the same directory, is folded. The directory's entry names it.
type Unfolded struct{ ID bb.TxnID }

// Error implements error.
func (e *Unfolded) Error() string { return "transaction " + e.ID.String() + " has to be folded first" }

// Is makes it one of kind Busy.
func (e *Unfolded) Is(target error) bool { return target == bb.Busy }

// ErrConflict is in the chain of the bb.Busy error of a change that was refused because
// another writer changed the same entry first.
var ErrConflict = kv.ErrConflict
