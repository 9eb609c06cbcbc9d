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
	pool    *Pool
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

	// Guarded by the pool.
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

// holder is a writer in its pool.
type holder interface {
	HoldsIn(*Memory) bool // something already, for which the base of a record is reserved
	HasPending() bool     // anything that is not committed
}

// poolKey identifies a pool: the buffer and the tier of its files' bytes.
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
		pools  map[poolKey]*Pool
	}
}

func NewPools(a *region.Map, g *remote.Staging) *Pools {
	ps := &Pools{regions: a, staged: g}
	ps.mu.pools = make(map[poolKey]*Pool)
	return ps
}

// Pool returns where writers of a buffer get memory from for bytes that belong in a tier.
func (ps *Pools) Pool(buffer string, tier bb.Tier) (*Pool, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.mu.closed {
		return nil, session.ErrClosed
	}
	key := poolKey{buffer, tier}
	p := ps.mu.pools[key]
	if p == nil {
		p = &Pool{regions: ps.regions, staged: ps.staged, buffer: buffer, tier: tier}
		ps.mu.pools[key] = p
	}
	return p, nil
}

// End returns the leases of a buffer, those in use as soon as they are not.
func (ps *Pools) End(buffer string) {
	var of []*Pool
	ps.mu.Lock()
	for key, p := range ps.mu.pools {
		if key.buffer == buffer {
			of = append(of, p)
			delete(ps.mu.pools, key)
		}
	}
	ps.mu.Unlock()
	for _, p := range of {
		p.end()
	}
}

// Close drops all leases. Their session has ended or is about to.
func (ps *Pools) Close() {
	ps.mu.Lock()
	all := ps.mu.pools
	ps.mu.closed, ps.mu.pools = true, nil
	ps.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}

// Tiered reports whether not all files of the buffer belong in one tier, by present knowledge.
func (p *Pool) Tiered() bool { return p.tiered.Load() }

func (p *Pool) Enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.writers++
	if p.mu.idle != nil {
		p.mu.idle.Stop()
	}
}

// Leave ends a writer. The last one returns the leases that a burst did not use up.
func (p *Pool) Leave() {
	p.mu.Lock()
	p.mu.writers--
	last := p.mu.writers == 0
	if last {
		p.mu.burst = 0
		if p.mu.idle == nil {
			p.mu.idle = time.AfterFunc(IdleFor, func() { p.returnLarger(0) })
		} else {
			p.mu.idle.Reset(IdleFor)
		}
	}
	p.mu.Unlock()
	if last {
		p.returnLarger(KeepIdle)
	}
}

// Unless there is a writer, returnLarger returns leases of more than so many bytes, since a leased
// segment can be neither evicted nor spilled, even in a full memory.
func (p *Pool) returnLarger(keep int64) {
	var idle []*lease
	var unwanted *grant
	p.mu.Lock()
	if p.mu.writers == 0 {
		if g := p.mu.next; g != nil && g.bytes > keep {
			unwanted, p.mu.next = g, nil
		}
		for _, l := range p.mu.leases {
			if int64(len(l.Bytes)) > keep {
				idle = append(idle, l)
			}
		}
	}
	p.mu.Unlock()
	if unwanted != nil {
		unwanted.cancel(p)
	}
	for _, l := range idle {
		p.closeLease(l)
	}
	if keep == 0 {
		p.staged.Clear()
	}
}

// Take returns between least and want bytes of a lease of the session, with room for so
// many extents' records set aside. If need be, it waits for a lease. If h has nothing in that lease
// so far, it becomes a user of it.
func (p *Pool) Take(ctx context.Context, s *session.Session, h holder, want, least, records int64) (Span, error) {
	for range maxGrants {
		if s.Broken() {
			return Span{}, &session.BrokenError{Reason: errors.New("it broke before a lease was taken")}
		}
		c, next := p.tryTake(s, h, want, least, records)
		if next != nil {
			next.ask(ctx, p)
		}
		if c.Mem != nil {
			return c, nil
		}
		if err := p.wait(ctx, next, h, fitsIn(least, records)); err != nil {
			return Span{}, err
		}
	}
	return Span{}, bb.E(bb.NoSpace, "lease", p.buffer, "the daemon grants only segments that are too small").
		WithRemedy("reserve less at once")
}

// tryTake takes from the leases there are. It also returns the grant to request or to wait for, if
// any.
func (p *Pool) tryTake(s *session.Session, h holder, want, least, records int64) (Span, *grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	var got Span
	for _, l := range p.mu.leases {
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
		got = Span{Mem: &l.Memory, Span: at, recordSlots: records}
		return got, p.used(s, at.Len())
	}
	if p.mu.next == nil {
		p.mu.next = &grant{session: s, bytes: p.nextSize(s, least), fits: fitsIn(least, records)}
	}
	return got, p.mu.next
}

