package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"forebay/rdma/internal/provider"
)

// Options configure a Fabric. The zero value means the defaults given below.
type Options struct {
	// Streams is the number of TCP connections for data per Conn that is dialled, 1 to 64. The
	// listener accepts the dialer's choice. Default DefaultStreams.
	Streams int
	// Chunk is the size in bytes of the pieces into which operations are cut, 4 KiB to 16 MiB.
	// Default 1 MiB.
	Chunk int
	// Depth is the number of operations in flight per Conn, up to 65536. Default 1024.
	Depth int
	// Window is the number of unanswered chunks per data stream that this side allows its peer, 1
	// to 4096. The memory it costs is about 100 bytes each. Default 128.
	Window int
	// PeerTimeout: a peer that sends nothing for so long is gone. Pings are sent three times as
	// often. At least 10 ms. Default 10 s.
	PeerTimeout time.Duration
	// HandshakeTimeout bounds the handshake on both sides. Default 5 s.
	HandshakeTimeout time.Duration
	// RevokeTimeout is how long Region.Close waits for transfers on the wire that use the region
	// before it disconnects the peers that stall them. Default 1 s.
	RevokeTimeout time.Duration
	// TLS, where not nil, encrypts every stream. A dialer needs ServerName or InsecureSkipVerify
	// in it, a listener a certificate.
	TLS *tls.Config
	// Authenticate, where not nil, runs on every stream that Dial opens, inside TLS, before
	// anything else but a hello is exchanged. It may read and write the stream. The stream's
	// deadline is set. An error ends the connection.
	Authenticate func(ctx context.Context, stream net.Conn) error
	// Admit is Authenticate for the streams that a listener accepts. The connection lives no longer
	// than its admission, which must be the same for all its streams. nil admits it for good.
	Admit func(ctx context.Context, stream net.Conn) (*Admission, error)
	// Log receives refused and broken connections. Default: discard.
	Log *slog.Logger
}

// DefaultStreams is the number of data streams of a Conn without Options.Streams.
const DefaultStreams = 2

// maxOp is the largest operation: the largest region (architecture) and some room.
const maxOp = 1 << 31

func (o Options) withDefaults() Options {
	provider.Default(&o.Streams, DefaultStreams)
	provider.Default(&o.Chunk, 1<<20)
	provider.Default(&o.Depth, 1024)
	provider.Default(&o.Window, 128)
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
		provider.Within("tcp", "Streams", o.Streams, 1, maxStreams),
		provider.Within("tcp", "Chunk", o.Chunk, 4<<10, maxChunk),
		provider.Within("tcp", "Depth", o.Depth, 1, 1<<16),
		provider.Within("tcp", "Window", o.Window, 1, maxWindow),
		provider.Within("tcp", "PeerTimeout", o.PeerTimeout, 10*time.Millisecond, time.Hour),
		provider.Within("tcp", "HandshakeTimeout", o.HandshakeTimeout, time.Millisecond, time.Hour),
		provider.Within("tcp", "RevokeTimeout", o.RevokeTimeout, time.Millisecond, time.Hour),
	)
}
