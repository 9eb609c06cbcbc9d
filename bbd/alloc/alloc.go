// Package alloc grants writers segments of the daemon's memory. It must never depend on the files
// that are made of the segments, nor on the way of bytes to a store or another node.
package alloc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/admit"
	"forebay/bbd/lockrank"
	"forebay/bbd/share"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Buffer is a buffer that segments are for. Equal values are the same buffer. Its methods may be called
// concurrently.
type Buffer interface {
	Spec() bb.Buffer
	// Blocked counts the time that a writer has waited.
	Blocked(time.Duration)
	// ReleaseIdle returns the segments that the daemon itself fills and does not use now.
	ReleaseIdle()
	// Flushes reports whether dirty bytes become clean by themselves. There is a store, which answers.
	Flushes() bool
}

// Claimant is a client of this node whose writers wait. Equal values are the same client.
type Claimant interface {
	// Claim returns the client's memory of a buffer, and how many of its files it has open for writing.
	Claim(Buffer) (has store.Claim, writes int)
}

// Overflow is the memory of other nodes.
type Overflow interface {
	// FreeElsewhere returns how much of it is free.
	FreeElsewhere() int64
	// Migrate moves files of so many bytes there, and returns how many bytes it has moved.
	Migrate(ctx context.Context, bytes int64) int64
}

// Events are called when something has happened. They may be called concurrently.
type Events interface {
	Waited(time.Duration)
	Evicted(tier bb.Tier, bytes int64)
	Spilled(bytes int64)
}

// Options are the environment of an Allocator.
type Options struct {
	Store     *store.Store
	Buffers   func() []Buffer // all
	Overflow  Overflow        // nil: there are no other nodes
	Waiters   *share.Pool     // places in the queue, for users
	High, Low float64         // share of memory that may be in use before memory is freed, and down to which
	Shares    bool            // memory is divided among users
	Disk      bool            // there is a disk tier
	Pressure  func(bool)      // called with whether memory is short, whenever that is looked up
	Events    Events
	Log       *slog.Logger
}

// Allocator grants writers segments. While none is free they wait in a queue, fairly among users,
// then among buffers and then among clients, while Run frees memory. It evicts clean bytes, spills
// to disk, moves files to other nodes, and waits for the flusher (contract 14). Its methods may be
// called concurrently.
type Allocator struct {
	o      Options
	ctx    context.Context // ends when the daemon stops
	wakeup chan struct{}   // holds at most one

	mu struct {
		lockorder.Mutex[lockrank.Allocator]
		queue []*waiter // in order of arrival
		last  uint64
	}

	served admit.Served // of step alone
	free   struct {     // elsewhere, as it was last counted (used by step alone)
		bytes int64
		at    time.Time
	}
	looked   time.Time         // when unstick last ran (used by step alone)
	claims   map[claimKey]seen // its claims at that time, likewise
	underWay atomic.Int64      // bytes being spilled
	moving   atomic.Int64      // bytes being moved to other nodes
	spilling sync.WaitGroup
}

// Request is a writer's request for a segment.
type Request struct {
	Buffer   Buffer
	UID      uint32
	Client   uint64   // the session; 0: the daemon itself
	Claimant Claimant // nil: waits without an end are not looked for, as of a client of another node
	Bytes    int64    // requested: a segment of this size or less
	Min      int64    // bytes that must fit into it
	Fits     int64    // bytes that should
	NoWait   bool     // fail rather than wait
	Tier     bb.Tier  // where the bytes belong
	Files    int      // open for writing, that cannot go on without it
	AllFiles bool     // by the client: Files are all that wait
	Commits  bool     // on request, the client commits its writes and tries again
}

// WaitStatus is how many writers wait for memory.
type WaitStatus struct {
	Writers int            `json:"writers"`
	Users   int            `json:"users,omitempty"` // with a writer in the queue
	Longest float64        `json:"longest,omitempty"`
	Buffers map[string]int `json:"buffers,omitempty"`
	For     map[string]int `json:"for,omitempty"` // writers by the memory that they wait for: "own data", "others' data"; without other users' writers, but for root
}

