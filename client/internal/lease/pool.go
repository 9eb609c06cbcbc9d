// Package lease keeps the segments that a daemon has leased to this client and shares them among
// the files that are written: the queue for a lease, the size of the next one, the time of its return. It
// must never depend on the bytes in them.
package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client/internal/region"
	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/leaselock"
	"forebay/internal/segment"
	"forebay/internal/wire"
	"forebay/rdma"
)

// Sizes of leases and of requests for them.
const (
	minLease = 1 << 20
	maxLease = 32 << 20
	// MaxRemote bounds leases that are filled from here. Each takes as much of this process's
	// memory, which, if it is not much, the next one still finds in the caches.
	MaxRemote = 8 << 20
	// WorthKeeping is the room below which a lease is returned rather than looked at again.
	WorthKeeping = 64 << 10
	// KeepIdle is the largest leased segment that is kept while there is no writer, and idleFor the
	// time for which it is. A region with a leased segment cannot go to another user.
	KeepIdle = 4 << 20
	IdleFor  = time.Second
	// leaseOverhead is the part of a segment that one large reservation cannot use.
	leaseOverhead = 64 << 10
	maxOpenLeases = 8
	maxGrants     = 64 // attempts of one take
	// longWait is the time after which a waiting request describes its waiters to the daemon.
	longWait = 200 * time.Millisecond
)

// Pool is the source of memory for the writers of one buffer. It has leases of one session, shared
// by all files that this client writes there. It requests the next lease before the present one is
// used up. It may be used concurrently.
type Pool struct {
	regions *region.Map
	staged  *remote.Staging
	buffer  string
	tier    bb.Tier     // where the bytes belong
	tiered  atomic.Bool // the files of the buffer belong in more than one tier

	mu struct {
		sync.Mutex
		leases  []*lease // not full, oldest first
		next    *grant   // requested
		writers int      // files open for writing
		blocked int      // files that wait for next
		laden   int      // those of them with something to commit
		burst   int64    // bytes handed out since there was none
		idle    *time.Timer
	}
}

// lease is a segment that this client may fill.
type lease struct {
	Memory
	space   *Pool
	session *session.Session
	id      uint64
	region  *region.Region // nil: it is remote
	at      int64          // in the region; of bytes
	locked  bool           // in the region's file, until release

	// Of a segment that is remote. The memory is this process's own, and holds the segment's bytes
	// from base on until they are transferred and committed.
	key  rdma.RemoteKey
	base int64  // in the segment
	own  []byte // all of the memory

	// Guarded by the space.
	users segment.Users // files; closed: the lease is not in the pool any more
}

// grant is a lease that was requested. Several may wait for it.
type grant struct {
	session *session.Session
	bytes   int64
	fits    int64 // the size that a waiter needs, records included; 0: there is no waiter
	early   bool  // there is no waiter yet
	files   int   // that cannot continue without it, as sent to the daemon; 0: not sent
	commits bool  // some of them can commit, and request again, at the daemon's request

	asked  sync.Once
	call   *session.Call
	reply  wire.Lease
	unsent error // why it could not be requested

	taken  sync.Once
	lease  *lease
	failed error // why the answer is of no use
}

// holder is a writer in its space.
type holder interface {
	HoldsIn(*Memory) bool // something already, for which the base of a record is reserved
	HasPending() bool     // anything that is not committed
}

// poolKey identifies a space: the buffer and the tier of its files' bytes.
type poolKey struct {
	buffer string
	tier   bb.Tier
}

// Pools are those of one client. They may be used concurrently.
type Pools struct {
	regions *region.Map
	staged  *remote.Staging

	mu struct {
		sync.Mutex
		closed bool
		spaces map[poolKey]*Pool
	}
}

func NewPools(a *region.Map, g *remote.Staging) *Pools {
	sps := &Pools{regions: a, staged: g}
	sps.mu.spaces = make(map[poolKey]*Pool)
	return sps
}

