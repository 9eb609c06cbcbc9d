package alloc

import (
	"context"
	"slices"

	"forebay/bbd/access"
	"forebay/bbd/admit"
)

// Where several users share memory, free bytes may lie in regions that are barred from some users. The
// store refuses a lease beyond a user's share. Memory is then freed for each user in the queue on its own.

// await names the users in the queue to the store, and reports whether memory is divided among users.
func (r *Allocator) await(waiting map[uint64]*waiter) bool {
	if !r.o.Shares {
		return false
	}
	users := make([]uint32, 0, len(waiting))
	for _, w := range waiting {
		if !slices.Contains(users, w.UID) {
			users = append(users, w.UID)
		}
	}
	r.o.Store.Await(users)
	return len(users) > 0 && r.o.Store.Shared()
}

// perUser changes a decision for memory that is divided. Bytes are not evicted by age across all users.
// Each user in the queue without a grant has one attempt, in which the store frees memory for that
// user. Attempts come first, so that Spill begins with a region that is being vacated.
func perUser(actions []admit.Action, state *admit.State) []admit.Action {
	tried, asked := map[string]bool{}, map[uint64]*admit.Request{}
	for i := range state.Waiting {
		asked[state.Waiting[i].ID] = &state.Waiting[i]
	}
	var first, rest []admit.Action
	for _, a := range actions {
		switch a.Kind {
		case admit.Grant, admit.Refuse:
			first = append(first, a)
			tried[asked[a.Request].User] = true
		case admit.Evict:
		case admit.Wait:
			q := asked[a.Request]
			b := state.Buffers[q.Buffer]
			if full := b.Capacity > 0 && b.Capacity-b.Used < admit.Unit; !full && !tried[q.User] {
				tried[q.User] = true
				first = append(first, admit.Action{Kind: admit.Grant, Request: a.Request, Bytes: q.Bytes})
			}
		default:
			rest = append(rest, a)
		}
	}
	return append(first, rest...)
}

// claim frees memory for one waiter that the store has refused.
func (r *Allocator) claim(w *waiter, bytes int64) {
	w.refused++
	bytes = min(bytes*w.refused, r.o.Store.Stats().Memory.Capacity)
	made := r.clear(w, bytes)
	if made.Freed >= bytes {
		return
	}
	switch bytes = max(bytes, made.Moves); {
	case r.o.Disk:
		r.spill(bytes, func(ctx context.Context, n int64) (int64, error) { return r.o.Store.SpillFor(ctx, w.UID, n) })
	case r.o.Overflow != nil:
		r.move(bytes)
	}
}

// fixed reports whether a buffer's bytes can be moved nowhere once they are in memory.
func (r *Allocator) fixed(b Buffer) bool {
	return r.o.Shares && !r.o.Disk && !b.Flushes()
}

// The causes of a writer's wait in the queue, as in the status.
const (
	waitsForOwn    = "own data"
	waitsForOthers = "others' data"
)

// count adds a writer in the queue to its user's status. Nothing of other users is in it, but for the administrator.
func (s *WaitStatus) count(w *waiter, c access.Caller) {
	if !c.System && c.UID != w.UID {
		return
	}
	if s.For == nil {
		s.For = make(map[string]int)
	}
	if w.others {
		s.For[waitsForOthers]++
	} else {
		s.For[waitsForOwn]++
	}
}
