package hostiletest

import (
	"encoding/binary"

	"forebay/internal/checksum"
)

// The layout of regions of releases that kept their headers, tables and records in memory that
// users can write (versions 1 and 2 of the format in bbd/store). A restart must accept none of it.

const (
	unit       = 1 << 20
	headerCopy = 4096
	slotTable  = 8192
	slotSize   = 128
	dataStart  = 4096
	recordHead = 64
	recordItem = 24

	regionMagic    = 0x4e4f494745524246
	segmentMagic   = 0x544e454d47455346
	recordComplete = 0x43424652
)

var le = binary.LittleEndian

// forgedHeader describes a region.
type forgedHeader struct {
	version, flags, uid, tier uint32
	id, size, instance        uint64
}

// write writes a header, and its copy.
func (h forgedHeader) write(mem []byte) {
	p := make([]byte, 512)
	le.PutUint64(p, regionMagic)
	le.PutUint32(p[8:], h.version)
	le.PutUint32(p[12:], h.flags)
	le.PutUint64(p[16:], h.id)
	le.PutUint64(p[24:], h.size)
	le.PutUint32(p[32:], h.uid)
	le.PutUint32(p[36:], h.tier)
	le.PutUint64(p[40:], h.instance)
	if h.version == 1 {
		p = p[:56]
	}
	n := len(p) - 8
	le.PutUint64(p[n:], checksum.Sum(p[:n]))
	copy(mem, p)
	copy(mem[headerCopy:], p)
}

// forgedSlot describes a segment.
type forgedSlot struct {
	units, uid      uint32
	nonce, sequence uint64
	buffer          string
	tier            byte
}

// write writes a slot into the table, and its copy at the beginning of the segment.
func (s forgedSlot) write(mem []byte, at int) {
	p := make([]byte, slotSize)
	le.PutUint32(p[8:], 1)
	le.PutUint32(p[12:], s.units)
	le.PutUint64(p[16:], s.nonce)
	le.PutUint64(p[24:], s.sequence)
	le.PutUint32(p[32:], s.uid)
	le.PutUint32(p[36:], uint32(len(s.buffer)))
	copy(p[40:104], s.buffer)
	p[104] = s.tier
	le.PutUint64(p[slotSize-8:], checksum.Sum(p[8:slotSize-8]))
	le.PutUint64(p, segmentMagic)
	copy(mem[slotTable+at*slotSize:], p)
	copy(mem[at*unit:], p)
}

// forgedRecord is a commit of a file.
type forgedRecord struct {
	file, generation, base, origin, sequence uint64
	part, parts, flags                       uint16
	state                                    uint32
	items                                    []forgedExtent
}

type forgedExtent struct {
	fileOffset     uint64
	offset, length uint32
	sum            uint64
}

// write writes a record that ends at top of a segment, and returns where it begins.
func (r forgedRecord) write(segment []byte, top int, nonce uint64) (low int) {
	low = top - recordHead - recordItem*len(r.items)
	p := segment[low:top]
	for i, e := range r.items {
		q := p[i*recordItem:]
		le.PutUint64(q, e.fileOffset)
		le.PutUint32(q[8:], e.offset)
		le.PutUint32(q[12:], e.length)
		le.PutUint64(q[16:], e.sum)
	}
	h := p[len(p)-recordHead:]
	for i, v := range []uint64{r.file, r.generation, r.base, r.origin, r.sequence} {
		le.PutUint64(h[8*i:], v)
	}
	for i, v := range []uint16{r.part, r.parts, uint16(len(r.items)), r.flags} {
		le.PutUint16(h[40+2*i:], v)
	}
	le.PutUint64(h[48:], checksum.Update(nonce, p[:len(p)-16]))
	le.PutUint64(h[56:], uint64(r.state)|uint64(len(p))<<32)
	clear(segment[low-8 : low])
	return low
}

// polynomial is that of CRC-64/NVME, reflected.
const polynomial = 0x9a6c9329ac4bc9b5

// collide chooses the last 8 bytes of content so that its checksum is a wanted one. A checksum is
// no proof of an author.
func collide(content []byte, want uint64) {
	var table [256]uint64
	inverse := map[byte]byte{}
	for i := range table {
		c := uint64(i)
		for range 8 {
			c = c>>1 ^ polynomial&-(c&1)
		}
		table[i] = c
		inverse[byte(c>>56)] = byte(i)
	}
	r := ^want
	for range 8 {
		i := inverse[byte(r>>56)]
		r = (r^table[i])<<8 | uint64(i)
	}
	body := content[:len(content)-8]
	le.PutUint64(content[len(body):], r^^checksum.Sum(body))
}