// Pool returns where writers of a buffer get memory from for bytes that belong in a tier.
func (sps *Pools) Pool(buffer string, tier bb.Tier) (*Pool, error) {
	sps.mu.Lock()
	defer sps.mu.Unlock()
	if sps.mu.closed {
		return nil, session.ErrClosed
	}
	key := poolKey{buffer, tier}
	sp := sps.mu.spaces[key]
	if sp == nil {
		sp = &Pool{regions: sps.regions, staged: sps.staged, buffer: buffer, tier: tier}
		sps.mu.spaces[key] = sp
	}
	return sp, nil
}

// End returns the leases of a buffer, those in use as soon as they are not.
func (sps *Pools) End(buffer string) {
	var of []*Pool
	sps.mu.Lock()
	for key, sp := range sps.mu.spaces {
		if key.buffer == buffer {
			of = append(of, sp)
			delete(sps.mu.spaces, key)
		}
	}
	sps.mu.Unlock()
	for _, sp := range of {
		sp.end()
	}
}

// Close drops all leases. Their session has ended or is about to.
func (sps *Pools) Close() {
	sps.mu.Lock()
	all := sps.mu.spaces
	sps.mu.closed, sps.mu.spaces = true, nil
	sps.mu.Unlock()
	for _, sp := range all {
		sp.close()
	}
}

// Tiered reports whether not all files of the buffer belong in one tier, by present knowledge.
func (sp *Pool) Tiered() bool { return sp.tiered.Load() }

func (sp *Pool) Enter() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.mu.writers++
	if sp.mu.idle != nil {
		sp.mu.idle.Stop()
	}
}

// Leave ends a writer. The last one returns the leases that a burst did not use up.
func (sp *Pool) Leave() {
	sp.mu.Lock()
	sp.mu.writers--
	last := sp.mu.writers == 0
	if last {
		sp.mu.burst = 0
		if sp.mu.idle == nil {
			sp.mu.idle = time.AfterFunc(IdleFor, func() { sp.returnLarger(0) })
		} else {
			sp.mu.idle.Reset(IdleFor)
		}
	}
	sp.mu.Unlock()
	if last {
		sp.returnLarger(KeepIdle)
	}
}

// Unless there is a writer, returnLarger returns leases of more than so many bytes, since a leased
// segment can be neither evicted nor spilled, even in a full memory.
func (sp *Pool) returnLarger(keep int64) {
	var idle []*lease
	var unwanted *grant
	sp.mu.Lock()
	if sp.mu.writers == 0 {
		if g := sp.mu.next; g != nil && g.bytes > keep {
			unwanted, sp.mu.next = g, nil
		}
		for _, l := range sp.mu.leases {
			if int64(len(l.Bytes)) > keep {
				idle = append(idle, l)
			}
		}
	}
	sp.mu.Unlock()
	if unwanted != nil {
		unwanted.cancel(sp)
	}
	for _, l := range idle {
		sp.closeLease(l)
	}
	if keep == 0 {
		sp.staged.Clear()
	}
}

// Take returns between least and want bytes of a lease of the session, with room for so
// many extents' records set aside. If need be, it waits for a lease. If h has nothing in that lease
// so far, it becomes a user of it.
func (sp *Pool) Take(ctx context.Context, s *session.Session, h holder, want, least, records int64) (Claim, error) {
	for range maxGrants {
		if s.Broken() {
			return Claim{}, &session.BrokenError{Reason: errors.New("it broke before a lease was taken")}
		}
		c, next := sp.tryTake(s, h, want, least, records)
		if next != nil {
			next.ask(ctx, sp)
		}
		if c.Mem != nil {
			return c, nil
		}
		if err := sp.wait(ctx, next, h, fitsIn(least, records)); err != nil {
			return Claim{}, err
		}
	}
	return Claim{}, bb.E(bb.NoSpace, "lease", sp.buffer, "the daemon grants only segments that are too small").
		WithRemedy("reserve less at once")
}

