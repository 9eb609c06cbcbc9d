package bbd

import (
	"context"
	"fmt"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/lockrank"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/segment"
	"forebay/internal/wire"
	"forebay/rdma"
)

// remoteSpace is where this daemon puts bytes into another one's memory: a segment
// leased there, filled with one-sided writes by all who write for one user of a buffer.
// An idle one goes back after a while, as a client's does.
type remoteSpace struct {
	b       *buffer
	session *peer.Session
	tier    bb.Tier       // where the bytes belong
	turn    chan struct{} // holds one token: who has it may ask for the next lease

	mu   lockorder.Mutex[lockrank.RemoteSpace] // never held while waiting
	now  *remoteLease
	idle *time.Timer
}

// remoteLease is a segment of another daemon's memory. Guarded by its space.
type remoteLease struct {
	id   uint64
	key  rdma.RemoteKey
	base int64 // of the segment in its region
	segment.Cursor
	users segment.Users // placements that are not committed yet
}

// placement is bytes in leases of another daemon, until they are committed or given up.
type placement struct {
	space   *remoteSpace
	extents []*wire.NewExtent
	leases  []*remoteLease
}

const (
	// leastPiece is the room in a segment below which the next one is leased.
	leastPiece = 64 << 10
	// remoteIdle is how long a lease is kept that nobody fills.
	remoteIdle = time.Second
)

// remoteKey is what a space is for: bytes that belong in a tier, in a session.
type remoteKey struct {
	session *peer.Session
	tier    bb.Tier
}

// remoteSpaces has a buffer's spaces in the memory of others.
type remoteSpaces struct {
	b  *buffer
	mu struct {
		lockorder.Mutex[lockrank.RemoteSpaces]
		by map[remoteKey]*remoteSpace
	}
}

func newRemoteSpaces(b *buffer) *remoteSpaces {
	r := &remoteSpaces{b: b}
	r.mu.by = make(map[remoteKey]*remoteSpace)
	return r
}

// in returns the space in a session for bytes that belong in a tier.
func (r *remoteSpaces) in(s *peer.Session, tier bb.Tier) *remoteSpace {
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.mu.by {
		if old.session.Broken() {
			delete(r.mu.by, old)
		}
	}
	key := remoteKey{s, tier}
	space := r.mu.by[key]
	if space == nil {
		space = &remoteSpace{b: r.b, session: s, tier: tier, turn: make(chan struct{}, 1)}
		space.turn <- struct{}{}
		r.mu.by[key] = space
	}
	return space
}

// place writes the bytes of extents into leased segments. They are all there when it
// returns; done is called after the commit, or instead of it.
func (r *remoteSpace) place(ctx context.Context, extents []*wire.NewExtent, bytes [][]byte) (p *placement, err error) {
	fabric, err := r.session.Fabric(ctx)
	if err != nil {
		return nil, err
	}
	p = &placement{space: r}
	defer func() {
		if err != nil {
			p.done()
		}
	}()
	var ops []rdma.Op
	for i, e := range extents {
		var whole uint64
		for off, left := int64(0), bytes[i]; len(left) > 0; {
			l, at, n, err := r.reserve(ctx, int64(len(left)))
			if err != nil {
				return p, err
			}
			p.leases = append(p.leases, l)
			sum := e.Checksum
			if n < e.Length {
				if sum, err = pieceSum(r.b.address(""), left[:n]); err != nil {
					return p, err
				}
				whole = checksum.Combine(whole, sum, n)
			}
			ops = append(ops, rdma.Op{Kind: rdma.OpWrite, Local: left[:n], Remote: rdma.Remote{Key: l.key, Offset: uint64(l.base + at)}})
			p.extents = append(p.extents, &wire.NewExtent{FileOffset: e.FileOffset + off, Length: n, Checksum: sum, Lease: l.id, SegmentOffset: at})
			off, left = off+n, left[n:]
			if n < e.Length && len(left) == 0 && whole != e.Checksum {
				// The sums of its pieces would make what is there now look like what was written.
				return p, bb.E(bb.Checksum, "write", r.b.address(""), fmt.Sprintf(
					"%d bytes to be written at offset %d have checksum %016x, not %016x", e.Length, e.FileOffset, whole, e.Checksum))
			}
		}
	}
	if err := r.b.d.cluster.Transfer(ctx, fabric, ops); err != nil {
		// What was written may still arrive, so the lease must not be anybody else's before
		// the connection has ended at the other side, as all does that belongs to the session.
		r.session.Break(err)
		return p, &bb.Error{Kind: fabricKind(ctx), Op: "write", Path: r.b.address(""), Node: r.session.Node(), Err: err}
	}
	return p, nil
}

