package handle

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/alloc"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Lease grants a client a segment to fill.
func (v *Service) Lease(ctx context.Context, r *rpc.Request, m *wire.LeaseRequest) (proto.Message, error) {
	s := r.Session()
	b, err := v.o.Enter(ctx, s, "lease", m.Buffer)
	if err != nil {
		return nil, err
	}
	if !s.Local() && v.o.Admission(s) == nil {
		return nil, bb.E(bb.Unsupported, "lease", b.address(""), "this client cannot reach regions").
			WithRemedy("send the bytes with the commit")
	}
	if m.Bytes < 0 {
		return nil, bb.E(bb.Invalid, "lease", b.address(""), fmt.Sprintf("%d bytes were asked for", m.Bytes))
	}
	if m.Tier > uint32(bb.TierDisk) {
		return nil, bb.E(bb.Invalid, "lease", b.address(""), fmt.Sprintf("there is no tier %d", m.Tier))
	}
	size := min(max(m.Bytes, v.o.Limits.LeaseMin), v.o.Limits.LeaseMax, v.o.Alloc.MaxLease())
	files, said := int(min(m.Files, math.MaxInt32)), m.Files > 0
	if !said && m.Fits > 0 {
		files = 1 // of a client that does not report it
	}
	l, err := v.o.Alloc.Lease(ctx, alloc.Request{
		Buffer: b.p.Memory, UID: s.Caller().UID, Client: s.ID(), Claimant: v.claimantOf(s), Bytes: size, Fits: min(max(m.Fits, 0), size),
		Tier: bb.Tier(m.Tier), Files: files, AllFiles: said, Commits: m.Commits,
	})
	if err != nil {
		return nil, bb.Wrap("lease", b.address(""), err)
	}
	key := rpc.Key{Kind: Leases, ID: uint64(l.ID)}
	if s.Hold(key, newHeldLease(v, b, l.ID), v.o.Limits.Leases) != nil {
		v.o.Alloc.Release(b.p.Memory, l.ID)
		return nil, bb.E(bb.Busy, "lease", b.address(""), "the session holds too many leases").WithRemedy("return some")
	}
	region, err := v.region(s, l.Region)
	if err != nil {
		return nil, err
	}
	return &wire.Lease{
		Id: uint64(l.ID), Region: region, Offset: l.Offset, Length: l.Length,
		DataStart: l.DataStart, RecordFloor: l.RecordFloor, Tiered: len(b.p.Spec().Tiers) > 0,
	}, nil
}

// ReturnLease takes a segment back.
func ReturnLease(_ context.Context, r *rpc.Request, m *wire.ReturnLease) {
	if !r.Session().Release(rpc.Key{Kind: Leases, ID: m.Id}) {
		r.Fail(bb.E(bb.Invalid, "return", "", fmt.Sprintf("lease %d is not this session's", m.Id)))
		return
	}
	r.Reply(&wire.Empty{})
}

// heldLease is a segment that a session's client fills.
type heldLease struct {
	of     *Service
	id     bb.LeaseID
	buffer atomic.Pointer[Buffer] // see holdsLease
}

func newHeldLease(v *Service, b *Buffer, id bb.LeaseID) *heldLease {
	l := &heldLease{of: v, id: id}
	l.buffer.Store(b)
	return l
}

// Release returns the segment. One of a client that is gone may be written still. While the daemon
// stops, it stays as it is, since its writer copies out of it when the daemon is there again.
func (l *heldLease) Release(lost bool) {
	b := l.buffer.Load()
	switch {
	case !lost:
		l.of.o.Alloc.Release(b.p.Memory, l.id)
	case !l.of.o.Stopping():
		l.of.o.Alloc.Abandon(l.id)
	}
}

// holdsLease reports whether a session has a lease for a buffer. A segment is of a buffer's name.
// If a client keeps one for the next file while another destroys the buffer and makes it again, the
// segment is filled for the new buffer.
func holdsLease(s *rpc.Session, id bb.LeaseID, b *Buffer) bool {
	l, ok := s.Resource(rpc.Key{Kind: Leases, ID: uint64(id)}).(*heldLease)
	if !ok || l.buffer.Load().name != b.name {
		return false
	}
	l.buffer.Store(b)
	return true
}

// claimant is a session of a client of this node, for package alloc.
type claimant struct {
	of *Service
	s  *rpc.Session
}

// claimantOf returns the claimant of a session, or nil for one of another daemon. Such a session
// acts for many clients, so their memory counts as memory that may become free.
func (v *Service) claimantOf(s *rpc.Session) alloc.Claimant {
	if s.Peer() != "" {
		return nil
	}
	return claimant{v, s}
}

// Claim returns a session's leases for a buffer, the files that it alone has open for writing, and how
// many it has open.
func (c claimant) Claim(of alloc.Buffer) (has store.Claim, writes int) {
	b := c.of.o.BufferOf(of)
	c.s.Each(Leases, func(_ uint64, r rpc.Resource) {
		if l := r.(*heldLease); l.buffer.Load() == b {
			has.Leases = append(has.Leases, l.id)
		}
	})
	for _, f := range b.p.Files.All() {
		if f.OfAlone(c.s) {
			has.Files = append(has.Files, f.ID())
		}
	}
	c.s.Each(Handles, func(_ uint64, r rpc.Resource) {
		if r.(*handle).writes == b.name {
			writes++
		}
	})
	return has, writes
}
