package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/option"
)

// Options configure a Fabric. The zero value means the defaults given below.
type Options struct {
	// Depth is what Limits reports as operations in flight per Conn. They complete within Post,
	// so only the queue's depth makes Post wait. Default 1024.
	Depth int
	// MaxMessage is the largest message in bytes, 64 to 64 KiB. Both sides of a connection must
	// agree. Default 16 KiB.
	MaxMessage int
	// Messages is how many messages may wait to be received, 1 to 4096. Default 32.
	Messages int
	// PeerTimeout bounds the wait for a peer's answer to a request for a region. The kernel tells
	// when a peer dies; one that is stopped is noticed only when it is asked. Default 10 s.
	PeerTimeout time.Duration
	// HandshakeTimeout bounds the handshake on both sides. Default 5 s.
	HandshakeTimeout time.Duration
	// RevokeTimeout is how long Region.Close waits for a peer to unmap the region before it
	// disconnects that peer and returns an error. Default 1 s.
	RevokeTimeout time.Duration
	// Authorize decides who may connect, and whom to connect to. Default: the same effective
	// user, and root.
	Authorize func(peer unix.Ucred) error
	// Log receives refused and broken connections. Default: discard.
	Log *slog.Logger
}

const (
	maxMessage  = 64 << 10
	maxMessages = 4096
)

func (o Options) withDefaults() Options {
	option.Default(&o.Depth, 1024)
	option.Default(&o.MaxMessage, 16<<10)
	option.Default(&o.Messages, 32)
	option.Default(&o.PeerTimeout, 10*time.Second)
	option.Default(&o.HandshakeTimeout, 5*time.Second)
	option.Default(&o.RevokeTimeout, time.Second)
	if o.Authorize == nil {
		o.Authorize = sameUser
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every option that is out of its range. Zero values are valid.
func (o Options) Validate() error {
	o = o.withDefaults()
	return errors.Join(
		option.Within("shm", "Depth", o.Depth, 1, 1<<16),
		option.Within("shm", "MaxMessage", o.MaxMessage, 64, maxMessage),
		option.Within("shm", "Messages", o.Messages, 1, maxMessages),
		option.Within("shm", "PeerTimeout", o.PeerTimeout, 10*time.Millisecond, time.Hour),
		option.Within("shm", "HandshakeTimeout", o.HandshakeTimeout, time.Millisecond, time.Hour),
		option.Within("shm", "RevokeTimeout", o.RevokeTimeout, time.Millisecond, time.Hour),
	)
}

func sameUser(peer unix.Ucred) error {
	if peer.Uid == 0 || int(peer.Uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("user %d is not this process's user: %w", peer.Uid, rdma.ErrAccess)
}
