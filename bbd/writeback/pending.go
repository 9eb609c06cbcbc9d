package writeback

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"forebay/bbd/lockrank"
	"forebay/flusher/plan"
	"forebay/internal/lockorder"
	"forebay/internal/rounds"
	"forebay/meta/namespace"
)

// pendingOps has the renames and removals of a buffer that the namespace has
// noted for the store, and that were not submitted to this daemon's flusher. They are those of
// other daemons, and its own until they are. Each is read once when it comes and once when it goes,
// however many are pending.
type pendingOps struct {
	reads   rounds.Group[struct{}] // of follower
	submits rounds.Group[struct{}] // of this daemon's own to the flusher

	follower  namespace.OpReader // used in a read alone
	replaying atomic.Bool        // replayLater is on its way
	failures  atomic.Uint64      // calls of replay that have failed
	mended    atomic.Uint64      // those of them from before the last run that succeeded

	mu    lockorder.Mutex[lockrank.Leaf]
	ahead map[uint64]*namespace.StoreOp // not submitted, by revision
	mine  map[uint64]*namespace.StoreOp // those of ahead that this daemon carries out
	names plan.Index[uint64]            // of ahead
}

func newPendingOps(follower namespace.OpReader) *pendingOps {
	return &pendingOps{follower: follower, ahead: map[uint64]*namespace.StoreOp{}, mine: map[uint64]*namespace.StoreOp{}}
}

// read brings in all operations that were noted, carried out or adopted before it was called. Mine
// reports which of the noted ones this daemon carries out.
func (n *pendingOps) read(ctx context.Context, mine func(*namespace.StoreOp) bool) error {
	_, err := n.reads.Do(ctx, func(ctx context.Context) (struct{}, error) {
		came, went, err := n.follower.Read(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		for i := range went {
			n.strike(went[i].Revision)
		}
		for i := range came {
			n.add(&came[i], mine(&came[i]))
		}
		return struct{}{}, err
	})
	return err
}

// behind reports whether a replay has failed, and none that began after that has succeeded. The flusher may
// lack operations that it should have.
func (n *pendingOps) behind() bool { return n.failures.Load() > n.mended.Load() }

func (n *pendingOps) add(op *namespace.StoreOp, mine bool) {
	n.ahead[op.Revision] = op
	n.names.Add(op.Revision, pathsOf(op)...)
	if mine {
		n.mine[op.Revision] = op
	}
}

// strike takes an operation out that is done, another daemon's now, or submitted to the flusher.
// The lock is held.
func (n *pendingOps) strike(revision uint64) {
	op := n.ahead[revision]
	if op == nil {
		return
	}
	delete(n.ahead, revision)
	delete(n.mine, revision)
	n.names.Remove(revision, pathsOf(op)...)
}

// submitted strikes an operation out that the flusher has. It keeps the order from then on.
func (n *pendingOps) submitted(op *namespace.StoreOp) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.strike(op.Revision)
}

// submittable returns, in their order, this daemon's operations that are not behind one of the same
// names that is another daemon's or waits for such a one. Wait reports that others are. The flusher
// keeps the order among its submitted operations.
func (n *pendingOps) submittable() (next []*namespace.StoreOp, wait bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var waiting plan.Names
	for _, op := range slices.SortedFunc(maps.Values(n.mine), func(a, b *namespace.StoreOp) int { return cmp.Compare(a.Seq, b.Seq) }) {
		if paths := pathsOf(op); waiting.Overlap(paths...) || n.behindOthers(op) {
			waiting.Add(paths...)
			wait = true
		} else {
			next = append(next, op)
		}
	}
	return next, wait
}

// behindOthers reports whether another daemon has to carry something out first.
func (n *pendingOps) behindOthers(op *namespace.StoreOp) bool {
	for revision := range n.names.Overlapping(pathsOf(op)...) {
		if n.mine[revision] == nil && n.ahead[revision].Seq < op.Seq {
			return true
		}
	}
	return false
}

// concerning returns an operation that concerns the store's objects at a path, or nil if there is
// none, or the flusher has it.
func (n *pendingOps) concerning(path string) *namespace.StoreOp {
	n.mu.Lock()
	defer n.mu.Unlock()
	for revision := range n.names.Overlapping(path) {
		return n.ahead[revision]
	}
	return nil
}
