package bbd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/admit"
	"forebay/bbd/lockrank"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// room gives writers segments. When none is free they wait in line, fairly among
// users, then among buffers and then among clients, while one goroutine makes room: it evicts what is
// clean, spills to disk, moves files to other nodes, and waits for the flusher (contract 14).
type room struct {
	d      *Daemon
	wakeup chan struct{} // holds at most one

	mu struct {
		lockorder.Mutex[lockrank.Allocator]
		waiting []*waiter // in order of arrival
		last    uint64
	}

	served admit.Served // of step alone
	free   struct {     // elsewhere, as it was last counted; of step alone
		bytes int64
		at    time.Time
	}
	looked   time.Time         // when unstick last looked; of step alone
	claims   map[claimKey]seen // what it saw, likewise
	underWay atomic.Int64      // bytes being spilled
	moving   atomic.Int64      // bytes being moved to other nodes
	spilling sync.WaitGroup
}

// leaseRequest is what a writer asks for.
type leaseRequest struct {
	buffer  *buffer
	uid     uint32
	client  uint64       // the session; 0: the daemon itself
	session *rpc.Session // likewise; nil
	bytes   int64        // wanted: a segment of this size or less
	min     int64        // bytes that must fit into it
	fits    int64        // bytes that should
	noWait  bool         // fail rather than wait
	tier    bb.Tier      // where the bytes belong
	files   int          // open for writing, that cannot go on without it
	said    bool         // by the client: files are all that wait
	commits bool         // the client commits what it has, and asks again, when asked to
}

// waiter is a writer that waits for a segment.
type waiter struct {
	leaseRequest
	id      uint64
	since   time.Time
	refused int64      // how often free memory was of no use to it
	others  bool       // memory that others have is what it waits for; guarded by the room's mu
	granted chan grant // holds one
}

type grant struct {
	lease store.Lease
	err   error
}

// recheck is how often the line is looked at when nobody says that there is room:
// pins and snapshots end without telling.
const recheck = 20 * time.Millisecond

func newRoom(d *Daemon) *room {
	return &room{d: d, wakeup: make(chan struct{}, 1)}
}