// tryTake takes from the leases there are. It also returns the grant to request or to wait for, if
// any.
func (sp *Pool) tryTake(s *session.Session, h holder, want, least, records int64) (Claim, *grant) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.drop()
	var got Claim
	for _, l := range sp.mu.leases {
		if l.session != s {
			continue // of a session that came after s broke
		}
		cost, first := records*segment.RecordItem, !h.HoldsIn(&l.Memory)
		if first {
			cost += segment.RecordBase
		}
		at, ok := l.cursor.Take(want, least, cost)
		if !ok {
			continue
		}
		if first {
			l.users.Enter()
		}
		got = Claim{Mem: &l.Memory, Span: at, recordSlots: records}
		return got, sp.used(s, at.Len())
	}
	if sp.mu.next == nil {
		sp.mu.next = &grant{session: s, bytes: sp.nextSize(s, least), fits: fitsIn(least, records)}
	}
	return got, sp.mu.next
}

// fitsIn is the room that a segment needs for so many bytes and the records of so many extents.
func fitsIn(least, records int64) int64 {
	return least + segment.RecordBase + records*segment.RecordItem + segment.Align
}

// used counts bytes that were handed out, and returns the grant to request when the
// rest may not last until the grant arrives. The space is locked.
func (sp *Pool) used(s *session.Session, n int64) (next *grant) {
	sp.mu.burst += n
	if sp.mu.next != nil || sp.room() >= sp.nextSize(s, 0)/2 {
		return nil
	}
	sp.mu.next = &grant{session: s, bytes: sp.nextSize(s, 0), early: true}
	return sp.mu.next
}

// drop removes the leases of sessions that broke, since they are void. The space is locked.
func (sp *Pool) drop() {
	if sp.mu.next != nil && sp.mu.next.session.Broken() {
		sp.mu.next, sp.mu.burst = nil, 0
	}
	for i := 0; i < len(sp.mu.leases); {
		l := sp.mu.leases[i]
		if !l.session.Broken() {
			i++
			continue
		}
		sp.mu.burst = 0
		if sp.remove(l) {
			l.release()
		}
	}
}

// room is how much is left in all leases. The space is locked.
func (sp *Pool) room() (n int64) {
	for _, l := range sp.mu.leases {
		n += max(0, l.cursor.Free())
	}
	return n
}

// nextSize is the sum of the burst's leases so far, so that leases grow with
// use, and at least the size of the largest waiting reservation.
func (sp *Pool) nextSize(s *session.Session, need int64) int64 {
	size, limit := int64(minLease), int64(maxLease)
	if !s.Welcome.MapRegions {
		limit = MaxRemote
	}
	for size < limit && size < sp.mu.burst {
		size *= 2
	}
	if need > 0 {
		size = max(size, need+leaseOverhead)
	}
	return size
}

// ask sends the request, once.
func (g *grant) ask(ctx context.Context, sp *Pool) {
	g.asked.Do(func() {
		g.call, g.unsent = g.session.Start(ctx, wire.Type_TYPE_LEASE, &wire.LeaseRequest{
			Buffer: sp.buffer, Bytes: g.bytes, Fits: g.fits, Tier: uint32(sp.tier), Files: uint32(g.files), Commits: g.commits,
		}, nil, &g.reply)
	})
}

// wait waits for a grant and makes it one of the leases.
func (sp *Pool) wait(ctx context.Context, g *grant, h holder, fits int64) error {
	err := g.unsent
	if err == nil {
		err = sp.await(ctx, g, h, fits)
		if err != nil && !g.call.Finished() {
			return err // this waiter's context ended. Others may go on waiting
		}
	}
	g.taken.Do(func() {
		if err == nil {
			g.lease, g.failed = sp.newLease(g)
		}
		sp.install(g)
	})
	if err == nil {
		err = g.failed
	}
	if g.early && !session.IsBroken(err) || bb.KindOf(err) == bb.Cancelled && ctx.Err() == nil {
		return nil // an answer of another time, or for another; request again
	}
	return err
}