// fitsIn is the room that a segment needs for so many bytes and the records of so many extents.
func fitsIn(least, records int64) int64 {
	return least + segment.RecordBase + records*segment.RecordItem + segment.Align
}

// used counts bytes that were handed out, and returns the grant to request when the
// rest may not last until the grant arrives. The pool is locked.
func (p *Pool) used(s *session.Session, n int64) (next *grant) {
	p.mu.burst += n
	if p.mu.next != nil || p.room() >= p.nextSize(s, 0)/2 {
		return nil
	}
	p.mu.next = &grant{session: s, bytes: p.nextSize(s, 0), early: true}
	return p.mu.next
}

// drop removes the leases of sessions that broke, since they are void. The pool is locked.
func (p *Pool) drop() {
	if p.mu.next != nil && p.mu.next.session.Broken() {
		p.mu.next, p.mu.burst = nil, 0
	}
	for i := 0; i < len(p.mu.leases); {
		l := p.mu.leases[i]
		if !l.session.Broken() {
			i++
			continue
		}
		p.mu.burst = 0
		if p.remove(l) {
			l.release()
		}
	}
}

// room is how much is left in all leases. The pool is locked.
func (p *Pool) room() (n int64) {
	for _, l := range p.mu.leases {
		n += max(0, l.cursor.Free())
	}
	return n
}

// nextSize is the sum of the burst's leases so far, so that leases grow with
// use, and at least the size of the largest waiting reservation.
func (p *Pool) nextSize(s *session.Session, need int64) int64 {
	size, limit := int64(minLease), int64(maxLease)
	if !s.Welcome.MapRegions {
		limit = MaxRemote
	}
	for size < limit && size < p.mu.burst {
		size *= 2
	}
	if need > 0 {
		size = max(size, need+leaseOverhead)
	}
	return size
}

// ask sends the request, once.
func (g *grant) ask(ctx context.Context, p *Pool) {
	g.asked.Do(func() {
		g.call, g.unsent = g.session.Start(ctx, wire.Type_TYPE_LEASE, &wire.LeaseRequest{
			Buffer: p.buffer, Bytes: g.bytes, Fits: g.fits, Tier: uint32(p.tier), Files: uint32(g.files), Commits: g.commits,
		}, nil, &g.reply)
	})
}

