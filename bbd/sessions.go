package bbd

import (
	"context"
	"sync/atomic"

	"forebay/bbd/access"
	"forebay/bbd/fabric"
	"forebay/bbd/replica"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// The resources of sessions, in the order in which one that ends releases them.
const (
	pins    rpc.Kind = iota // *pin
	handles                 // *handle
	leases                  // *heldLease
)

// newServer returns the server of the daemon's sessions.
func (d *Daemon) newServer() *rpc.Server {
	l := &d.cfg.Limits
	return rpc.New(rpc.Options{
		Node: d.cfg.Node, Version: d.cfg.Version, Keys: d.cfg.Keys, TLS: d.cfg.TLS, Silence: d.cfg.silence(), Log: d.log,
		Limits: rpc.Limits{
			Sessions: l.Sessions, Unproven: l.Unproven, InFlight: l.InFlight, Requests: l.Requests, Bytes: l.Bytes, Handshake: l.Handshake,
		},
		Handlers: d.handlers(), Welcome: d.welcome, Events: d.observe, Go: d.wg.Go,
	})
}

// client is what the daemon has of a session besides its resources.
type client struct {
	admission *fabric.Admission // the client's way to region memory over the network; nil: none

	parts replica.Parts // of second copies that come in parts
}

// clientOf returns what the daemon has of a session whose handshake is over.
func clientOf(s *rpc.Session) *client { return s.State().(*client) }

// Release closes the client's connections to the fabric, before what the session held is given to
// others.
func (c *client) Release(bool) { c.admission.End() }

// welcome tells a client how it reaches the daemon's memory.
func (d *Daemon) welcome(s *rpc.Session, m *wire.Welcome) rpc.Resource {
	m.Instance, m.Epoch = uint64(d.store.Instance()), d.epoch
	m.MapRegions, m.InlineThreshold = s.Local(), uint32(d.cfg.Limits.Inline)
	if s.Peer() != "" {
		m.Capabilities = append(m.Capabilities, wire.CapabilityParts)
	}
	c := new(client)
	if !s.Local() && s.Token() == nil {
		c.admission = d.fabric.Admit(s.ID())
		c.admission.Describe(m, s.LocalAddr())
	}
	return c
}

// daemonsBuffer is buffer for requests that only daemons may make.
func (d *Daemon) daemonsBuffer(ctx context.Context, r *rpc.Request, op, name string) (*buffer, error) {
	if !r.Caller().Relayed || !r.Caller().System {
		return nil, access.Denied(op, bb.Address{Buffer: name}.String(), "ask what daemons ask of each other")
	}
	return d.buffer(ctx, name)
}

// bufferFor finds a buffer that the session's user may enter.
func (d *Daemon) bufferFor(ctx context.Context, s *rpc.Session, op, name string) (*buffer, error) {
	b, err := d.tokensBuffer(ctx, s, op, name)
	if err != nil {
		return nil, bb.Wrap(op, bb.Address{Buffer: name}.String(), err)
	}
	spec := b.Spec()
	if !s.Caller().Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
		return nil, access.Denied(op, b.address(""), "enter this buffer")
	}
	return b, nil
}

// tokensBuffer checks the session's token, before anybody learns whether a buffer of another name
// is there.
func (d *Daemon) tokensBuffer(ctx context.Context, s *rpc.Session, op, name string) (*buffer, error) {
	refused := bb.E(bb.Permission, op, bb.Address{Buffer: name}.String(), "the token is not for this buffer")
	if token := s.Token(); token != nil && name != token.Buffer {
		return nil, refused
	}
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	if spec := b.Spec(); !tokenFits(s, &spec) {
		return nil, refused
	}
	return b, nil
}

// tokenFits reports whether the session's token, if it has one, is for a buffer.
func tokenFits(s *rpc.Session, spec *bb.Buffer) bool {
	token := s.Token()
	return token == nil || spec.Name == token.Buffer && spec.Created.Equal(token.Created)
}

// maySee reports whether the session's user may hear what happens in a buffer.
func (d *Daemon) maySee(ctx context.Context, s *rpc.Session, name string) bool {
	_, err := d.bufferFor(ctx, s, "events", name)
	return err == nil || s.Caller().System
}

// heldLease is a segment that a session's client fills.
type heldLease struct {
	id     bb.LeaseID
	buffer atomic.Pointer[buffer] // see holdsLease
}

func newHeldLease(b *buffer, id bb.LeaseID) *heldLease {
	l := &heldLease{id: id}
	l.buffer.Store(b)
	return l
}

// Release gives the segment back. One of a client that is gone may be written still; while the
// daemon stops it stays as it is, as its writer copies out of it when the daemon is there again.
func (l *heldLease) Release(lost bool) {
	b := l.buffer.Load()
	switch {
	case !lost:
		b.d.alloc.Release(memoryBuffer{b}, l.id)
	case !b.d.server.Closed():
		b.d.alloc.Abandon(l.id)
	}
}

// holdsLease reports whether a session has a lease for a buffer. A segment is of a buffer's name: a client
// that keeps one for the next file, while another destroys the buffer and makes it again,
// fills it for the new one.
func holdsLease(s *rpc.Session, id bb.LeaseID, b *buffer) bool {
	l, ok := s.Resource(rpc.Key{Kind: leases, ID: uint64(id)}).(*heldLease)
	if !ok || l.buffer.Load().name != b.name {
		return false
	}
	l.buffer.Store(b)
	return true
}

// pin is a range of an open file that the client reads in place.
type pin struct {
	handle *handle
	held   *store.Pinned
	bytes  int64 // of the segments that it keeps
}

// Release lets the range be evicted.
func (p *pin) Release(bool) {
	p.held.Release()
	p.handle.s.Give(p.handle.d.shares.pins, p.bytes)
}

// regionFor describes a region to a client, with what lets it reach the memory, if it may.
func (d *Daemon) regionFor(s *rpc.Session, id bb.RegionID) (*wire.Region, error) {
	info, _, err := d.store.Region(id)
	if err != nil {
		return nil, err
	}
	m := &wire.Region{Id: uint64(info.ID), Length: info.Bytes}
	switch {
	case !mayReach(s, &info):
	case s.Local():
		m.Path = info.Path
	default:
		m.Key, err = clientOf(s).admission.Key(id)
	}
	return m, err
}

// mayReach reports whether the client may touch all of a region's memory, and can.
func mayReach(s *rpc.Session, info *store.RegionInfo) bool {
	way := clientOf(s).admission
	return (s.Local() || way != nil && (info.Tier == bb.TierMemory || !way.MemoryOnly())) &&
		(s.Caller().System || info.Owned && info.UID == s.Caller().UID)
}
