package tcp

import (
	"encoding/binary"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

type kind uint8

const (
	kindWrite kind = iota + 1 // request with payload
	kindRead                  // request
	kindAck                   // reply to a write, or a refusal of either
	kindData                  // reply to a read, with payload
)

const (
	baseSize    = 24
	requestSize = baseSize + 8 + rdma.RemoteKeySize
)

// frame is the unit of data streams, with all integers big endian. A request is 64 bytes, a reply
// its first 24. Then follow the payload's bytes, if the kind has any:
//
//	0      1        2          4        8       16     20      24       32         64
//	┌──────┬────────┬──────────┬────────┬───────┬──────┬───────┬────────┬──────────┐
//	│ kind │ status │ reserved │ length │ tag   │ at   │ total │ offset │ key      │
//	└──────┴────────┴──────────┴────────┴───────┴──────┴───────┴────────┴──────────┘
//	 └────────────────── request and reply ───────────────────┘ └── request only ──┘
//
// tag names the operation at its initiator, at is the place of this chunk of length bytes among the
// total bytes of the operation. The target echoes all. offset is the operation's place in the
// target's region. Each chunk is checked as the whole operation, so that one which does not fit
// changes nothing.
type frame struct {
	kind   kind
	status target.Status
	length uint32
	tag    uint64
	at     uint32
	total  uint32
	offset uint64
	key    rdma.RemoteKey
}

func (k kind) isRequest() bool { return k == kindWrite || k == kindRead }

// opKind is the access that a request needs.
func (k kind) opKind() rdma.OpKind {
	if k == kindWrite {
		return rdma.OpWrite
	}
	return rdma.OpRead
}

func (f *frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), byte(f.status), 0, 0)
	b = binary.BigEndian.AppendUint32(b, f.length)
	b = binary.BigEndian.AppendUint64(b, f.tag)
	b = binary.BigEndian.AppendUint32(b, f.at)
	b = binary.BigEndian.AppendUint32(b, f.total)
	if !f.kind.isRequest() {
		return b
	}
	b = binary.BigEndian.AppendUint64(b, f.offset)
	b, _ = f.key.AppendBinary(b) // cannot fail
	return b
}

// decodeBase reads the part that all frames have and refuses malformed ones. limit bounds the
// length. Zero lengths are fine.
func decodeBase(b []byte, limit uint32) (frame, error) {
	f := frame{
		kind:   kind(b[0]),
		status: target.Status(b[1]),
		length: binary.BigEndian.Uint32(b[4:]),
		tag:    binary.BigEndian.Uint64(b[8:]),
		at:     binary.BigEndian.Uint32(b[16:]),
		total:  binary.BigEndian.Uint32(b[20:]),
	}
	known := f.kind >= kindWrite && f.kind <= kindData
	fits := f.length <= limit && f.total <= maxOp && uint64(f.at)+uint64(f.length) <= uint64(f.total)
	if !known || !fits || f.status > target.Revoked || b[2]|b[3] != 0 {
		return frame{}, rdma.ErrProtocol
	}
	if f.status != target.OK && f.kind != kindAck {
		return frame{}, rdma.ErrProtocol
	}
	return f, nil
}

// decodeRequest reads the rest of a request.
func (f *frame) decodeRequest(b []byte) (err error) {
	f.offset = binary.BigEndian.Uint64(b)
	f.key, err = rdma.DecodeRemoteKey(b[8 : 8+rdma.RemoteKeySize])
	return err
}

// ping is the only frame of the control stream. It has its kind, and zeros. Kinds 1 and 2 were
// messages and their credits in older releases, whose daemons and clients sent none.
var ping = [8]byte{3}
