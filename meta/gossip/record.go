package gossip

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"

	"forebay/internal/bb"
)

// A member's record, the metadata that gossip spreads:
//
//	byte 0      format version, now 1
//	byte 1      oldest format version whose readers understand it
//	bytes 2-3   length of the body, big endian
//	body        instance (8 bytes), its time (4; see usage), state (1), versions (2 uvarints), server (string),
//	            session, fabric, admin, routes (addresses), memory, disk (3 uvarints
//	            each: capacity, free, dirty in MiB)
//	4 bytes     CRC-32C of the node's name and all before
//
// A string is a length (1 byte) and its bytes. An address is a tag and its value:
//
//	0 none   1 IPv4, port   2 IPv6, port   3 a name (string), port   4 the host of the
//	address before, port   5 any other (string)
//
// Newer formats append to the body. Readers skip unknown fields.
const (
	formatVersion = 1
	recordHead    = 4
	recordTail    = 4
	minBody       = 8 + 4 + 1 + 2 + 1 + 4 + 6
)

// MaxRecord bounds a member's name and record in gossip, in bytes.
// memberlist's own limit is as much for the record alone.
const MaxRecord = 512

const mebibyte = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	addrNone = iota
	addrIPv4
	addrIPv6
	addrName
	addrSame
	addrOther
)

// encode returns the record of m, of a time. It returns bb.Invalid if it does not fit into
// MaxRecord.
func encode(m *Member, at uint32) ([]byte, error) {
	b := make([]byte, recordHead, 256)
	b[0], b[1] = formatVersion, formatVersion
	b = binary.BigEndian.AppendUint64(b, uint64(m.Instance))
	b = binary.BigEndian.AppendUint32(b, at)
	b = append(b, byte(m.State))
	b = binary.AppendUvarint(b, uint64(m.MinVersion))
	b = binary.AppendUvarint(b, uint64(m.MaxVersion))
	w := writer{b: b}
	w.string(m.Server)
	for _, a := range []string{m.Session, m.Fabric, m.Admin, m.Routes} {
		w.address(a)
	}
	for _, t := range []Tier{m.Memory.rounded(), m.Disk.rounded()} {
		for _, v := range []int64{t.Capacity, t.Free, t.Dirty} {
			w.b = binary.AppendUvarint(w.b, uint64(v/mebibyte))
		}
	}
	size := len(m.Node) + len(w.b) + recordTail
	if w.tooLong || size > MaxRecord {
		return nil, bb.E(bb.Invalid, "gossip", string(m.Node), fmt.Sprintf("its record has %d bytes, at most %d are allowed", size, MaxRecord)).
			WithRemedy("shorten the node's name or the host names in its addresses")
	}
	binary.BigEndian.PutUint16(w.b[2:], uint16(len(w.b)-recordHead))
	return binary.BigEndian.AppendUint32(w.b, checksum(m.Node, w.b)), nil
}

func checksum(node bb.NodeID, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(node), castagnoli), castagnoli, b)
}

type writer struct {
	b       []byte
	host    string // of the address before
	tooLong bool
}

func (w *writer) string(s string) {
	if len(s) > 255 {
		w.tooLong = true
		return
	}
	w.b = append(w.b, byte(len(s)))
	w.b = append(w.b, s...)
}

// address writes an address so that reading gives the same string again.
func (w *writer) address(a string) {
	if a == "" {
		w.b = append(w.b, addrNone)
		return
	}
	host, port, ok := splitAddress(a)
	if !ok {
		w.b = append(w.b, addrOther)
		w.string(a)
		return
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == w.host:
		w.b = append(w.b, addrSame)
	case err == nil && ip.Is4() && ip.String() == host:
		w.b = append(append(w.b, addrIPv4), ip.AsSlice()...)
	case err == nil && ip.Zone() == "" && !ip.Is4() && ip.String() == host:
		w.b = append(append(w.b, addrIPv6), ip.AsSlice()...)
	default:
		w.b = append(w.b, addrName)
		w.string(host)
	}
	w.host = host
	w.b = binary.BigEndian.AppendUint16(w.b, port)
}

