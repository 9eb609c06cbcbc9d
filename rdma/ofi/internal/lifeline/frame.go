package lifeline

import (
	"encoding/binary"
	"fmt"
	"io"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

const (
	// TokenSize is the length of a token in bytes.
	TokenSize = 16
	// MaxAddress is the largest address of an endpoint in bytes.
	MaxAddress = 512

	magic     = "FBYOFI\x00\x00"
	version   = 1
	helloSize = 72
	frameSize = 72
)

// Hello opens the lifeline, from the dialer and then from the listener. All integers are little endian:
//
//	0       8         10     11     12         16        20         24      40      48      56       58  72
//	┌───────┬─────────┬──────┬──────┬──────────┬─────────┬──────────┬───────┬───────┬───────┬────────┬───┐
//	│ magic │ version │ kind │ zero │ protocol │ 1       │ 1        │ token │ sight │ sight │ length │ 0 │
//	│       │         │      │      │          │         │          │       │ addr  │ key   │        │   │
//	└───────┴─────────┴──────┴──────┴──────────┴─────────┴──────────┴───────┴───────┴───────┴────────┴───┘
//	  followed by length bytes: the address of the endpoint, in the provider's own form
//
// kind is 1 for message and 2 for datagram endpoints, protocol the fabric's (FI_PROTO_*). They must
// be the same on both sides. The listener's token is random. A message endpoint quotes it when it
// connects. The sight is the page to read behind writes that do not complete by delivery. The two
// ones were limits of messages. Older releases refuse zeros there, and send other values, which are
// ignored.
type Hello struct {
	Datagram bool
	Protocol uint32
	Token    [TokenSize]byte
	Sight    Place
	Address  []byte
}

// Encode returns the hello's bytes on the wire.
func (h *Hello) Encode() []byte {
	b := make([]byte, helloSize, helloSize+len(h.Address))
	copy(b, magic)
	binary.LittleEndian.PutUint16(b[8:], version)
	b[10] = 1
	if h.Datagram {
		b[10] = 2
	}
	binary.LittleEndian.PutUint32(b[12:], h.Protocol)
	binary.LittleEndian.PutUint32(b[16:], 1)
	binary.LittleEndian.PutUint32(b[20:], 1)
	copy(b[24:], h.Token[:])
	binary.LittleEndian.PutUint64(b[40:], h.Sight.Addr)
	binary.LittleEndian.PutUint64(b[48:], h.Sight.Key)
	binary.LittleEndian.PutUint16(b[56:], uint16(len(h.Address)))
	return append(b, h.Address...)
}

// ReadHello reads a hello, and refuses malformed ones.
func ReadHello(r io.Reader) (Hello, error) {
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return Hello{}, fmt.Errorf("read hello: %w", err)
	}
	if string(b[:8]) != magic {
		return Hello{}, fmt.Errorf("not a lifeline of rdma/ofi: %w", rdma.ErrProtocol)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != version {
		return Hello{}, fmt.Errorf("peer has version %d, this side %d: %w", v, version, rdma.ErrProtocol)
	}
	h := Hello{
		Datagram: b[10] == 2,
		Protocol: binary.LittleEndian.Uint32(b[12:]),
		Token:    [TokenSize]byte(b[24:40]),
		Sight:    Place{Addr: binary.LittleEndian.Uint64(b[40:]), Key: binary.LittleEndian.Uint64(b[48:])},
	}
	n := int(binary.LittleEndian.Uint16(b[56:]))
	if b[10] < 1 || b[10] > 2 || n > MaxAddress {
		return Hello{}, fmt.Errorf("hello with values out of range: %w", rdma.ErrProtocol)
	}
	h.Address = make([]byte, n)
	if _, err := io.ReadFull(r, h.Address); err != nil {
		return Hello{}, fmt.Errorf("read hello: %w", err)
	}
	return h, nil
}

// Kind is the purpose of a frame.
type Kind uint8

// The kinds of frames. Their values are part of the wire format.
const (
	KindReady   Kind = iota + 1 // the listener's endpoint is connected
	KindPing                    // only shows that this side is alive
	KindOpen                    // requests a region: request, key
	KindOpened                  // answers: request, status, access, key, addr, rkey, size
	KindRevoke                  // requests the end of the use of a region: key (its id alone counts)
	KindRevoked                 // answers: key (its id alone counts)
)

// Frame is one message of the lifeline, little endian but the key:
//
//	0      1        2        3      4         8     40     48     56     64    72
//	┌──────┬────────┬────────┬──────┬─────────┬─────┬──────┬──────┬──────┬─────┐
//	│ kind │ status │ access │ zero │ request │ key │ addr │ rkey │ size │ zero│
//	└──────┴────────┴────────┴──────┴─────────┴─────┴──────┴──────┴──────┴─────┘
type Frame struct {
	Kind    Kind
	Status  target.Status
	Access  rdma.Access
	Request uint32
	Key     rdma.RemoteKey
	At      Place // of the region's first byte
	Size    uint64
}

// Append appends the frame's bytes on the wire.
func (f *Frame) Append(b []byte) []byte {
	b = append(b, byte(f.Kind), byte(f.Status), byte(f.Access), 0)
	b = binary.LittleEndian.AppendUint32(b, f.Request)
	b, _ = f.Key.AppendBinary(b) // cannot fail
	b = binary.LittleEndian.AppendUint64(b, f.At.Addr)
	b = binary.LittleEndian.AppendUint64(b, f.At.Key)
	b = binary.LittleEndian.AppendUint64(b, f.Size)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

func decodeFrame(b []byte) (Frame, error) {
	key, err := rdma.DecodeRemoteKey(b[8:40])
	f := Frame{
		Kind: Kind(b[0]), Status: target.Status(b[1]), Access: rdma.Access(b[2]),
		Request: binary.LittleEndian.Uint32(b[4:]), Key: key,
		At:   Place{Addr: binary.LittleEndian.Uint64(b[40:]), Key: binary.LittleEndian.Uint64(b[48:])},
		Size: binary.LittleEndian.Uint64(b[56:]),
	}
	sane := err == nil && f.Kind >= KindReady && f.Kind <= KindRevoked && f.Status <= target.Revoked &&
		f.Access <= rdma.AccessRemoteRead|rdma.AccessRemoteWrite
	if !sane {
		return Frame{}, rdma.ErrProtocol
	}
	return f, nil
}

// Place is a peer's memory in the fabric's own terms.
type Place struct{ Addr, Key uint64 }

// ReadFrame reads a frame, and refuses malformed ones.
func ReadFrame(r io.Reader) (Frame, error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Frame{}, err
	}
	return decodeFrame(b[:])
}

// SayReady ends this side's part of the handshake.
func SayReady(w io.Writer) error {
	_, err := w.Write((&Frame{Kind: KindReady}).Append(nil))
	return err
}

// ExpectReady waits for the end of the peer's part.
func ExpectReady(r io.Reader) error {
	f, err := ReadFrame(r)
	if err == nil && f.Kind != KindReady {
		err = rdma.ErrProtocol
	}
	if err != nil {
		return fmt.Errorf("waiting for the peer to be ready: %w", err)
	}
	return nil
}

// ForRegion is a frame about the region with an id, of a kind in which nothing else counts.
func ForRegion(kind Kind, id uint64) Frame {
	b := make([]byte, rdma.RemoteKeySize)
	binary.BigEndian.PutUint64(b, id)
	key, _ := rdma.DecodeRemoteKey(b) // has the right length
	return Frame{Kind: kind, Key: key}
}
