package namespace

import (
	"strconv"
	"strings"

	"forebay/internal/bb"
)

// ExchangeOptions are the options of Exchange.
type ExchangeOptions struct {
	// From and To are the numbers of the file or directory that each of the two names is expected
	// to have (IDOf); 0: any. If each name has the number of the other already, the exchange was
	// carried out before, and nothing is changed. Any other number is Busy.
	From, To uint64
	// StoreOp leaves StoreOps in the same atomic change (ExchangeOps).
	StoreOp bool
}

// Exchanged is the result of an exchange: both entries at their new places.
type Exchanged struct {
	Entry bb.Entry // the one that had the first name
	Other bb.Entry
	// Before: it had been carried out before, and this one has changed nothing.
	Before bool
}

// IDOf is the number that distinguishes the entry of a file or directory from another one of its name.
func IDOf(e *bb.Entry) uint64 {
	if e.IsDir() {
		return uint64(e.Dir)
	}
	return uint64(e.File)
}

// Done reports whether an exchange of the entries at two places was carried out before. Its error is
// Busy if one of them is not the expected one.
func (o *ExchangeOptions) Done(a, b *bb.Entry) (bool, error) {
	is := func(id, want uint64) bool { return want == 0 || id == want }
	switch from, to := IDOf(a), IDOf(b); {
	case is(from, o.From) && is(to, o.To):
		return false, nil
	case o.From != 0 && o.To != 0 && from == o.To && to == o.From:
		return true, nil
	case is(from, o.From):
		return false, replacedMeanwhile(b.Name)
	}
	return false, replacedMeanwhile(a.Name)
}

func replacedMeanwhile(name string) error {
	return bb.E(bb.Busy, "exchange", name, "another file or directory has the name by now").WithRemedy("try again")
}

// BelowItself is the error of an exchange of a directory with an entry below it.
func BelowItself(name string) error {
	return bb.E(bb.Invalid, "exchange", name, "one of the two lies below the other")
}

// Exchange returns two entries at each other's places.
func Exchange(a, b *bb.Entry) (atB, atA bb.Entry) { return exchanged(a, b), exchanged(b, a) }

// exchanged returns an entry at the place of another one. A flushed file takes its object along. The
// object under the name of a file that was never flushed belongs to the name, not to the file. It
// stays there until the flush of the file that has the name, or until a flushed file's object replaces it.
func exchanged(e, to *bb.Entry) bb.Entry {
	moved := *e
	moved.Parent, moved.Name = to.Parent, to.Name
	if e.IsDir() {
		return moved
	}
	var kept bb.Flushed
	var attempts []bb.Content
	if e.Flushed.Generation != 0 {
		attempts = e.Attempts()
	} else if !to.IsDir() && to.Flushed.Generation == 0 {
		kept = to.Replaced()
	}
	if !to.IsDir() {
		attempts = bb.AddContents(attempts, to.Unrecorded()...)
	}
	moved.SetBefore(kept, attempts)
	return moved
}

// ExchangeOps returns the store's part of an exchange of two entries at paths. If both have
// something on the store, it is moved in three steps, the first of them to a name beside the first
// path that nothing else has. Each step is an operation like that of a rename. So a daemon that is
// killed between two of them goes on with the next one, or another daemon does.
func ExchangeOps(a, b *bb.Entry, pathA, pathB string) []StoreOp {
	switch {
	case moves(a) && moves(b):
		aside := asidePath(pathA, IDOf(a))
		ops := []StoreOp{MoveOp(a, pathA, aside, nil), MoveOp(b, pathB, pathA, nil), MoveOp(a, aside, pathB, nil)}
		if !a.IsDir() && !b.IsDir() { // an attempt with another codec than the flushed object stays behind
			ops[1].ReplacedAttempts, ops[2].ReplacedAttempts = a.Unrecorded(), b.Unrecorded()
		}
		return ops
	case moves(a):
		return moveOver(a, b, pathA, pathB)
	case moves(b):
		return moveOver(b, a, pathB, pathA)
	}
	return nil
}

// moves reports whether the store has something that follows an entry to another name.
func moves(e *bb.Entry) bool { return e.IsDir() || e.Flushed.Generation != 0 }

// moveOver moves what the store has of an entry to the name of a file that was never flushed. An
// object that is under that name still is replaced by a file's, and removed before a directory's.
func moveOver(e, over *bb.Entry, from, to string) []StoreOp {
	if !e.IsDir() {
		return []StoreOp{MoveOp(e, from, to, over)}
	}
	op := MoveOp(e, from, to, nil)
	rest := StoreOp{Op: OpRemove, OldPath: to, File: over.File, Left: over.Replaced(), Attempts: over.Unrecorded()}
	if rest.Left.Generation == 0 && len(rest.Attempts) == 0 {
		return []StoreOp{op}
	}
	return []StoreOp{rest, op}
}

// asidePath is the name that the store has for the first of two entries until the second one has left its own.
func asidePath(path string, id uint64) string {
	return path[:strings.LastIndexByte(path, '/')+1] + ".forebay-exchange-" + strconv.FormatUint(id, 16)
}