// fabricKind is the kind of a one-sided operation's failure.
func fabricKind(ctx context.Context) bb.Kind {
	if ctx.Err() != nil {
		return bb.Cancelled
	}
	return bb.Unavailable
}

// pieceSum is the checksum of memory that may be a region's.
func pieceSum(path string, p []byte) (sum uint64, err error) {
	err = store.Guard("read", path, func() error {
		sum = checksum.Sum(p)
		return nil
	})
	return sum, err
}

// reserve returns room for n bytes, or for a good part of them, in a lease that has one
// more user.
func (r *remoteSpace) reserve(ctx context.Context, n int64) (l *remoteLease, at, length int64, err error) {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, 0, 0, context.Cause(ctx)
	}
	for {
		if l, at, length := r.take(n); l != nil {
			return l, at, length, nil
		}
		var reply wire.Lease
		ask := &wire.LeaseRequest{Buffer: r.b.name, Bytes: max(n+alloc.Overhead, store.Unit), Tier: uint32(r.tier)}
		if _, err := r.session.Ask(ctx, wire.Type_TYPE_LEASE, ask, nil, &reply); err != nil {
			return nil, 0, 0, err
		}
		key, err := rdma.DecodeRemoteKey(reply.GetRegion().GetKey())
		if err != nil {
			return nil, 0, 0, &bb.Error{Kind: bb.Internal, Op: "lease", Path: r.b.address(""), Node: r.session.Node(), Err: err}
		}
		r.mu.Lock()
		r.now = &remoteLease{id: reply.Id, key: key, base: reply.Offset, Cursor: segment.NewCursor(reply.DataStart, reply.RecordFloor)}
		r.mu.Unlock()
	}
}

// take takes room from the lease there is. One without enough is let go.
func (r *remoteSpace) take(n int64) (l *remoteLease, at, length int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l = r.now; l == nil {
		return nil, 0, 0
	}
	got, ok := l.TakeExtent(n, min(n, leastPiece))
	if !ok {
		r.letGo()
		return nil, 0, 0
	}
	l.users.Enter()
	return l, got.Off, got.Len()
}

// letGo ends the filling of the lease there is. mu is held.
func (r *remoteSpace) letGo() {
	l := r.now
	r.now = nil
	if l.users.Retire() {
		r.giveBack(l)
	}
}

// giveBack returns a lease that is not filled any more and in which nothing is uncommitted.
func (r *remoteSpace) giveBack(l *remoteLease) {
	r.b.d.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.b.d.ctx, relayPatience)
		defer cancel()
		// A lease that cannot be returned ends with the session.
		_, _ = r.session.Ask(ctx, wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: l.id}, nil, nil)
	})
}

// done gives up what was placed, or says that it is committed. Nil: nothing was.
func (p *placement) done() {
	if p == nil {
		return
	}
	r := p.space
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range p.leases {
		if l.users.Leave() {
			r.giveBack(l)
		}
	}
	p.leases = nil
	if r.idle != nil {
		r.idle.Stop()
	}
	r.idle = time.AfterFunc(remoteIdle, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.now != nil && r.now.users.Idle() && r.b.d.ctx.Err() == nil {
			r.letGo()
		}
	})
}