// splitAddress takes host:port apart, if JoinHostPort puts it together again.
func splitAddress(a string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return "", 0, false
	}
	p, err := strconv.ParseUint(text, 10, 16)
	if err != nil || joinAddress(host, uint16(p)) != a {
		return "", 0, false
	}
	return host, uint16(p), true
}

func joinAddress(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// decode reads the record of a node, and its time. It checks everything. bb.Checksum and bb.Invalid
// describe the fault, bb.Unsupported means that only newer readers understand it.
func decode(node bb.NodeID, b []byte) (m Member, at uint32, err error) {
	fail := func(kind bb.Kind, why string) (Member, uint32, error) {
		return Member{}, 0, bb.E(kind, "read gossip", string(node), why)
	}
	if len(b) < recordHead+minBody+recordTail || len(b) > MaxRecord {
		return fail(bb.Invalid, fmt.Sprintf("a record of %d bytes", len(b)))
	}
	if n := int(binary.BigEndian.Uint16(b[2:])); n != len(b)-recordHead-recordTail {
		return fail(bb.Invalid, fmt.Sprintf("a record of %d bytes whose head gives its body %d", len(b), n))
	}
	body := b[recordHead : len(b)-recordTail]
	if binary.BigEndian.Uint32(b[len(b)-recordTail:]) != checksum(node, b[:len(b)-recordTail]) {
		return fail(bb.Checksum, "the record's checksum is wrong")
	}
	if b[1] > formatVersion || b[0] < b[1] {
		return fail(bb.Unsupported, fmt.Sprintf("the record's format is %d, for readers of %d", b[0], b[1]))
	}
	r := reader{b: body}
	m.Node, m.Instance = node, bb.InstanceID(binary.BigEndian.Uint64(r.take(8)))
	at = binary.BigEndian.Uint32(r.take(4))
	m.State = State(r.byte())
	m.MinVersion, m.MaxVersion = r.uint32(), r.uint32()
	m.Server = r.string()
	for _, a := range []*string{&m.Session, &m.Fabric, &m.Admin, &m.Routes} {
		*a = r.address()
	}
	for _, t := range []*Tier{&m.Memory, &m.Disk} {
		for _, v := range []*int64{&t.Capacity, &t.Free, &t.Dirty} {
			*v = r.mebibytes()
		}
	}
	switch {
	case r.bad:
		return fail(bb.Invalid, "the record is cut off or malformed")
	case b[0] == formatVersion && len(r.b) > 0:
		return fail(bb.Invalid, "the record has bytes too many")
	case !m.State.own():
		return fail(bb.Invalid, fmt.Sprintf("a daemon cannot call itself %s", m.State))
	}
	return m, at, nil
}

// reader takes values off a record. After the first that is not there, bad is set
// and all others are zero.
type reader struct {
	b    []byte
	host string
	bad  bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return make([]byte, n)
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) string() string { return string(r.take(int(r.byte()))) }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.bad = true
	}
	return uint32(v)
}

func (r *reader) mebibytes() int64 {
	v := r.uvarint()
	if v > (1<<63-1)/mebibyte {
		r.bad = true
		return 0
	}
	return int64(v) * mebibyte
}

func (r *reader) address() string {
	tag := r.byte()
	switch tag {
	case addrNone:
		return ""
	case addrOther:
		return r.string()
	case addrIPv4, addrIPv6:
		size := 4
		if tag == addrIPv6 {
			size = 16
		}
		ip, _ := netip.AddrFromSlice(r.take(size))
		r.host = ip.String()
	case addrName:
		r.host = r.string()
	case addrSame:
	default:
		r.bad = true
	}
	if r.host == "" {
		r.bad = true
	}
	return joinAddress(r.host, binary.BigEndian.Uint16(r.take(2)))
}
