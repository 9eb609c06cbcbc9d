package tcp

import (
	"encoding/binary"
	"fmt"

	"forebay/rdma"
)

const (
	magic        = "FBYRDMA\x00"
	version      = 1
	helloSize    = 64
	sessionBytes = 16

	maxStreams = 64
	maxChunk   = 16 << 20
	maxWindow  = 4096
)

// hello opens every stream, from the dialer and then from the listener. All integers are big endian:
//
//	 0        8       10      12       14       16      20      24       28       32        48     64
//	┌────────┬───────┬───────┬────────┬────────┬───────┬───────┬────────┬────────┬─────────┬──────┐
//	│ magic  │version│ index │streams │reserved│ chunk │window │ 1      │ 1      │ session │ zero │
//	└────────┴───────┴───────┴────────┴────────┴───────┴───────┴────────┴────────┴─────────┴──────┘
//
// Index 0 is the control stream, 1 to streams are data streams. The listener's answer on the
// control stream carries a random session, which the dialer's data streams quote to join. chunk is
// the largest payload of a frame that the sender of the hello will use, window the number of
// unanswered requests per stream it accepts. The two ones were limits of messages. Older releases
// refuse zeros there, and send other values, which are ignored.
type hello struct {
	index, streams uint16
	chunk, window  uint32
	session        [sessionBytes]byte
}

func (h *hello) encode() []byte {
	b := make([]byte, helloSize)
	copy(b, magic)
	binary.BigEndian.PutUint16(b[8:], version)
	binary.BigEndian.PutUint16(b[10:], h.index)
	binary.BigEndian.PutUint16(b[12:], h.streams)
	binary.BigEndian.PutUint32(b[16:], h.chunk)
	binary.BigEndian.PutUint32(b[20:], h.window)
	binary.BigEndian.PutUint32(b[24:], 1)
	binary.BigEndian.PutUint32(b[28:], 1)
	copy(b[32:], h.session[:])
	return b
}

func decodeHello(b []byte) (hello, error) {
	if len(b) != helloSize || string(b[:8]) != magic {
		return hello{}, fmt.Errorf("not a Forebay fabric stream: %w", rdma.ErrProtocol)
	}
	if v := binary.BigEndian.Uint16(b[8:]); v != version {
		return hello{}, fmt.Errorf("peer has version %d, this side %d: %w", v, version, rdma.ErrProtocol)
	}
	h := hello{
		index:   binary.BigEndian.Uint16(b[10:]),
		streams: binary.BigEndian.Uint16(b[12:]),
		chunk:   binary.BigEndian.Uint32(b[16:]),
		window:  binary.BigEndian.Uint32(b[20:]),
		session: [sessionBytes]byte(b[32:48]),
	}
	sane := h.streams >= 1 && h.streams <= maxStreams && h.index <= h.streams &&
		h.chunk >= 1 && h.chunk <= maxChunk && h.window >= 1 && h.window <= maxWindow
	if !sane {
		return hello{}, fmt.Errorf("hello with values out of range: %w", rdma.ErrProtocol)
	}
	return h, nil
}
