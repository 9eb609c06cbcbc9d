package forward

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/alloc"
	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	fill "forebay/internal/segment"
	"forebay/internal/wire"
	"forebay/rdma"
)

// segment is the target of this daemon's bytes in another one's memory. A segment leased there,
// filled with one-sided writes by all writers for one user of a buffer. When it is full the next one
// is leased. An idle one is released after a while, as a client's is.
type segment struct {
	b         *Buffer
	session   *peer.Session
	tier      bb.Tier             // where the bytes belong
	reserving *semaphore.Weighted // of one: the caller that may request the next lease

	mu   lockorder.Mutex[lockrank.RemoteSegment] // never held while waiting
	now  *lease
	idle *time.Timer
}

// lease is a leased segment of another daemon's memory. Guarded by mu of segment.
type lease struct {
	id   uint64
	key  rdma.RemoteKey
	base int64 // of the segment in its region
	fill.Cursor
	users fill.Users // staged writes that are not committed yet
}

// Staged is bytes in leases of another daemon, until they are committed or abandoned.
type Staged struct {
	Extents []*wire.NewExtent // of the commit
	in      *segment
	leases  []*lease
}

const (
	// leastPiece is the free length of a segment below which the next one is leased.
	leastPiece = 64 << 10
	// idleAfter is how long an unused lease is kept.
	idleAfter = time.Second
)

// segmentKey is the purpose of a segment: the tier of its bytes, and the session.
type segmentKey struct {
	session *peer.Session
	tier    bb.Tier
}

// segments has a buffer's segments in the memory of others.
type segments struct {
	mu struct {
		lockorder.Mutex[lockrank.RemoteSegments]
		by map[segmentKey]*segment
	}
}

// in returns the segment in a session for bytes that belong in a tier.
func (r *Buffer) in(s *peer.Session, tier bb.Tier) *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.mu.by {
		if old.session.Broken() {
			delete(r.mu.by, old)
		}
	}
	key := segmentKey{s, tier}
	space := r.mu.by[key]
	if space == nil {
		space = &segment{b: r, session: s, tier: tier, reserving: semaphore.NewWeighted(1)}
		r.mu.by[key] = space
	}
	return space
}

// Stage writes the bytes of extents into segments leased in a session, for bytes that belong in a tier.
// They are all there when it returns. Done is called after the commit, or instead of it.
func (r *Buffer) Stage(ctx context.Context, s *peer.Session, tier bb.Tier, extents []*wire.NewExtent, bytes [][]byte) (*Staged, error) {
	return r.in(s, tier).stage(ctx, extents, bytes)
}

func (r *segment) stage(ctx context.Context, extents []*wire.NewExtent, bytes [][]byte) (p *Staged, err error) {
	fabric, err := r.session.Fabric(ctx)
	if err != nil {
		return nil, err
	}
	p = &Staged{in: r}
	defer func() {
		if err != nil {
			p.Done()
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
			p.Extents = append(p.Extents, &wire.NewExtent{FileOffset: e.FileOffset + off, Length: n, Checksum: sum, Lease: l.id, SegmentOffset: at})
			off, left = off+n, left[n:]
			if n < e.Length && len(left) == 0 && whole != e.Checksum {
				// The sums of its pieces would make the present bytes look like the written ones.
				return p, bb.E(bb.Checksum, "write", r.b.address(""), fmt.Sprintf(
					"%d bytes to be written at offset %d have checksum %016x, not %016x", e.Length, e.FileOffset, whole, e.Checksum))
			}
		}
	}
	if err := r.b.o.Cluster.Transfer(ctx, fabric, ops); err != nil {
		// Written bytes may still arrive, so the lease must not pass to another session before
		// the connection has ended at the other side, as all does that belongs to the session.
		r.session.Break(err)
		return p, &bb.Error{Kind: cluster.TransferKind(ctx), Op: "write", Path: r.b.address(""), Node: r.session.Node(), Err: err}
	}
	return p, nil
}

// pieceSum is the checksum of memory that may be a region's.
func pieceSum(path string, p []byte) (sum uint64, err error) {
	err = store.Guard("read", path, func() error {
		sum = checksum.Sum(p)
		return nil
	})
	return sum, err
}

// reserve returns memory for n bytes, or for a good part of them, in a lease that has one
// more user.
func (r *segment) reserve(ctx context.Context, n int64) (l *lease, at, length int64, err error) {
	if r.reserving.Acquire(ctx, 1) != nil {
		return nil, 0, 0, context.Cause(ctx)
	}
	defer r.reserving.Release(1)
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
		r.now = &lease{id: reply.Id, key: key, base: reply.Offset, Cursor: fill.NewCursor(reply.DataStart, reply.RecordFloor)}
		r.mu.Unlock()
	}
}

// take takes memory from the lease there is. One without enough is filled no more.
func (r *segment) take(n int64) (l *lease, at, length int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l = r.now; l == nil {
		return nil, 0, 0
	}
	got, ok := l.TakeExtent(n, min(n, leastPiece))
	if !ok {
		r.end()
		return nil, 0, 0
	}
	l.users.Enter()
	return l, got.Off, got.Len()
}

// end ends the filling of the lease there is. mu is held.
func (r *segment) end() {
	l := r.now
	r.now = nil
	if l.users.Close() {
		r.giveBack(l)
	}
}

// giveBack returns a lease that is not filled any more and in which nothing is uncommitted.
func (r *segment) giveBack(l *lease) {
	r.b.o.Go(func() {
		ctx, cancel := context.WithTimeout(r.b.ctx, patience)
		defer cancel()
		// A lease that cannot be returned ends with the session.
		_, _ = r.session.Ask(ctx, wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: l.id}, nil, nil)
	})
}

// Done abandons the staged bytes, or ends them once they are committed. Nil: there are none.
func (p *Staged) Done() {
	if p == nil {
		return
	}
	r := p.in
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
	r.idle = time.AfterFunc(idleAfter, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.now != nil && r.now.users.Idle() && r.b.ctx.Err() == nil {
			r.end()
		}
	})
}
