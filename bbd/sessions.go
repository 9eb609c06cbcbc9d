package bbd

import (
	"context"

	"forebay/bbd/call"
	"forebay/bbd/fabric"
	"forebay/bbd/replica"
	"forebay/bbd/rpc"
	"forebay/internal/wire"
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

// client is the daemon's state of a session besides its resources.
type client struct {
	admission *fabric.Admission // the client's way to region memory over the network; nil: none

	parts replica.Parts // of second copies that come in parts
}

// clientOf returns the daemon's state of a session whose handshake is over.
func clientOf(s *rpc.Session) *client { return s.State().(*client) }

// Release closes the client's connections to the fabric, before the session's resources are granted to
// others.
func (c *client) Release(bool) { c.admission.End() }

// welcome describes to a client its ways to the daemon's memory.
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

// maySee reports whether a visitor may receive the events of a buffer.
func (d *Daemon) maySee(ctx context.Context, v call.Visitor, name string) bool {
	_, err := d.bufferFor(ctx, v, "events", name)
	return err == nil || v.Caller().System
}
