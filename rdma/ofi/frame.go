//go:build ofi && cgo

package ofi

import (
	"encoding/binary"
	"fmt"
	"io"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

const (
	magic     = "FBYOFI\x00\x00"
	version   = 1
	tokenSize = 16
	helloSize = 72
	frameSize = 72
)

// hello opens the lifeline, from the dialer and then from the listener; all integers little endian:
//
//	0       8         10     11     12         16        20         24      40      48      56       58  72
//	┌───────┬─────────┬──────┬──────┬──────────┬─────────┬──────────┬───────┬───────┬───────┬────────┬───┐
//	│ magic │ version │ kind │ zero │ protocol │ 1       │ 1        │ token │ sight │ sight │ length │ 0 │
//	│       │         │      │      │          │         │          │       │ addr  │ key   │        │   │
//	└───────┴─────────┴──────┴──────┴──────────┴─────────┴──────────┴───────┴───────┴───────┴────────┴───┘
//	  followed by length bytes: the address of the endpoint, in the provider's own form
//
// kind is 1 for message and 2 for datagram endpoints, protocol the fabric's (FI_PROTO_*): they must
// be the same on both sides. The listener's token is random: a message endpoint quotes it when it
// connects. The sight is the page to read behind writes, where those do not complete by delivery. The
// two ones were limits of messages: older releases refuse zeros there, and say something else, which
// is ignored.
type hello struct {
	datagram            bool
	protocol            uint32
	token               [tokenSize]byte
	sightAddr, sightKey uint64
	address             []byte
}

func (h *hello) encode() []byte {
	b := make([]byte, helloSize, helloSize+len(h.address))
	copy(b, magic)
	binary.LittleEndian.PutUint16(b[8:], version)
	b[10] = 1
	if h.datagram {
		b[10] = 2
	}
	binary.LittleEndian.PutUint32(b[12:], h.protocol)
	binary.LittleEndian.PutUint32(b[16:], 1)
	binary.LittleEndian.PutUint32(b[20:], 1)
	copy(b[24:], h.token[:])
	binary.LittleEndian.PutUint64(b[40:], h.sightAddr)
	binary.LittleEndian.PutUint64(b[48:], h.sightKey)
	binary.LittleEndian.PutUint16(b[56:], uint16(len(h.address)))
	return append(b, h.address...)
}

func readHello(r io.Reader) (hello, error) {
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	if string(b[:8]) != magic {
		return hello{}, fmt.Errorf("not a lifeline of rdma/ofi: %w", rdma.ErrProtocol)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != version {
		return hello{}, fmt.Errorf("peer speaks version %d, this side %d: %w", v, version, rdma.ErrProtocol)
	}
	h := hello{
		datagram:  b[10] == 2,
		protocol:  binary.LittleEndian.Uint32(b[12:]),
		token:     [tokenSize]byte(b[24:40]),
		sightAddr: binary.LittleEndian.Uint64(b[40:]),
		sightKey:  binary.LittleEndian.Uint64(b[48:]),
	}
	n := int(binary.LittleEndian.Uint16(b[56:]))
	if b[10] < 1 || b[10] > 2 || n > maxAddress {
		return hello{}, fmt.Errorf("hello with values out of range: %w", rdma.ErrProtocol)
	}
	h.address = make([]byte, n)
	if _, err := io.ReadFull(r, h.address); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	return h, nil
}

type kind uint8

const (
	kindReady   kind = iota + 1 // the listener's endpoint is connected
	kindPing                    // only says that this side lives
	kindOpen                    // asks for a region: request, key
	kindOpened                  // answers: request, status, access, key, addr, rkey, size
	kindRevoke                  // asks to end the use of a region: key (its id alone counts)
	kindRevoked                 // answers: key (its id alone counts)
)

// frame is what the lifeline carries, little endian but the key:
//
//	0      1        2        3      4         8     40     48     56     64    72
//	┌──────┬────────┬────────┬──────┬─────────┬─────┬──────┬──────┬──────┬─────┐
//	│ kind │ status │ access │ zero │ request │ key │ addr │ rkey │ size │ zero│
//	└──────┴────────┴────────┴──────┴─────────┴─────┴──────┴──────┴──────┴─────┘
type frame struct {
	kind             kind
	status           target.Status
	access           rdma.Access
	request          uint32
	key              rdma.RemoteKey
	addr, rkey, size uint64
}

func (f *frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), byte(f.status), byte(f.access), 0)
	b = binary.LittleEndian.AppendUint32(b, f.request)
	b, _ = f.key.AppendBinary(b) // cannot fail
	b = binary.LittleEndian.AppendUint64(b, f.addr)
	b = binary.LittleEndian.AppendUint64(b, f.rkey)
	b = binary.LittleEndian.AppendUint64(b, f.size)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

func decodeFrame(b []byte) (frame, error) {
	key, err := rdma.DecodeRemoteKey(b[8:40])
	f := frame{
		kind: kind(b[0]), status: target.Status(b[1]), access: rdma.Access(b[2]),
		request: binary.LittleEndian.Uint32(b[4:]), key: key,
		addr: binary.LittleEndian.Uint64(b[40:]), rkey: binary.LittleEndian.Uint64(b[48:]),
		size: binary.LittleEndian.Uint64(b[56:]),
	}
	sane := err == nil && f.kind >= kindReady && f.kind <= kindRevoked && f.status <= target.Revoked &&
		f.access <= rdma.AccessRemoteRead|rdma.AccessRemoteWrite
	if !sane {
		return frame{}, rdma.ErrProtocol
	}
	return f, nil
}
