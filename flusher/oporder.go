package flusher

import (
	"fmt"
	"slices"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// queuedOp is an operation in the queue, and how its attempts went. It is guarded by the
// Flusher's mu.
type queuedOp struct {
	StoreOp
	carrying  bool // an attempt is on its way
	attempts  int  // that failed
	notBefore time.Time
	err       error // of the last attempt
	gaveUp    bool  // it will not pass by itself
	outdated  bool  // a drain has begun since the attempt that is on its way did
}

// Operations that concern the same names are carried out in their order. One that fails holds
// back those behind it that concern its names, and no others: they overtake it. A store that is
// down fails them all, so only so many are tried as if others had not failed.
const (
	opsFailing = 64   // operations that fail, before no new ones are tried
	opsAhead   = 4096 // how far behind the first operation one is looked for that may overtake
)

// nextOp decides which operation is tried now, or when to look again; -1 and the zero time:
// when something changes. Blocked reports whether something else is in the way of a path.
func nextOp(ops []*queuedOp, now time.Time, blocked func(path string) bool) (next int, wake time.Time) {
	var before plan.Names // of what is not to be overtaken
	failing := 0
	for i, op := range ops[:min(len(ops), opsAhead)] {
		paths := op.paths()
		failed := op.err != nil
		if failed {
			failing++
		}
		switch {
		case op.carrying || before.Overlap(paths...) || blocked(op.Old) || op.Kind == OpRename && blocked(op.New):
		case op.notBefore.After(now):
			wake = soonest(wake, op.notBefore)
		case failed || failing < opsFailing:
			return i, time.Time{}
		}
		before.Add(paths...)
	}
	return -1, wake
}

// stuckOps are the operations that will not be carried out by themselves: those whose failure
// does not pass, and those that wait for such a one.
type stuckOps struct {
	names plan.Names // that they concern
	ops   []*queuedOp
	errs  []error // why: of the operation itself, or of the one that it waits for
}

// stuckOf finds them.
func stuckOf(ops []*queuedOp) (s stuckOps) {
	for _, op := range ops {
		err := op.err
		if !op.gaveUp {
			err = s.behind(op)
		}
		if err != nil {
			s.names.Add(op.paths()...)
			s.ops, s.errs = append(s.ops, op), append(s.errs, err)
		}
	}
	return s
}

// behind returns the error of the first that is in an operation's way.
func (s *stuckOps) behind(op *queuedOp) error {
	err := s.at(op.Old)
	if err == nil && op.Kind == OpRename {
		err = s.at(op.New)
	}
	return err
}

// at returns why what waits for operations on a path does not get on; nil: none is in its way.
func (s *stuckOps) at(path string) error {
	if !s.names.Overlap(path) {
		return nil
	}
	return s.errs[slices.IndexFunc(s.ops, func(op *queuedOp) bool { return op.concerns(path) })]
}

// stuck is stuckOf the queue's operations.
func (q *queue) stuck() *stuckOps {
	var s stuckOps
	if q.stats.opsFailing > 0 {
		s = stuckOf(q.ops)
	}
	return &s
}

// paths are the names that an operation concerns.
func (op *StoreOp) paths() []string {
	if op.Kind == OpRename {
		return []string{op.Old, op.New}
	}
	return []string{op.Old}
}

// failed notes an attempt.
func (op *queuedOp) failed(err error, until time.Time) {
	op.attempts++
	op.err = &bb.Error{Kind: bb.KindOf(err), Op: op.Kind.String(), Path: op.name(), Err: err}
	op.gaveUp, op.notBefore = !backing.Passing(err), until
	if op.gaveUp && op.outdated {
		op.gaveUp, op.notBefore = false, time.Time{}
	}
}

func (op *StoreOp) name() string {
	if op.Kind == OpRename {
		return fmt.Sprintf("%s to %s", op.Old, op.New)
	}
	return op.Old
}

// retryOps has operations that failed tried at once. The failure of an attempt that is on its
// way is of before: what did not pass by itself may have been mended since.
func (q *queue) retryOps() {
	for _, op := range q.ops {
		op.gaveUp, op.notBefore, op.outdated = false, time.Time{}, op.carrying
	}
	q.broadcast()
}

// opError returns why the first operation that fails does; nil: none does.
func (q *queue) opError() error {
	if q.stats.opsFailing == 0 {
		return nil
	}
	for _, op := range q.ops {
		if op.err != nil {
			return op.err
		}
	}
	return nil
}
