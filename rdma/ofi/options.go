package ofi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"forebay/rdma/internal/provider"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/local"
)

// Admission is a peer's permission to be connected. See Options.Admit.
type Admission = provider.Admission

// Options configure a Fabric. The zero value means the defaults given below.
type Options struct {
	// Want selects one of the machine's fabrics. Default: the result of Choose.
	Want fi.Want
	// Depth is the number of operations in flight per Conn, up to 65536. Default 1024.
	Depth int
	// Chunk is the size in bytes of the pieces into which operations are cut, 4 KiB to 1 GiB, or
	// less if the fabric takes less at once. Default 1 MiB.
	Chunk int
	// Window is how many pieces per Conn the fabric holds at once, 1 to 1024, or fewer where it
	// takes fewer. Default 64.
	Window int
	// Kept is the number of bytes of memory handed to Keep that are registered at once, if the
	// fabric requires registered memory. Default 1 GiB.
	Kept int
	// Spin is how long the completion queue is polled after the last thing that happened before
	// the loop sleeps on its wait object. A negative value means not at all. Default 50 µs.
	Spin time.Duration
	// PeerTimeout: a peer that sends nothing on the lifeline for so long is gone. Pings are sent
	// three times as often. At least 10 ms. Default 10 s.
	PeerTimeout time.Duration
	// HandshakeTimeout bounds the handshake on both sides. Default 5 s.
	HandshakeTimeout time.Duration
	// RevokeTimeout is the time that Region.Close waits for peers to end their operations in
	// flight before it disconnects them. Default 1 s.
	RevokeTimeout time.Duration
	// TLS, where not nil, encrypts the lifeline, not the endpoint. A dialer needs ServerName or
	// InsecureSkipVerify in it, a listener a certificate.
	TLS *tls.Config
	// Authenticate, where not nil, runs on the lifeline that Dial opens, inside TLS, before
	// anything is exchanged. It may read and write the stream. The stream's deadline is set. An
	// error ends the connection.
	Authenticate func(ctx context.Context, stream net.Conn) error
	// Admit is Authenticate for the lifelines that a listener accepts. The connection lives no
	// longer than its admission. nil admits it for good.
	Admit func(ctx context.Context, stream net.Conn) (*Admission, error)
	// Log receives refused and broken connections. Default: discard.
	Log *slog.Logger
}

// Dialer has the settings of connections to one peer, where one Fabric dials many. Its fields stand
// in place of the Options of the same names. A PeerTimeout of 0 and a nil Log mean their defaults.
type Dialer struct {
	PeerTimeout  time.Duration
	TLS          *tls.Config
	Authenticate func(ctx context.Context, stream net.Conn) error
	Log          *slog.Logger
}

// BufferSize is the size in bytes of a Buffer.
const BufferSize = local.StageSize

func (o Options) withDefaults() Options {
	provider.Default(&o.Depth, 1024)
	provider.Default(&o.Chunk, 1<<20)
	provider.Default(&o.Window, 64)
	provider.Default(&o.Kept, 1<<30)
	provider.Default(&o.Spin, 50*time.Microsecond)
	provider.Default(&o.PeerTimeout, 10*time.Second)
	provider.Default(&o.HandshakeTimeout, 5*time.Second)
	provider.Default(&o.RevokeTimeout, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every option that is out of its range. Zero values are valid.
func (o Options) Validate() error {
	o = o.withDefaults()
	return errors.Join(
		o.Want.Validate(),
		provider.Within("ofi", "Depth", o.Depth, 1, 1<<16),
		provider.Within("ofi", "Chunk", o.Chunk, 4<<10, 1<<30),
		provider.Within("ofi", "Window", o.Window, 1, 1024),
		provider.Within("ofi", "Kept", o.Kept, 0, 1<<40),
		provider.Within("ofi", "Spin", o.Spin, -time.Second, time.Second),
		provider.Within("ofi", "PeerTimeout", o.PeerTimeout, 10*time.Millisecond, time.Hour),
		provider.Within("ofi", "HandshakeTimeout", o.HandshakeTimeout, time.Millisecond, time.Hour),
		provider.Within("ofi", "RevokeTimeout", o.RevokeTimeout, time.Millisecond, time.Hour),
	)
}

// NewAdmission admits so many connections at once.
func NewAdmission(conns int) *Admission { return provider.NewAdmission(conns) }