// await waits for the answer. After longWait it checks whether it can describe the waiters better
// than the first request did. If so, it cancels that request and sends another one, with which the
// other waiters continue.
func (sp *Pool) await(ctx context.Context, g *grant, h holder, fits int64) error {
	if g.call.Finished() {
		return g.session.Await(ctx, g.call)
	}
	laden := 0
	if h.HasPending() {
		laden = 1
	}
	sp.block(1, laden)
	defer sp.block(-1, -laden)
	for {
		short, cancel := context.WithTimeout(ctx, longWait)
		err := g.session.Await(short, g.call)
		cancel()
		if err == nil || g.call.Finished() || ctx.Err() != nil || session.IsBroken(err) {
			return err
		}
		sp.CloseFull() // the part of an abandoned file is never filled again
		if next := sp.askAgain(g, fits); next != nil {
			next.ask(ctx, sp)
			g.session.Post(wire.Type_TYPE_CANCEL, &wire.Cancel{Request: g.call.ID}, nil)
		}
	}
}

func (sp *Pool) block(files, laden int) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.mu.blocked += files
	sp.mu.laden += laden
}

// askAgain replaces a grant whose request describes its waiters less well. The new request adds
// that no file can continue, or that one of them has something to commit. Nil: there is nothing to
// add.
func (sp *Pool) askAgain(g *grant, fits int64) *grant {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	all := sp.mu.blocked == sp.mu.writers && g.files != sp.mu.blocked
	if sp.mu.next != g || !all && (g.commits || sp.mu.laden == 0) {
		return nil
	}
	sp.mu.next = &grant{
		session: g.session, bytes: max(g.bytes, fits), fits: max(g.fits, fits), files: sp.mu.blocked, commits: sp.mu.laden > 0,
	}
	return sp.mu.next
}

// install replaces the grant by its lease, and returns a lease that is nearly full.
func (sp *Pool) install(g *grant) {
	sp.mu.Lock()
	wanted := sp.mu.next == g
	if wanted {
		sp.mu.next = nil
	}
	var full []*lease
	if wanted && g.lease != nil {
		for _, l := range sp.mu.leases {
			if l.cursor.Free() < WorthKeeping {
				full = append(full, l)
			}
		}
		sp.mu.leases = append(sp.mu.leases, g.lease)
		if len(sp.mu.leases)-len(full) > maxOpenLeases {
			full = append(full, sp.mu.leases[0])
		}
	}
	sp.mu.Unlock()
	for _, l := range full {
		sp.closeLease(l)
	}
	if !wanted && g.lease != nil {
		g.lease.giveBack()
	}
}

// cancel cancels a grant. A lease that arrives is returned.
func (g *grant) cancel(sp *Pool) {
	g.asked.Do(func() { g.unsent = bb.Cancelled })
	if g.call == nil {
		return
	}
	g.session.Abandon(g.call, func(c *session.Call) {
		if c.Err == nil {
			g.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: g.reply.Id}, nil)
		}
	})
}

// newLease maps a granted segment.
func (sp *Pool) newLease(g *grant) (*lease, error) {
	m := &g.reply
	if m.Region == nil || m.Offset < 0 || m.Length <= 0 || m.Offset > m.Region.Length-m.Length ||
		m.DataStart < 0 || m.DataStart > m.RecordFloor || m.RecordFloor > m.Length {
		return nil, bb.E(bb.Internal, "lease", sp.buffer, "the daemon granted a segment that is not within its region")
	}
	sp.tiered.Store(m.Tiered)
	if !g.session.Welcome.MapRegions {
		return sp.newRemoteLease(g)
	}
	r, err := sp.regions.Acquire(m.Region)
	if err != nil {
		g.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: m.Id}, nil)
		return nil, err
	}
	l := &lease{space: sp, session: g.session, id: m.Id, region: r, at: m.Offset}
	mem := r.Mem[m.Offset : m.Offset+m.Length : m.Offset+m.Length]
	l.Memory = Memory{Bytes: mem, lease: l, mu: &sp.mu.Mutex, cursor: segment.NewCursor(m.DataStart, m.RecordFloor)}
	if err := l.lock(); err != nil {
		return nil, err
	}
	// The pages exist. This only enters them into this process's page table at once, instead of one
	// fault for each. Kernels without it do so by faults.
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	return l, nil
}

