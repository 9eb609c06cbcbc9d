package paths

import (
	"context"
	"strings"

	"forebay/internal/bb"
)

// Clients write in the hidden tree of transactions with the requests that they write
// everywhere with, so their rights to change it are decided by the path:
//
//	.txn / ID / attempt / TASK / ATTEMPT / …   theirs
//	.txn / ID / output / …                     the transaction's
//
// The directories of a task and of its attempts are made while the transaction is open and
// the task is not decided. Paths below them need no lookup of any record, since an attempt that has
// lost finds its directory gone.
const (
	depthTask    = 4
	depthAttempt = 5
)

// hiddenNames splits a path. It returns nil if it does not lead into the hidden tree.
func hiddenNames(path string) []string {
	if !strings.Contains(path, bb.HiddenDir) {
		return nil // few paths lead there, and the others need not be split
	}
	names, err := bb.SplitPath(path)
	if err != nil || len(names) == 0 || names[0] != bb.HiddenDir {
		return nil
	}
	return names
}

func ofAttempt(names []string) bool { return len(names) > depthAttempt && names[2] == "attempt" }

// MayChange refuses changes in the hidden tree but for those of an attempt's files.
func (t *Tree) MayChange(op, path string) error {
	if names := hiddenNames(path); names != nil && !ofAttempt(names) {
		return bb.E(bb.Permission, op, t.address(path), "only transactions change this directory").
			WithRemedy("write below the directory of an attempt")
	}
	return nil
}

// MayRename refuses renames into an attempt, or out of it.
func (t *Tree) MayRename(from, to string) error {
	x, y := hiddenNames(from), hiddenNames(to)
	if x == nil && y == nil {
		return nil
	}
	if ofAttempt(x) && ofAttempt(y) && strings.Join(x[:depthAttempt], "/") == strings.Join(y[:depthAttempt], "/") {
		return nil
	}
	return bb.E(bb.Permission, "rename", t.address(from), "the files of an attempt become visible only with its transaction").
		WithRemedy("adopt the attempt, and commit")
}

// mayMake refuses directories that only transactions make, and those of attempts
// that are too late.
func (t *Tree) mayMake(ctx context.Context, op, path string) error {
	names := hiddenNames(path)
	switch {
	case names == nil || ofAttempt(names):
		return nil
	case len(names) < depthTask || names[2] != "attempt":
		return bb.E(bb.NotFound, op, t.address(path), "there is no such transaction that is open").WithRemedy("begin one")
	}
	return t.undecided(ctx, op, path, names)
}

// undecided refuses paths of a task that is decided, or to a transaction that is not
// open.
func (t *Tree) undecided(ctx context.Context, op, path string, names []string) error {
	id, err := bb.ParseTxnID(names[1])
	if err != nil {
		return err
	}
	x, err := t.names.Txn(ctx, id)
	if err != nil {
		return bb.Wrap(op, t.address(path), err)
	}
	if x.State != bb.TxnOpen {
		return bb.E(bb.Cancelled, op, t.address(path), "the transaction is not open any more, it is "+string(x.State))
	}
	winner, err := t.names.TxnTask(ctx, id, names[3])
	if err == nil && winner != "" {
		return bb.E(bb.Cancelled, op, t.address(path), "attempt "+winner+" has won the task").WithRemedy("abort this attempt")
	}
	return bb.Wrap(op, t.address(path), err)
}

// MayRemove refuses removals in the hidden tree, but for those of an attempt's files, of an attempt, or of all those of
// a task, that is not decided.
func (t *Tree) MayRemove(ctx context.Context, path string) error {
	names := hiddenNames(path)
	if len(names) == depthTask || len(names) == depthAttempt {
		if names[2] == "attempt" {
			return t.undecided(ctx, "remove", path, names)
		}
	}
	return t.MayChange("remove", path)
}

// TierOf returns the tier where the bytes of a file belong. For a file that an attempt writes, that
// is where they belong when its transaction is committed.
func (t *Tree) TierOf(ctx context.Context, path string) bb.Tier {
	rules := t.spec().Tiers
	if names := hiddenNames(path); len(rules) > 0 && ofAttempt(names) {
		if id, err := bb.ParseTxnID(names[1]); err == nil {
			if x, err := t.names.Txn(ctx, id); err == nil {
				path = strings.Join(append([]string{x.Destination}, names[depthAttempt:]...), "/")
			}
		}
	}
	return bb.TierOf(rules, path)
}