// wait waits for a grant and makes it one of the leases.
func (p *Pool) wait(ctx context.Context, g *grant, h holder, fits int64) error {
	err := g.unsent
	if err == nil {
		err = p.await(ctx, g, h, fits)
		if err != nil && !g.call.Finished() {
			return err // this waiter's context ended. Others may go on waiting
		}
	}
	g.taken.Do(func() {
		if err == nil {
			g.lease, g.failed = p.newLease(g)
		}
		p.install(g)
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
func (p *Pool) await(ctx context.Context, g *grant, h holder, fits int64) error {
	if g.call.Finished() {
		return g.session.Await(ctx, g.call)
	}
	laden := 0
	if h.HasPending() {
		laden = 1
	}
	p.block(1, laden)
	defer p.block(-1, -laden)
	for {
		short, cancel := context.WithTimeout(ctx, longWait)
		err := g.session.Await(short, g.call)
		cancel()
		if err == nil || g.call.Finished() || ctx.Err() != nil || session.IsBroken(err) {
			return err
		}
		p.CloseFull() // the part of an abandoned file is never filled again
		if next := p.askAgain(g, fits); next != nil {
			next.ask(ctx, p)
			g.session.Post(wire.Type_TYPE_CANCEL, &wire.Cancel{Request: g.call.ID}, nil)
		}
	}
}

func (p *Pool) block(files, laden int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.blocked += files
	p.mu.laden += laden
}

// askAgain replaces a grant whose request describes its waiters less well. The new request adds
// that no file can continue, or that one of them has something to commit. Nil: there is nothing to
// add.
func (p *Pool) askAgain(g *grant, fits int64) *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.mu.blocked == p.mu.writers && g.files != p.mu.blocked
	if p.mu.next != g || !all && (g.commits || p.mu.laden == 0) {
		return nil
	}
	p.mu.next = &grant{
		session: g.session, bytes: max(g.bytes, fits), fits: max(g.fits, fits), files: p.mu.blocked, commits: p.mu.laden > 0,
	}
	return p.mu.next
}

// install replaces the grant by its lease, and returns a lease that is nearly full.
func (p *Pool) install(g *grant) {
	p.mu.Lock()
	wanted := p.mu.next == g
	if wanted {
		p.mu.next = nil
	}
	var full []*lease
	if wanted && g.lease != nil {
		for _, l := range p.mu.leases {
			if l.cursor.Free() < WorthKeeping {
				full = append(full, l)
			}
		}
		p.mu.leases = append(p.mu.leases, g.lease)
		if len(p.mu.leases)-len(full) > maxOpenLeases {
			full = append(full, p.mu.leases[0])
		}
	}
	p.mu.Unlock()
	for _, l := range full {
		p.closeLease(l)
	}
	if !wanted && g.lease != nil {
		g.lease.giveBack()
	}
}

// cancel cancels a grant. A lease that arrives is returned.
func (g *grant) cancel(p *Pool) {
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
func (p *Pool) newLease(g *grant) (*lease, error) {
	m := &g.reply
	if m.Region == nil || m.Offset < 0 || m.Length <= 0 || m.Offset > m.Region.Length-m.Length ||
		m.DataStart < 0 || m.DataStart > m.RecordFloor || m.RecordFloor > m.Length {
		return nil, bb.E(bb.Internal, "lease", p.buffer, "the daemon granted a segment that is not within its region")
	}
	p.tiered.Store(m.Tiered)
	if !g.session.Welcome.MapRegions {
		return p.newRemoteLease(g)
	}
	r, err := p.regions.Acquire(m.Region)
	if err != nil {
		g.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: m.Id}, nil)
		return nil, err
	}
	l := &lease{pool: p, session: g.session, id: m.Id, region: r, at: m.Offset}
	mem := r.Mem[m.Offset : m.Offset+m.Length : m.Offset+m.Length]
	l.Memory = Memory{Bytes: mem, lease: l, mu: &p.mu.Mutex, cursor: segment.NewCursor(m.DataStart, m.RecordFloor)}
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
func (p *Pool) newRemoteLease(g *grant) (*lease, error) {
	m := &g.reply
	key, err := rdma.DecodeRemoteKey(m.Region.Key)
	if err != nil {
		g.session.Post(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: m.Id}, nil)
		return nil, &bb.Error{Kind: bb.Internal, Op: "lease", Path: p.buffer, Err: fmt.Errorf("the daemon granted a segment that cannot be reached: %w", err)}
	}
	base := min(segment.AlignUp(m.DataStart), m.RecordFloor)
	n := m.RecordFloor - base
	own := p.staged.Get(n)
	l := &lease{pool: p, session: g.session, id: m.Id, key: key, base: base, at: m.Offset + base, own: own}
	l.Memory = Memory{Bytes: own[:n:n], lease: l, mu: &p.mu.Mutex, cursor: segment.NewCursor(0, n)}
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
		l.pool.staged.Put(l.own)
	}
}

// closeLease takes a lease out of use. It is returned to the daemon when its last user is done.
func (p *Pool) closeLease(l *lease) {
	p.mu.Lock()
	done := p.remove(l)
	p.mu.Unlock()
	if done {
		l.giveBack()
	}
}

// remove takes a lease out of the list and reports whether it is without users. The pool is locked.
func (p *Pool) remove(l *lease) (done bool) {
	for i, other := range p.mu.leases {
		if other == l {
			p.mu.leases = append(p.mu.leases[:i:i], p.mu.leases[i+1:]...)
			return l.users.Close()
		}
	}
	return false
}

// CloseFull takes leases without room out of use. Once they are returned, they can be spilled.
func (p *Pool) CloseFull() {
	var full []*lease
	p.mu.Lock()
	for _, l := range p.mu.leases {
		if l.cursor.Free() < WorthKeeping {
			full = append(full, l)
		}
	}
	p.mu.Unlock()
	for _, l := range full {
		p.closeLease(l)
	}
}

// leave ends a file's use of a lease. The file's bytes there are committed, or void.
func (l *lease) leave() {
	l.pool.mu.Lock()
	done := l.users.Leave()
	l.pool.mu.Unlock()
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
func (p *Pool) end() {
	p.returnLarger(0)
	p.mu.Lock()
	leases := slices.Clone(p.mu.leases)
	p.mu.Unlock()
	for _, l := range leases {
		p.closeLease(l)
	}
}

// close drops all leases. Their session has ended or is about to.
func (p *Pool) close() {
	p.mu.Lock()
	leases := append([]*lease(nil), p.mu.leases...)
	p.mu.next = nil
	if p.mu.idle != nil {
		p.mu.idle.Stop()
	}
	p.mu.Unlock()
	for _, l := range leases {
		p.closeLease(l)
	}
}
