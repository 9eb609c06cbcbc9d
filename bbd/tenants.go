package bbd

import (
	"context"
	"slices"

	"forebay/bbd/access"
	"forebay/bbd/admit"
	"forebay/flusher/backing/health"
)

// Where several users share memory, free bytes may lie in regions that are not for everybody: the
// store refuses a lease beyond a user's share. Room is then made for each user in the line on its own.

// await names the users in the line to the store, and reports whether memory is divided among users.
func (r *room) await(waiting map[uint64]*waiter) bool {
	if !r.d.cfg.Store.Shares {
		return false
	}
	users := make([]uint32, 0, len(waiting))
	for _, w := range waiting {
		if !slices.Contains(users, w.uid) {
			users = append(users, w.uid)
		}
	}
	r.d.store.Await(users)
	return len(users) > 0 && r.d.store.Shared()
}

// perUser changes a decision for memory that is divided. Bytes are not evicted by age from everybody:
// each user in the line without a grant has one attempt, in which the store makes room for
// that user. Attempts come first, so that Spill begins with a region that is being vacated.
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

// claim makes room for one waiter whom the store has refused.
func (r *room) claim(w *waiter, bytes int64) {
	w.refused++
	bytes = min(bytes*w.refused, r.d.store.Stats().Memory.Capacity)
	made := r.clear(w, bytes)
	if made.Freed >= bytes {
		return
	}
	switch bytes = max(bytes, made.Moves); {
	case r.d.cfg.Store.DiskDir != "":
		r.spill(bytes, func(ctx context.Context, n int64) (int64, error) { return r.d.store.SpillFor(ctx, w.uid, n) })
	case r.d.cluster != nil:
		r.move(bytes)
	}
}

// fixed reports whether a buffer's bytes can be moved nowhere once they are in memory.
func (r *room) fixed(b *buffer) bool {
	return r.d.cfg.Store.Shares && r.d.cfg.Store.DiskDir == "" && !r.flushes(b)
}

// flushes reports whether a buffer's dirty bytes become clean by themselves: it has a store, which answers.
func (r *room) flushes(b *buffer) bool {
	if b.spec().Backing == "" {
		return false
	}
	switch r.d.stores.Health(b.name).Status().Condition {
	case health.Silent, health.Failing:
		return false
	}
	return true
}

// What a writer in the line waits for, as status says it.
const (
	waitsForOwn    = "own data"
	waitsForOthers = "others' data"
)

// count adds a writer in the line to its user's status. Nothing of other users is in it, but for the administrator.
func (s *WaitStatus) count(w *waiter, c access.Caller) {
	if !c.System && c.UID != w.uid {
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