// kick says that there may be room now.
func (r *room) kick() {
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// share is the largest segment that one client is given, so that some that hold
// theirs without filling them do not keep the others from working.
func (r *room) share() int64 {
	return max(store.Unit, r.d.store.Stats().Memory.Capacity/32)
}

// lease returns a segment, waiting until there is one or ctx ends.
func (r *room) lease(ctx context.Context, q leaseRequest) (store.Lease, error) {
	if err := r.d.ctx.Err(); err != nil {
		return store.Lease{}, bb.E(bb.Unavailable, "lease", q.buffer.address(""), "the daemon is stopping")
	}
	w := &waiter{leaseRequest: q, since: time.Now(), granted: make(chan grant, 1)}
	lease, err := r.enter(w)
	if err == errNoWait && !w.noWait {
		r.clear(w, max(w.bytes, w.min))
		lease, err = r.enter(w)
	}
	switch err {
	case errMustWait:
	case errNoWait:
		return store.Lease{}, bb.E(bb.NoSpace, "lease", w.buffer.address(""), "no memory is free, and its writer does not wait")
	default:
		return lease, err
	}
	defer r.left(w)
	r.kick()
	select {
	case g := <-w.granted:
		r.d.observe.waited(time.Since(w.since))
		q.buffer.usage.Blocked(time.Since(w.since))
		return g.lease, g.err
	case <-ctx.Done():
	case <-r.d.ctx.Done():
	}
	return r.leave(ctx, w)
}

var (
	errMustWait = errors.New("must wait")
	errNoWait   = errors.New("must wait, and does not")
)

// enter takes a segment at once when nobody is in line, or joins it.
func (r *room) enter(w *waiter) (store.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	noWait := w.noWait || w.buffer.spec().NoWait
	if len(r.mu.waiting) == 0 || noWait && r.ownTurn(w) {
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
	r.mu.waiting = append(r.mu.waiting, w)
	return store.Lease{}, errMustWait
}

// ownTurn reports whether no writer of the user's waits, where users have shares: the others in the line wait
// for memory that this user does not get.
func (r *room) ownTurn(w *waiter) bool {
	return r.d.store.Shared() && !slices.ContainsFunc(r.mu.waiting, func(x *waiter) bool { return x.uid == w.uid })
}

// joins counts a writer in the line, in its user's share of the places there.
func (r *room) joins(w *waiter) error {
	if access.IsOwner(w.uid) || r.d.shares.waiters.Take(w.uid, 1) {
		return nil
	}
	has, _ := r.d.shares.waiters.Of(w.uid)
	return bb.E(bb.Busy, "lease", w.buffer.address(""), bb.Count(int(has), "writer of this user waits", "writers of this user wait")+" for room already").
		WithRemedy("write with fewer at the same time, or raise limits.waiters")
}

// left ends what joins has begun.
func (r *room) left(w *waiter) {
	if !access.IsOwner(w.uid) {
		r.d.shares.waiters.Give(w.uid, 1)
	}
}

// leave takes a waiter that gave up out of the line. What it was granted meanwhile goes back.
func (r *room) leave(ctx context.Context, w *waiter) (store.Lease, error) {
	r.mu.Lock()
	for i, x := range r.mu.waiting {
		if x == w {
			r.mu.waiting = append(r.mu.waiting[:i], r.mu.waiting[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	select {
	case g := <-w.granted:
		if g.err == nil {
			r.d.store.Release(g.lease.ID)
		}
	default:
	}
	if err := ctx.Err(); err != nil {
		return store.Lease{}, bb.Wrap("lease", w.buffer.address(""), err)
	}
	return store.Lease{}, bb.E(bb.Unavailable, "lease", w.buffer.address(""), "the daemon is stopping")
}

// try leases a segment for w, within its buffer's capacity.
func (r *room) try(w *waiter) (store.Lease, error) {
	spec := w.buffer.spec()
	bytes := w.bytes
	if spec.Capacity > 0 {
		left := spec.Capacity - r.d.store.Stats().Buffers[spec.Name].Dirty
		if left <= 0 {
			if spec.Backing == "" || spec.NoWait {
				return store.Lease{}, bb.E(bb.NoSpace, "lease", w.buffer.address(""),
					fmt.Sprintf("its capacity of %d bytes is used up", spec.Capacity)).
					WithRemedy("remove files, or make the buffer larger")
			}
			return store.Lease{}, errMustWait // flushing makes room
		}
		bytes = min(bytes, max(left, store.Unit))
	}
	return r.segment(w, bytes)
}

// segment leases one that has room for what should fit: an unfinished segment that is too
// small would come back, and be the next to be leased again. Who may wait gets one of those
// only after fittingPatience.
func (r *room) segment(w *waiter, bytes int64) (store.Lease, error) {
	q := store.LeaseRequest{Buffer: w.buffer.name, UID: w.uid, Bytes: bytes, Min: w.min, Tier: w.tier, Fixed: r.fixed(w.buffer)}
	if q.Min < w.fits {
		q.Min = w.fits
		l, err := r.d.store.Lease(q)
		if err == nil || errors.Is(err, store.ErrNoRoom) && time.Since(w.since) < fittingPatience && !w.noWait && !w.buffer.spec().NoWait {
			return l, err
		}
		q.Min = w.min
	}
	return r.d.store.Lease(q)
}

// fittingPatience is how long a writer waits for a segment with room for what should fit.
const fittingPatience = 2 * time.Second

// run makes room and grants segments until the daemon stops.
func (r *room) run() {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-r.d.ctx.Done():
			r.spilling.Wait()
			return
		case <-r.wakeup:
		case <-tick.C:
		}
		r.step()
	}
}

// step asks admit what to do and does it.
func (r *room) step() {
	r.d.store.FreeOccupied()
	requests, waiting := r.line()
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
			r.finish(w, grant{err: bb.E(bb.NoSpace, "lease", w.buffer.address(""), a.Reason).
				WithRemedy("remove files, or make the buffer larger")})
		case admit.Evict:
			r.evict(a.Bytes)
		case admit.Spill:
			r.spill(a.Bytes, r.d.store.Spill)
		case admit.SpillMisplaced:
			r.spill(a.Bytes, r.d.store.SpillMisplaced)
		case admit.Move:
			r.move(a.Bytes)
		}
	}
}

// line returns those who wait, oldest first.
func (r *room) line() ([]admit.Request, map[uint64]*waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	waiting := make(map[uint64]*waiter, len(r.mu.waiting))
	requests := make([]admit.Request, 0, len(r.mu.waiting))
	for _, w := range r.mu.waiting {
		waiting[w.id] = w
		requests = append(requests, admit.Request{
			ID: w.id, User: strconv.FormatUint(uint64(w.uid), 10), Buffer: w.buffer.name, Client: strconv.FormatUint(w.client, 10),
			Bytes: w.bytes, Age: now.Sub(w.since), NoWait: w.buffer.spec().NoWait,
		})
	}
	return requests, waiting
}

func (r *room) state(requests []admit.Request, waiting map[uint64]*waiter) admit.State {
	stats := r.d.store.Stats()
	m := stats.Memory
	short := len(waiting) > 0 || float64(m.Used) > r.d.cfg.Flush.High*float64(m.Capacity-m.Kept)
	if r.d.pressure.Swap(short) != short {
		r.d.flusher.Kick()
	}
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
	if len(waiting) > 0 && r.d.cluster != nil && r.moving.Load() == 0 {
		state.Pool.Movable = min(m.Dirty, r.freeElsewhere())
	}
	if stats.Populating {
		state.Watermarks = admit.Watermarks{} // free memory is still on its way
	}
	for _, w := range waiting {
		spec := w.buffer.spec()
		b := admit.Buffer{Used: stats.Buffers[spec.Name].Dirty, Capacity: spec.Capacity}
		if spec.Backing != "" {
			b.Evictable = b.Used // flushing makes room: its writers wait for that
		}
		state.Buffers[spec.Name] = b
	}
	return state
}

// freeFor is how long free memory elsewhere is taken for what it was: the line is looked
// at more often, and there may be thousands of members to count.
const freeFor = 200 * time.Millisecond

func (r *room) freeElsewhere() int64 {
	if time.Since(r.free.at) > freeFor {
		r.free.bytes, r.free.at = r.d.cluster.FreeElsewhere(), time.Now()
	}
	return r.free.bytes
}

func (r *room) watermarks(capacity int64) admit.Watermarks {
	f := r.d.cfg.Flush
	return admit.Watermarks{Low: int64((1 - f.High) * float64(capacity)), High: int64((1 - f.Low) * float64(capacity))}
}

func (r *room) grant(w *waiter, bytes int64) {
	lease, err := r.segment(w, bytes)
	if errors.Is(err, store.ErrPopulating) {
		return // free memory is on its way: nothing has to make room
	}
	if errors.Is(err, store.ErrNoRoom) && r.d.store.Shared() {
		r.claim(w, max(bytes, w.min))
		return
	}
	if errors.Is(err, store.ErrNoRoom) {
		// Free, but in pieces, or in another user's regions: more of it must become free.
		w.refused++
		more := min(max(bytes, w.min)*w.refused, r.d.store.Stats().Memory.Capacity)
		switch {
		case r.evict(more) >= more:
		case r.d.cfg.Store.DiskDir != "":
			r.spill(more, r.d.store.Spill)
		case r.d.cluster != nil:
			r.move(more)
		}
		return
	}
	r.finish(w, grant{lease, err})
}

// finish answers a waiter and takes it out of the line, unless it has given up.
func (r *room) finish(w *waiter, g grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.mu.waiting, w)
	if i < 0 {
		if g.err == nil {
			r.d.store.Release(g.lease.ID)
		}
		return
	}
	r.mu.waiting = slices.Delete(r.mu.waiting, i, i+1)
	w.granted <- g
}

// clear frees what nobody has to wait for: clean memory, of the writer's user where users have shares, and
// idle leases of the daemon's own.
func (r *room) clear(w *waiter, bytes int64) (made store.Room) {
	if !r.d.store.Shared() {
		made.Freed = r.evict(bytes)
		return made
	}
	flushes := make(map[string]bool)
	for _, b := range r.d.allBuffers() {
		flushes[b.name] = r.flushes(b)
	}
	made = r.d.store.MakeRoom(store.RoomRequest{UID: w.uid, Bytes: bytes, Fixed: r.fixed(w.buffer), Flushes: flushes})
	r.d.observe.evicted(bb.TierMemory, made.Freed)
	r.mu.Lock()
	w.others = made.Others
	r.mu.Unlock()
	if made.Freed < bytes {
		for _, b := range r.d.allBuffers() {
			b.writers.relinquish()
		}
	}
	return made
}

// evict frees clean memory; where that is not enough, idle leases of the daemon's own go
// back. What writers had not committed when they lost their daemon is theirs until they have
// unlocked it, and until ResumeGrace is over: they copy out of it into the room that is asked
// for here.
func (r *room) evict(bytes int64) (freed int64) {
	freed = r.d.store.Evict(bb.TierMemory, bytes)
	r.d.observe.evicted(bb.TierMemory, freed)
	if freed < bytes {
		for _, b := range r.d.allBuffers() {
			b.writers.relinquish()
		}
	}
	return freed
}

// spill moves segments to disk in the background, one batch at a time.
func (r *room) spill(bytes int64, by func(context.Context, int64) (int64, error)) {
	if !r.underWay.CompareAndSwap(0, bytes) {
		return
	}
	r.spilling.Go(func() {
		defer r.underWay.Store(0)
		moved, err := by(r.d.ctx, bytes)
		r.d.observe.spilled(moved)
		if err != nil && r.d.ctx.Err() == nil {
			r.d.log.Warn("spilling to disk", "err", err)
			// Clean segments on disk make room for dirty ones from memory.
			if freed := r.d.store.Evict(bb.TierDisk, bytes); freed > 0 {
				r.d.observe.evicted(bb.TierDisk, freed)
			} else {
				r.pause() // it would not go otherwise at once again
			}
		}
		r.kick()
	})
}

// move has files move to other nodes in the background, one batch at a time.
func (r *room) move(bytes int64) {
	if !r.moving.CompareAndSwap(0, bytes) {
		return
	}
	r.spilling.Go(func() {
		if r.d.moveFiles(r.d.ctx, bytes) == 0 {
			r.pause() // nobody takes any: not at once again
		}
		r.moving.Store(0)
		r.kick()
	})
}

// movePause is how long nothing is spilled, or moved, after nothing could be.
const movePause = time.Second

func (r *room) pause() {
	select {
	case <-time.After(movePause):
	case <-r.d.ctx.Done():
	}
}

// status returns the number of waiting leases, the longest wait, and those of their buffers that
// a user may enter.
func (r *room) status(c access.Caller) WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := WaitStatus{Writers: len(r.mu.waiting), Buffers: map[string]int{}}
	users := make(map[uint32]bool)
	for _, w := range r.mu.waiting {
		users[w.uid] = true
		s.count(w, c)
		if spec := w.buffer.spec(); c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			s.Buffers[w.buffer.name]++
		}
		s.Longest = max(s.Longest, time.Since(w.since).Seconds())
	}
	s.Users = len(users)
	return s
}
