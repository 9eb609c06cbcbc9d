package bb

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// HiddenDir is the directory of a buffer's root below which transactions keep entries
// that are not part of their destination yet. Listings of the root leave it out, nothing
// in it is flushed, and only transactions make entries directly in it.
const HiddenDir = ".txn"

// Hidden reports whether a clean path is that of the hidden directory, or leads through it.
func Hidden(path string) bool {
	return path == HiddenDir || strings.HasPrefix(path, HiddenDir+"/")
}

// TxnID is a transaction's, within its buffer.
type TxnID uint64

// TxnIDOf is that of a user's key. The same key is the same transaction.
func TxnIDOf(uid uint32, key string) TxnID {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32([]byte(key), uid))
	return TxnID(max(binary.LittleEndian.Uint64(sum[:]), 1))
}

// String returns sixteen hexadecimal digits, as ParseTxnID reads them.
func (id TxnID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// ParseTxnID reads results of String, and nothing else.
func ParseTxnID(s string) (TxnID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || n == 0 || TxnID(n).String() != s {
		return 0, E(Invalid, "transaction", fmt.Sprintf("%.40q", s), "is not a transaction's id")
	}
	return TxnID(n), nil
}

// Txn is a transaction. The output of tasks in a hidden tree becomes part of a directory, in one step.
//
//	open ──▶ committing ──▶ replacing ──▶ folding ──▶ folded
//	   │          │        └── readers see the output ──
//	   └──────────┴──▶ aborted
//
// Committing: no attempt is adopted any more. Replacing: it is decided, and the entries that the
// output replaces are being removed. This state is left out where there are none. Folding: the
// output is being renamed to the place at which readers already get it.
type Txn struct {
	ID          TxnID
	State       TxnState
	Destination string // path, when it began
	Dir         DirID  // the directory itself, wherever it is now
	Key         string
	UID, GID    uint32
	Lease       time.Duration
	Created     time.Time
	Ended       time.Time // when it was decided or aborted
	Replace     []string  // clean paths below the destination; "" is the destination itself
	Output      DirID     // the root of the output, once it is decided
	Reason      string    // why it was aborted
	Revision    uint64    // of its record
	Rest        string    // its fields of newer releases
}

// Path returns where its hidden tree is.
func (t *Txn) Path() string { return HiddenDir + "/" + t.ID.String() }

// TxnState is a transaction's place in it.
type TxnState string

// The states of a transaction.
const (
	TxnOpen       TxnState = "open"
	TxnCommitting TxnState = "committing"
	TxnReplacing  TxnState = "replacing"
	TxnFolding    TxnState = "folding"
	TxnFolded     TxnState = "folded"
	TxnAborted    TxnState = "aborted"
)

// Decided reports whether the output is part of the destination, for good.
func (s TxnState) Decided() bool {
	return s == TxnReplacing || s == TxnFolding || s == TxnFolded
}

// Over reports whether nothing is left to do.
func (s TxnState) Over() bool { return s == TxnFolded || s == TxnAborted }