// lock keeps the memory of a mapped lease from others until release, even after the end of the
// session or the daemon (see package leaselock). If the session has ended by now, it fails, and
// nothing may be written to the lease. If the kernel refuses the lock, the memory is as safe as the
// daemon's grace for writers makes it.
func (l *lease) lock() error {
	l.locked = leaselock.Hold(l.region.File, l.at, int64(len(l.Bytes))) == nil
	if l.session.AliveNow() {
		return nil
	}
	l.release()
	return &session.BrokenError{Reason: net.ErrClosed}
}

// newRemoteLease makes a lease of a granted segment that cannot be mapped. It has memory of
// its own for the part that may be filled.
func (sp *Pool) newRemoteLease(g *grant) (*lease, error) {
	m := &g.reply
	key, err := rdma.DecodeRemoteKey(m.Region.Key)
	if err != nil {
		g.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: m.Id}, nil)
		return nil, &bb.Error{Kind: bb.Internal, Op: "lease", Path: sp.buffer, Err: fmt.Errorf("the daemon granted a segment that cannot be reached: %w", err)}
	}
	base := min(segment.AlignUp(m.DataStart), m.RecordFloor)
	n := m.RecordFloor - base
	own := sp.staged.Get(n)
	l := &lease{space: sp, session: g.session, id: m.Id, key: key, base: base, at: m.Offset + base, own: own}
	l.Memory = Memory{Bytes: own[:n:n], lease: l, mu: &sp.mu.Mutex, cursor: segment.NewCursor(0, n)}
	return l, nil
}

// release frees a lease's memory.
func (l *lease) release() {
	switch {
	case l.region != nil:
		if l.locked {
			_ = leaselock.Release(l.region.File, l.at, int64(len(l.Bytes))) // fails for closed files alone
		}
		l.region.Release()
	case !l.session.Broken():
		// All that was posted from it has completed, or it would have users.
		l.space.staged.Put(l.own)
	}
}

// closeLease takes a lease out of use. It is returned to the daemon when its last user is done.
func (sp *Pool) closeLease(l *lease) {
	sp.mu.Lock()
	done := sp.remove(l)
	sp.mu.Unlock()
	if done {
		l.giveBack()
	}
}

// remove takes a lease out of the list and reports whether it is without users. The space is locked.
func (sp *Pool) remove(l *lease) (done bool) {
	for i, other := range sp.mu.leases {
		if other == l {
			sp.mu.leases = append(sp.mu.leases[:i:i], sp.mu.leases[i+1:]...)
			return l.users.Close()
		}
	}
	return false
}

// CloseFull takes leases without room out of use. Once they are returned, they can be spilled.
func (sp *Pool) CloseFull() {
	var full []*lease
	sp.mu.Lock()
	for _, l := range sp.mu.leases {
		if l.cursor.Free() < WorthKeeping {
			full = append(full, l)
		}
	}
	sp.mu.Unlock()
	for _, l := range full {
		sp.closeLease(l)
	}
}

// leave ends a file's use of a lease. The file's bytes there are committed, or void.
func (l *lease) leave() {
	l.space.mu.Lock()
	done := l.users.Leave()
	l.space.mu.Unlock()
	if done {
		l.giveBack()
	}
}

// giveBack returns an unused lease.
func (l *lease) giveBack() {
	l.release()
	if !l.session.Broken() {
		l.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: l.id}, nil)
	}
}

// end returns all leases, those in use as soon as they are not.
func (sp *Pool) end() {
	sp.returnLarger(0)
	sp.mu.Lock()
	leases := slices.Clone(sp.mu.leases)
	sp.mu.Unlock()
	for _, l := range leases {
		sp.closeLease(l)
	}
}

// close drops all leases. Their session has ended or is about to.
func (sp *Pool) close() {
	sp.mu.Lock()
	leases := append([]*lease(nil), sp.mu.leases...)
	sp.mu.next = nil
	if sp.mu.idle != nil {
		sp.mu.idle.Stop()
	}
	sp.mu.Unlock()
	for _, l := range leases {
		sp.closeLease(l)
	}
}
