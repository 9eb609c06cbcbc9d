package walk

import (
	"context"
	"slices"

	"forebay/meta/namespace"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/shared/calls"
)

// Follow returns a reader of changes that reads all pending operations each time.
func Follow(all func(context.Context) ([]namespace.StoreOp, error)) namespace.OpReader {
	return &follower{all: all}
}

// follower is a namespace.OpReader.
type follower struct {
	all   func(context.Context) ([]namespace.StoreOp, error)
	known []namespace.StoreOp
}

// Read returns the operations that came and went since it was called before.
func (f *follower) Read(ctx context.Context) (came, went []namespace.StoreOp, err error) {
	now, err := f.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	came, went = less(now, f.known), less(f.known, now)
	f.known = now
	return came, went, nil
}

// less returns the operations that are not among others at their revisions.
func less(all, others []namespace.StoreOp) []namespace.StoreOp {
	at := make(map[uint64]struct{}, len(others))
	for i := range others {
		at[others[i].Revision] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(all), func(op namespace.StoreOp) bool {
		_, is := at[op.Revision]
		return is
	})
}

// OpsAfter returns the first operations, as many as an answer has, behind a place, and whether there are more.
func OpsAfter(ops []namespace.StoreOp, after uint64) (_ []namespace.StoreOp, more bool) {
	from := 0
	for from < len(ops) && ops[from].Seq <= after {
		from++
	}
	ops = ops[from:]
	size := 0
	for i := range ops {
		if size += len(record.OpValue(&ops[i])) + 16; size > calls.AnswerBytes && i > 0 {
			return ops[:i], true
		}
	}
	return ops, false
}
