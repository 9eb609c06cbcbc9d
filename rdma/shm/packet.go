package shm

import (
	"encoding/binary"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

type kind uint8

const (
	kindHello   kind = iota + 1 // both sides, first; a: largest message, b: mailbox slots
	kindMessage                 // payload: the message
	kindCredit                  // a: messages received
	kindMap                     // request; payload: the region's key
	kindMapped                  // answer; request, status, access; a: offset, b: length; descriptor
	kindRevoke                  // a: the region's id
	kindRevoked                 // a: the region's id; sent when it is unmapped
)

const (
	magic      = 0x46425953 // "FBYS"
	version    = 1
	headerSize = 32
)

// packet is one datagram of the SOCK_SEQPACKET socket; all integers big endian:
//
//	0       4         5      6        7        8         12        16   24   32
//	┌───────┬─────────┬──────┬────────┬────────┬─────────┬─────────┬────┬────┬─────────┐
//	│ magic │ version │ kind │ status │ access │ request │ reserved│ a  │ b  │ payload │
//	└───────┴─────────┴──────┴────────┴────────┴─────────┴─────────┴────┴────┴─────────┘
type packet struct {
	kind    kind
	status  target.Status
	access  rdma.Access
	request uint32
	a, b    uint64
}

func (p *packet) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, magic)
	b = append(b, version, byte(p.kind), byte(p.status), byte(p.access))
	b = binary.BigEndian.AppendUint32(b, p.request)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, p.a)
	return binary.BigEndian.AppendUint64(b, p.b)
}

// decodePacket returns the packet and its payload, which lies in b.
func decodePacket(b []byte) (packet, []byte, error) {
	if len(b) < headerSize || binary.BigEndian.Uint32(b) != magic || b[4] != version {
		return packet{}, nil, rdma.ErrProtocol
	}
	p := packet{
		kind: kind(b[5]), status: target.Status(b[6]), access: rdma.Access(b[7]),
		request: binary.BigEndian.Uint32(b[8:]),
		a:       binary.BigEndian.Uint64(b[16:]), b: binary.BigEndian.Uint64(b[24:]),
	}
	payload := b[headerSize:]
	sizeOK := len(payload) == 0 || p.kind == kindMessage || p.kind == kindMap
	if p.kind == kindMap {
		sizeOK = len(payload) == rdma.RemoteKeySize
	}
	sane := p.kind >= kindHello && p.kind <= kindRevoked && p.status <= target.Revoked &&
		p.access <= rdma.AccessRemoteRead|rdma.AccessRemoteWrite && sizeOK
	if !sane {
		return packet{}, nil, rdma.ErrProtocol
	}
	return p, payload, nil
}