// address returns bb://buffer.
func address(b Buffer) string { return bb.Address{Buffer: b.Spec().Name}.String() }

// waiter is a writer that waits for a segment.
type waiter struct {
	Request
	id      uint64
	since   time.Time
	refused int64      // how often free memory was of no use to it
	others  bool       // it waits for memory that other users have; guarded by the allocator's mu
	granted chan grant // holds one
}

type grant struct {
	lease store.Lease
	err   error
}

// pollEvery is how often the queue is polled, since pins and snapshots end without a wake-up.
const pollEvery = 20 * time.Millisecond

// New returns an allocator that works until ctx ends.
func New(ctx context.Context, o Options) *Allocator {
	return &Allocator{o: o, ctx: ctx, wakeup: make(chan struct{}, 1)}
}

// Wake has the queue checked, since memory may be free now.
func (r *Allocator) Wake() {
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// MaxLease is the largest segment that one client is given, so that some that hold
// theirs without filling them do not keep the others from working.
func (r *Allocator) MaxLease() int64 {
	return max(store.Unit, r.o.Store.Stats().Memory.Capacity/32)
}

// Release returns a segment whose writer has stopped.
func (r *Allocator) Release(b Buffer, id bb.LeaseID) {
	if err := r.o.Store.Release(id); err != nil {
		r.o.Log.Warn("releasing a lease", "buffer", b.Spec().Name, "err", err)
	}
	r.Wake()
}

// Abandon takes a segment from a writer that did not return it. It may be copying still, so the rest of
// the segment is not leased again.
func (r *Allocator) Abandon(id bb.LeaseID) {
	if err := r.o.Store.Abandon(id); err != nil {
		r.o.Log.Warn("taking back a lease", "err", err)
	}
	r.Wake()
}

// Lease returns a segment, waiting until there is one or ctx ends.
func (r *Allocator) Lease(ctx context.Context, q Request) (store.Lease, error) {
	if err := r.ctx.Err(); err != nil {
		return store.Lease{}, bb.E(bb.Unavailable, "lease", address(q.Buffer), "the daemon is stopping")
	}
	w := &waiter{Request: q, since: time.Now(), granted: make(chan grant, 1)}
	lease, err := r.enqueue(w)
	if err == errNoWait && !w.NoWait {
		r.clear(w, max(w.Bytes, w.Min))
		lease, err = r.enqueue(w)
	}
	switch err {
	case errMustWait:
	case errNoWait:
		return store.Lease{}, bb.E(bb.NoSpace, "lease", address(w.Buffer), "no memory is free, and its writer does not wait")
	default:
		return lease, err
	}
	defer r.left(w)
	r.Wake()
	select {
	case g := <-w.granted:
		r.o.Events.Waited(time.Since(w.since))
		q.Buffer.Blocked(time.Since(w.since))
		return g.lease, g.err
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
	return r.cancel(ctx, w)
}

var (
	errMustWait = errors.New("must wait")
	errNoWait   = errors.New("must wait, and does not")
)

// enqueue takes a segment at once when the queue is empty, or joins it.
func (r *Allocator) enqueue(w *waiter) (store.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	noWait := w.NoWait || w.Buffer.Spec().NoWait
	if len(r.mu.queue) == 0 || noWait && r.ownTurn(w) {
		lease, err := r.try(w)
		if !errors.Is(err, store.ErrNoRoom) && err != errMustWait {
			return lease, err
		}
	}
	if noWait {
		return store.Lease{}, errNoWait
	}
	if err := r.joins(w); err != nil {
		return store.Lease{}, err
	}
	r.mu.last++
	w.id = r.mu.last
	r.mu.queue = append(r.mu.queue, w)
	return store.Lease{}, errMustWait
}

// ownTurn reports whether no writer of the user's waits, where users have shares. The others in the queue wait
// for memory that this user does not get.
func (r *Allocator) ownTurn(w *waiter) bool {
	return r.o.Store.Shared() && !slices.ContainsFunc(r.mu.queue, func(x *waiter) bool { return x.UID == w.UID })
}

// joins counts a writer in the queue, in its user's share of the places there.
func (r *Allocator) joins(w *waiter) error {
	if access.IsOwner(w.UID) || r.o.Waiters.Take(w.UID, 1) {
		return nil
	}
	has, _ := r.o.Waiters.Of(w.UID)
	return bb.E(bb.Busy, "lease", address(w.Buffer), bb.Count(int(has), "writer of this user waits", "writers of this user wait")+" for room already").
		WithRemedy("write with fewer at the same time, or raise limits.waiters")
}

// left reverts a join.
func (r *Allocator) left(w *waiter) {
	if !access.IsOwner(w.UID) {
		r.o.Waiters.Give(w.UID, 1)
	}
}

// cancel removes an abandoned waiter from the queue. Segments that it was granted meanwhile go back.
func (r *Allocator) cancel(ctx context.Context, w *waiter) (store.Lease, error) {
	r.mu.Lock()
	for i, x := range r.mu.queue {
		if x == w {
			r.mu.queue = append(r.mu.queue[:i], r.mu.queue[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	select {
	case g := <-w.granted:
		if g.err == nil {
			r.o.Store.Release(g.lease.ID)
		}
	default:
	}
	if err := ctx.Err(); err != nil {
		return store.Lease{}, bb.Wrap("lease", address(w.Buffer), err)
	}
	return store.Lease{}, bb.E(bb.Unavailable, "lease", address(w.Buffer), "the daemon is stopping")
}

// try leases a segment for w, within its buffer's capacity.
func (r *Allocator) try(w *waiter) (store.Lease, error) {
	spec := w.Buffer.Spec()
	bytes := w.Bytes
	if spec.Capacity > 0 {
		left := spec.Capacity - r.o.Store.Stats().Buffers[spec.Name].Dirty
		if left <= 0 {
			if spec.Backing == "" || spec.NoWait {
				return store.Lease{}, bb.E(bb.NoSpace, "lease", address(w.Buffer),
					fmt.Sprintf("its capacity of %d bytes is used up", spec.Capacity)).
					WithRemedy("remove files, or make the buffer larger")
			}
			return store.Lease{}, errMustWait // flushing makes room
		}
		bytes = min(bytes, max(left, store.Unit))
	}
	return r.segment(w, bytes)
}

// segment leases one that has room for the bytes that should fit. An unfinished segment that is too
// small would come back, and be the next to be leased again. A waiter that may wait gets one of those
// only after fittingPatience.
func (r *Allocator) segment(w *waiter, bytes int64) (store.Lease, error) {
	q := store.LeaseRequest{Buffer: w.Buffer.Spec().Name, UID: w.UID, Bytes: bytes, Min: w.Min, Tier: w.Tier, Fixed: r.fixed(w.Buffer)}
	if q.Min < w.Fits {
		q.Min = w.Fits
		l, err := r.o.Store.Lease(q)
		if err == nil || errors.Is(err, store.ErrNoRoom) && time.Since(w.since) < fittingPatience && !w.NoWait && !w.Buffer.Spec().NoWait {
			return l, err
		}
		q.Min = w.Min
	}
	return r.o.Store.Lease(q)
}

// fittingPatience is how long a writer waits for a segment with room for the bytes that should fit.
const fittingPatience = 2 * time.Second

// Run frees memory and grants segments until the daemon stops.
func (r *Allocator) Run() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			r.spilling.Wait()
			return
		case <-r.wakeup:
		case <-tick.C:
		}
		r.step()
	}
}

// step carries out the decision of admit.
func (r *Allocator) step() {
	r.o.Store.FreeOccupied()
	requests, waiting := r.queued()
	shared := r.await(waiting)
	state := r.state(requests, waiting)
	r.unstick(waiting, &state)
	var actions []admit.Action
	actions, r.served = admit.Decide(state, r.served)
	if shared {
		actions = perUser(actions, &state)
	}
	for _, a := range actions {
		w := waiting[a.Request]
		switch a.Kind {
		case admit.Grant:
			r.grant(w, a.Bytes)
		case admit.Refuse:
			r.finish(w, grant{err: bb.E(bb.NoSpace, "lease", address(w.Buffer), a.Reason).
				WithRemedy("remove files, or make the buffer larger")})
		case admit.Evict:
			r.Evict(a.Bytes)
		case admit.Spill:
			r.spill(a.Bytes, r.o.Store.Spill)
		case admit.SpillMisplaced:
			r.spill(a.Bytes, r.o.Store.SpillMisplaced)
		case admit.Move:
			r.move(a.Bytes)
		}
	}
}

// queued returns the waiters, oldest first.
func (r *Allocator) queued() ([]admit.Request, map[uint64]*waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	waiting := make(map[uint64]*waiter, len(r.mu.queue))
	requests := make([]admit.Request, 0, len(r.mu.queue))
	for _, w := range r.mu.queue {
		waiting[w.id] = w
		spec := w.Buffer.Spec()
		requests = append(requests, admit.Request{
			ID: w.id, User: strconv.FormatUint(uint64(w.UID), 10), Buffer: spec.Name, Client: strconv.FormatUint(w.Client, 10),
			Bytes: w.Bytes, Age: now.Sub(w.since), NoWait: spec.NoWait,
		})
	}
	return requests, waiting
}

func (r *Allocator) state(requests []admit.Request, waiting map[uint64]*waiter) admit.State {
	stats := r.o.Store.Stats()
	m := stats.Memory
	r.o.Pressure(len(waiting) > 0 || float64(m.Used) > r.o.High*float64(m.Capacity-m.Kept))
	marks := r.watermarks(m.Capacity)
	if m.Kept > 0 && marks.Low > 0 { // is free for good
		marks.Low, marks.High = marks.Low+m.Kept, marks.High+m.Kept
	}
	state := admit.State{
		Pool: admit.Pool{
			Free: m.Free, Evictable: m.Evictable, Spillable: m.Spillable, Misplaced: m.Misplaced, Populating: stats.Populating,
			DiskFree: stats.Disk.Capacity - stats.Disk.Used + stats.Disk.Evictable, UnderWay: r.underWay.Load() + r.moving.Load(),
		},
		Watermarks: marks,
		Buffers:    map[string]admit.Buffer{},
		Waiting:    requests,
	}
	if len(waiting) > 0 && r.o.Overflow != nil && r.moving.Load() == 0 {
		state.Pool.Movable = min(m.Dirty, r.freeElsewhere())
	}
	if stats.Populating {
		state.Watermarks = admit.Watermarks{} // free memory is still on its way
	}
	for _, w := range waiting {
		spec := w.Buffer.Spec()
		b := admit.Buffer{Used: stats.Buffers[spec.Name].Dirty, Capacity: spec.Capacity}
		if spec.Backing != "" {
			b.Evictable = b.Used // flushing makes room; its writers wait for that
		}
		state.Buffers[spec.Name] = b
	}
	return state
}

// freeFor is how long a count of free memory elsewhere stays valid. The queue is polled more often,
// and there may be thousands of members to count.
const freeFor = 200 * time.Millisecond

func (r *Allocator) freeElsewhere() int64 {
	if time.Since(r.free.at) > freeFor {
		r.free.bytes, r.free.at = r.o.Overflow.FreeElsewhere(), time.Now()
	}
	return r.free.bytes
}

func (r *Allocator) watermarks(capacity int64) admit.Watermarks {
	return admit.Watermarks{Low: int64((1 - r.o.High) * float64(capacity)), High: int64((1 - r.o.Low) * float64(capacity))}
}

func (r *Allocator) grant(w *waiter, bytes int64) {
	lease, err := r.segment(w, bytes)
	if errors.Is(err, store.ErrPopulating) {
		return // free memory is on its way, so nothing has to make room
	}
	if errors.Is(err, store.ErrNoRoom) && r.o.Store.Shared() {
		r.claim(w, max(bytes, w.Min))
		return
	}
	if errors.Is(err, store.ErrNoRoom) {
		// Free, but in pieces, or in another user's regions. More of it must become free.
		w.refused++
		more := min(max(bytes, w.Min)*w.refused, r.o.Store.Stats().Memory.Capacity)
		switch {
		case r.Evict(more) >= more:
		case r.o.Disk:
			r.spill(more, r.o.Store.Spill)
		case r.o.Overflow != nil:
			r.move(more)
		}
		return
	}
	r.finish(w, grant{lease, err})
}

// finish answers a waiter and removes it from the queue, unless it was abandoned.
func (r *Allocator) finish(w *waiter, g grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.mu.queue, w)
	if i < 0 {
		if g.err == nil {
			r.o.Store.Release(g.lease.ID)
		}
		return
	}
	r.mu.queue = slices.Delete(r.mu.queue, i, i+1)
	w.granted <- g
}

// clear frees memory that needs no wait: clean bytes, of the writer's user where users have shares, and
// idle leases of the daemon's own.
func (r *Allocator) clear(w *waiter, bytes int64) (made store.Room) {
	if !r.o.Store.Shared() {
		made.Freed = r.Evict(bytes)
		return made
	}
	flushes := make(map[string]bool)
	for _, b := range r.o.Buffers() {
		flushes[b.Spec().Name] = b.Flushes()
	}
	made = r.o.Store.MakeRoom(store.RoomRequest{UID: w.UID, Bytes: bytes, Fixed: r.fixed(w.Buffer), Flushes: flushes})
	r.o.Events.Evicted(bb.TierMemory, made.Freed)
	r.mu.Lock()
	w.others = made.Others
	r.mu.Unlock()
	if made.Freed < bytes {
		for _, b := range r.o.Buffers() {
			b.ReleaseIdle()
		}
	}
	return made
}

// Evict frees clean memory. Where that is not enough, idle leases of the daemon's own go back.
// Uncommitted segments of writers that lost their daemon stay theirs until they have unlocked them,
// and until ResumeGrace is over, since they copy out of them into the room that is requested here.
func (r *Allocator) Evict(bytes int64) (freed int64) {
	freed = r.o.Store.Evict(bb.TierMemory, bytes)
	r.o.Events.Evicted(bb.TierMemory, freed)
	if freed < bytes {
		for _, b := range r.o.Buffers() {
			b.ReleaseIdle()
		}
	}
	return freed
}

// spill moves segments to disk in the background, one batch at a time.
func (r *Allocator) spill(bytes int64, by func(context.Context, int64) (int64, error)) {
	if !r.underWay.CompareAndSwap(0, bytes) {
		return
	}
	r.spilling.Go(func() {
		defer r.underWay.Store(0)
		moved, err := by(r.ctx, bytes)
		r.o.Events.Spilled(moved)
		if err != nil && r.ctx.Err() == nil {
			r.o.Log.Warn("spilling to disk", "err", err)
			// Clean segments on disk make room for dirty ones from memory.
			if freed := r.o.Store.Evict(bb.TierDisk, bytes); freed > 0 {
				r.o.Events.Evicted(bb.TierDisk, freed)
			} else {
				r.pause() // it would not go otherwise at once again
			}
		}
		r.Wake()
	})
}

// move has files move to other nodes in the background, one batch at a time.
func (r *Allocator) move(bytes int64) {
	if !r.moving.CompareAndSwap(0, bytes) {
		return
	}
	r.spilling.Go(func() {
		if r.o.Overflow.Migrate(r.ctx, bytes) == 0 {
			r.pause() // no node accepts any; no request again at once
		}
		r.moving.Store(0)
		r.Wake()
	})
}

// movePause is how long nothing is spilled, or moved, after nothing could be.
const movePause = time.Second

func (r *Allocator) pause() {
	select {
	case <-time.After(movePause):
	case <-r.ctx.Done():
	}
}

// Status returns the number of waiting leases, the longest wait, and those of their buffers that
// a user may enter.
func (r *Allocator) Status(c access.Caller) WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := WaitStatus{Writers: len(r.mu.queue), Buffers: map[string]int{}}
	users := make(map[uint32]bool)
	for _, w := range r.mu.queue {
		users[w.UID] = true
		s.count(w, c)
		if spec := w.Buffer.Spec(); c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			s.Buffers[spec.Name]++
		}
		s.Longest = max(s.Longest, time.Since(w.since).Seconds())
	}
	s.Users = len(users)
	return s
}
