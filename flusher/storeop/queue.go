package storeop

import (
	"slices"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// Queue is the operations of a buffer that are to be carried out. It decides, and does nothing itself. It is guarded by its
// owner's lock.
type Queue struct {
	ops     []*Pending
	failing int // operations whose last attempt failed
}

// Add adds an operation.
func (q *Queue) Add(op Op) { q.ops = append(q.ops, &Pending{Op: op}) }

// AddFirst adds an operation before all others, none of which that concerns its names has begun.
func (q *Queue) AddFirst(op Op) { q.ops = slices.Insert(q.ops, 0, &Pending{Op: op}) }

// Len returns how many there are.
func (q *Queue) Len() int { return len(q.ops) }

// Failing returns how many have failed, and not been carried out since.
func (q *Queue) Failing() int { return q.failing }

// Clear drops all.
func (q *Queue) Clear() { q.ops, q.failing = nil, 0 }

// Any reports whether there is an operation for which a function returns true.
func (q *Queue) Any(is func(*Op) bool) bool {
	return slices.ContainsFunc(q.ops, func(op *Pending) bool { return is(&op.Op) })
}

// Concern reports whether a flush under a path must wait for one of them.
func (q *Queue) Concern(path string) bool {
	return q.Any(func(op *Op) bool { return op.Concerns(path) })
}

// Overwrite allows the renames of files to a path, or to one below it, to replace any object there.
func (q *Queue) Overwrite(path string) {
	for _, op := range q.ops {
		if op.Kind == Rename && !op.Tree && bb.Within(op.New, path) {
			op.Overwrite = true
		}
	}
}

// Begin returns the operation that is tried now, or nil and the time of the next check. The zero time means
// on a change. Blocked reports whether something else is in the way of a path.
func (q *Queue) Begin(now time.Time, blocked func(path string) bool) (*Pending, time.Time) {
	i, wake := nextOp(q.ops, now, blocked)
	if i < 0 {
		return nil, wake
	}
	op := q.ops[i]
	op.carrying, op.outdated = true, false
	return op, time.Time{}
}

// Done takes an operation out that was carried out, and reports whether it was still there.
func (q *Queue) Done(op *Pending) bool {
	i := slices.Index(q.ops, op)
	if i < 0 {
		return false
	}
	q.ops = slices.Delete(q.ops, i, i+1)
	if op.err != nil {
		q.failing--
	}
	return true
}

// Failed records a failed attempt of an operation, which is tried again at a time.
func (q *Queue) Failed(op *Pending, err error, until time.Time) {
	if op.err == nil {
		q.failing++
	}
	op.failed(err, until)
}

// Ended records that an attempt is not on its way any more.
func (op *Pending) Ended() { op.carrying = false }

// Attempts returns how many have failed.
func (op *Pending) Attempts() int { return op.attempts }

// Err returns how the last attempt failed, or nil if none has.
func (op *Pending) Err() error { return op.err }

// Retry tries operations that failed at once. The failure of an attempt in progress is of before,
// since its cause may be gone by now.
func (q *Queue) Retry() {
	for _, op := range q.ops {
		op.gaveUp, op.notBefore, op.outdated = false, time.Time{}, op.carrying
	}
}

// Err returns the error of the first failing operation, or nil if none fails.
func (q *Queue) Err() error {
	if q.failing == 0 {
		return nil
	}
	for _, op := range q.ops {
		if op.err != nil {
			return op.err
		}
	}
	return nil
}

// Stuck returns those that will not be carried out by themselves.
func (q *Queue) Stuck() *Stuck {
	var s Stuck
	if q.failing > 0 {
		s = stuckOf(q.ops)
	}
	return &s
}

// Len returns how many there are.
func (s *Stuck) Len() int { return len(s.ops) }

// Pending is an operation in a queue, and how its attempts went.
type Pending struct {
	Op
	carrying  bool // an attempt is on its way
	attempts  int  // that failed
	notBefore time.Time
	err       error // of the last attempt
	gaveUp    bool  // it will not pass by itself
	outdated  bool  // a drain has begun since the attempt that is on its way did
}

// Operations that concern the same names are carried out in their order. A failed operation delays
// later ones that concern its names. Others overtake it. A store that is down fails them all, so
// only so many are tried as if others had not failed.
const (
	opsFailing = 64   // operations that fail, before no new ones are tried
	opsAhead   = 4096 // how far behind the first operation one is looked for that may overtake
)

// nextOp decides which operation is tried now, or the time of the next check. It returns -1 and the
// zero time if the next try follows a change. Blocked reports whether something else is in the way
// of a path.
func nextOp(ops []*Pending, now time.Time, blocked func(path string) bool) (next int, wake time.Time) {
	var before plan.Names // of operations that must not be overtaken
	failing := 0
	for i, op := range ops[:min(len(ops), opsAhead)] {
		paths := op.paths()
		failed := op.err != nil
		if failed {
			failing++
		}
		switch {
		case op.carrying || before.Overlap(paths...) || blocked(op.Old) || op.Kind == Rename && blocked(op.New):
		case op.notBefore.After(now):
			wake = plan.Soonest(wake, op.notBefore)
		case failed || failing < opsFailing:
			return i, time.Time{}
		}
		before.Add(paths...)
	}
	return -1, wake
}

// Stuck are the operations that will not be carried out by themselves: those whose failure
// does not pass, and those that wait for such a one.
type Stuck struct {
	names plan.Names // that they concern
	ops   []*Pending
	errs  []error // the reason: of the operation itself, or of the one that it waits for
}

// stuckOf finds them.
func stuckOf(ops []*Pending) (s Stuck) {
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
func (s *Stuck) behind(op *Pending) error {
	err := s.At(op.Old)
	if err == nil && op.Kind == Rename {
		err = s.At(op.New)
	}
	return err
}

// At returns the reason why operations on a path make no progress, or nil if none is pending there.
func (s *Stuck) At(path string) error {
	if !s.names.Overlap(path) {
		return nil
	}
	return s.errs[slices.IndexFunc(s.ops, func(op *Pending) bool { return op.Concerns(path) })]
}

// failed records an attempt.
func (op *Pending) failed(err error, until time.Time) {
	op.attempts++
	op.err = &bb.Error{Kind: bb.KindOf(err), Op: op.Kind.String(), Path: op.name(), Err: err}
	op.gaveUp, op.notBefore = !backing.Passing(err), until
	if op.gaveUp && op.outdated {
		op.gaveUp, op.notBefore = false, time.Time{}
	}
}
