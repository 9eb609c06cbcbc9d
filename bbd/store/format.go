package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// The format of regions, version 3. All numbers are little-endian.
//
// A region is two files of the same size, of whole units of 1 MiB: its pages, which its
// user maps and writes, and its journal, which is the store's own and which no client ever
// has. Nothing in the pages is believed: they are bytes, and the journal has their checksums.
// An offset means the same place of the region in both. Units of data are used in the
// pages, and records in the journal, so that neither is used in full:
//
//	            0            1 MiB                                       size
//	            ┌────────────┬──────────────────────┬──────────────────────┐
//	pages       │            │ data ▶  │            │ data ▶   │           │   the user's
//	            └────────────┴──────────────────────┴──────────────────────┘
//	            ┌────────────┬──────────────────────┬──────────────────────┐
//	journal     │ tables     │           │ ◀ records│           │ ◀ records│   mode 0600, sparse
//	            └────────────┴──────────────────────┴──────────────────────┘
//
// The first unit of the journal describes the region:
//
//	0       region header       4096   its copy       8192  one slot per unit       512 KiB  their copies
//	┌──────────────────┬─────┬──────────────────┬─────┬───────┬───────┬───────┬─────┬───────┬───────┬───
//	│ header, 512 B    │  …  │ header, 512 B    │  …  │ slot0 │ slot1 │ slot2 │  …  │ slot0 │ slot1 │ …
//	└──────────────────┴─────┴──────────────────┴─────┴───────┴───────┴───────┴─────┴───────┴───────┴───
//
//	region header:  magic 8 │ version 4 │ flags 4 │ id 8 │ size 8 │ uid 4 │ tier 4 │ instance 8 │ namespace 8 │ length of node 2 │ node │ … │ crc 8
//	slot (128 B):   magic 8 │ version 4 │ units 4 │ nonce 8 │ sequence 8 │ uid 4 │ length of name 4 │ name 64 │ tier 1 │ … │ crc 8
//
// Slot i describes the segment that begins at unit i; its magic is 0 where none
// does. The copy is for the day one is damaged. A segment, as its offsets go:
//
//	0            4096                                                      length
//	┌────────────┬───────┬───────┬───────┬──────────────┬───┬─────────┬─────────┐
//	│     …      │ data  │ data  │ data ▶│     free     │ 0 │◀ record │ record  │
//	└────────────┴───────┴───────┴───────┴──────────────┴───┴─────────┴─────────┘
//	                   of the pages   data end     record floor    of the journal
//
// Writers fill data from the front. The store writes commit records from the end
// downward, each followed (below) by 8 bytes of zeros, which are where the next
// one's last word will be. A record is read from its top:
//
//	┌──────────────────────┬──────┬────────────┬──────┬────────┬──────────┬────────────────────────────┬───────┬──────┐
//	│ extents, 24 B each   │ file │ generation │ base │ origin │ sequence │ part 2, parts 2, n 2, flags│ crc 8 │ word │
//	└──────────────────────┴──────┴────────────┴──────┴────────┴──────────┴────────────────────────────┴───────┴──────┘
//	extent: file offset 8 │ offset in the segment 4 │ length 4 │ crc of the bytes 8
//
// A record with the flag of an identity has one (identity.go) in place of extents, n
// times 24 bytes with its padding. Only regions of the store's own records have such ones.
//
// The crc covers everything below it and starts from the segment's nonce, so that
// what earlier segments left in the journal never passes for a record. The word
// (state 4 │ length 4) is stored last, with one atomic store, and is all that
// changes later: prepared → complete, or → void.
//
// Why that order is enough in memory: regions and journals are page cache of a tmpfs. When
// the process is killed, every store that it executed is there and none that it did
// not; another process sees them in program order, since by the time it maps the
// journal the dead one's stores have drained. So a record whose word is there is
// whole, and one whose word is missing does not exist. On disk nothing is trusted
// before fsync: see Store.Spill.
//
// A daemon that is upgraded adopts what its predecessor wrote. So whatever changes in a
// journal, a slot or a record, new flags too, is a new version: a release reads its
// version and those before, and refuses to start on others before it touches anything.
// Only the slot's tier came without one: it was 0, memory, and a release that does not read
// it loses no more than that wish.
//
// Versions 1 and 2 had no journal: header, slots and records lay in the pages, each at its
// offset of today, and the copy of a slot at the beginning of its segment. A region of theirs
// gets a journal once, see adoptOlder. Version 1 says nothing of the owner, too:
//
//	version 1:      magic 8 │ version 4 │ flags 4 │ id 8 │ size 8 │ uid 4 │ tier 4 │ instance 8 │ crc 8
//
// It is taken for this daemon's own, as the release that wrote it would. Releases before
// version 3 take a journal for a region of a version that they do not read, and refuse to start.
const (
	version     = 3
	pagesOnly   = 2 // the last version that had no journals
	ownerless   = 1 // the version whose header names no owner
	slotVersion = 1

	regionMagic  = 0x4e4f494745524246 // "FBREGION"
	segmentMagic = 0x544e454d47455346 // "FSEGMENT"

	headerSize    = 512
	oldHeaderSize = 56
	headerCopy    = 4096
	ownerMax      = 256 // bytes of a node's name
	slotTable     = 8192
	slotCopies    = Unit / 2
	slotSize      = 128
	nameMax       = 64

	dataStart = 4096 // of a segment

	recordHead = 64
	recordItem = 24
	recordEnd  = 8 // zeros below the last record

	recordPrepared = 0x50424652 // "RFBP"
	recordComplete = 0x43424652 // "RFBC"
	recordVoid     = 0x56424652 // "RFBV"
)

// Flags of a region.
const (
	regionOwned = 1 << iota
	regionLog   // holds the store's own records and is never leased

	regionFlags = regionOwned | regionLog
)

// Flags of a record.
const (
	recordEvicted  = 1 << iota // its extents are only on the backing store
	recordClean                // its extents are on the backing store too
	recordIdentity             // it has an identity and no extents
)

// RecordCost returns the bytes of record that one commit of n extents takes in one
// segment; extents of the same commit in other segments count there.
func RecordCost(extents int) int64 { return recordHead + recordItem*int64(extents) }

type regionHeader struct {
	flags    uint32
	id       bb.RegionID
	size     int64
	uid      uint32
	tier     bb.Tier
	instance bb.InstanceID
	owner    Owner
	version  uint32 // as found
}

func (h regionHeader) encode(p []byte) {
	le := binary.LittleEndian
	clear(p[oldHeaderSize:headerSize])
	le.PutUint64(p, regionMagic)
	le.PutUint32(p[8:], version)
	le.PutUint32(p[12:], h.flags)
	le.PutUint64(p[16:], uint64(h.id))
	le.PutUint64(p[24:], uint64(h.size))
	le.PutUint32(p[32:], h.uid)
	le.PutUint32(p[36:], uint32(h.tier))
	le.PutUint64(p[40:], uint64(h.instance))
	le.PutUint64(p[48:], h.owner.Namespace)
	le.PutUint16(p[56:], uint16(copy(p[58:58+ownerMax], h.owner.Node)))
	le.PutUint64(p[headerSize-8:], checksum.Sum(p[:headerSize-8]))
}

// decodeRegionHeader reads a region's first bytes: the header, or its copy where
// that is damaged. It refuses another version whatever the rest looks like, since
// only the magic and the version lie at the same place in all of them.
func decodeRegionHeader(p []byte) (h regionHeader, mended bool, err error) {
	if len(p) < headerCopy+headerSize {
		return h, false, fmt.Errorf("has %d bytes, no room for a header", len(p))
	}
	h, err = decodeOneHeader(p[:headerSize])
	if err == nil {
		return h, false, nil
	}
	copied, copyErr := decodeOneHeader(p[headerCopy : headerCopy+headerSize])
	if copyErr == nil {
		return copied, true, nil
	}
	if bb.KindOf(copyErr) == bb.Unsupported {
		err = copyErr
	}
	return h, false, err
}

func decodeOneHeader(p []byte) (h regionHeader, err error) {
	le := binary.LittleEndian
	if le.Uint64(p) != regionMagic {
		return h, fmt.Errorf("begins with %#x, not with a region's magic", le.Uint64(p))
	}
	v := le.Uint32(p[8:])
	sum := headerSize - 8
	switch v {
	case version, pagesOnly:
	case ownerless:
		sum = oldHeaderSize - 8
	default:
		return h, bb.E(bb.Unsupported, "region", "", fmt.Sprintf("format version %d found, versions %d to %d supported", v, ownerless, version)).
			WithRemedy("start the version of bbd that wrote it, drain and stop it; or delete the region")
	}
	if le.Uint64(p[sum:]) != checksum.Sum(p[:sum]) {
		return h, fmt.Errorf("the header's checksum does not match")
	}
	h = regionHeader{
		version: v,
		flags:   le.Uint32(p[12:]), id: bb.RegionID(le.Uint64(p[16:])), size: int64(le.Uint64(p[24:])),
		uid: le.Uint32(p[32:]), tier: bb.Tier(le.Uint32(p[36:])), instance: bb.InstanceID(le.Uint64(p[40:])),
	}
	if h.flags&^regionFlags != 0 {
		return h, bb.E(bb.Unsupported, "region", "", fmt.Sprintf("flags %#x found, %#x supported", h.flags, regionFlags)).
			WithRemedy("start the release of bbd that wrote it, or a newer one")
	}
	if h.size < 2*Unit || h.size > MaxRegion || h.size%Unit != 0 || h.tier > bb.TierDisk {
		return h, fmt.Errorf("size %d, tier %d", h.size, h.tier)
	}
	if v > ownerless {
		n := int(le.Uint16(p[56:]))
		if n > ownerMax {
			return h, fmt.Errorf("a node's name of %d bytes", n)
		}
		h.owner = Owner{Namespace: le.Uint64(p[48:]), Node: string(p[58 : 58+n])}
	}
	return h, nil
}

type segmentHeader struct {
	units    int64
	nonce    uint64
	sequence uint64
	uid      uint32
	buffer   string
	tier     bb.Tier
}

// encode writes a header into p with its magic missing; publish stores that.
func (h segmentHeader) encode(p []byte) {
	le := binary.LittleEndian
	clear(p[:slotSize])
	le.PutUint32(p[8:], slotVersion)
	le.PutUint32(p[12:], uint32(h.units))
	le.PutUint64(p[16:], h.nonce)
	le.PutUint64(p[24:], h.sequence)
	le.PutUint32(p[32:], h.uid)
	le.PutUint32(p[36:], uint32(len(h.buffer)))
	copy(p[40:40+nameMax], h.buffer)
	p[40+nameMax] = byte(h.tier)
	le.PutUint64(p[slotSize-8:], checksum.Sum(p[8:slotSize-8]))
}

func decodeSegmentHeader(p []byte) (h segmentHeader, err error) {
	le := binary.LittleEndian
	if len(p) < slotSize || le.Uint64(p) != segmentMagic {
		return h, fmt.Errorf("no segment's magic")
	}
	if le.Uint64(p[slotSize-8:]) != checksum.Sum(p[8:slotSize-8]) || le.Uint32(p[8:]) != slotVersion {
		return h, fmt.Errorf("the segment header's checksum does not match")
	}
	n := le.Uint32(p[36:])
	h = segmentHeader{
		units: int64(le.Uint32(p[12:])), nonce: le.Uint64(p[16:]), sequence: le.Uint64(p[24:]), uid: le.Uint32(p[32:]),
	}
	if n > nameMax || h.units < 1 || h.units > MaxSegment/Unit {
		return h, fmt.Errorf("%d units, a name of %d bytes", h.units, n)
	}
	h.buffer = string(p[40 : 40+n])
	if h.tier = bb.Tier(p[40+nameMax]); h.tier > bb.TierDisk {
		h.tier = bb.TierMemory // one of a newer release
	}
	return h, nil
}

// record is a decoded commit record.
type record struct {
	state       uint32
	file        bb.FileID
	generation  bb.Generation
	base        bb.Generation
	origin      bb.Generation // the generation in the chain of bases that started from nothing
	sequence    uint64
	part, parts uint16
	flags       uint16
	items       []recordExtent
	payload     []byte // of an identity, in place of items
	top         int64  // where it was written, or found
}

// length is what a record takes of extents, or as much as its payload.
func (r *record) length() int {
	if r.flags&recordIdentity != 0 {
		return len(r.payload) / recordItem
	}
	return len(r.items)
}

type recordExtent struct {
	fileOffset int64
	offset     uint32 // in the segment
	length     uint32
	sum        uint64
}

// encode writes the record so that it ends at top, with its word still missing,
// and returns where it begins. The caller has checked that it fits.
func (r *record) encode(seg []byte, top int64, nonce uint64) (low int64) {
	le := binary.LittleEndian
	low = top - RecordCost(r.length())
	p := seg[low:top]
	copy(p, r.payload)
	for i, e := range r.items {
		q := p[i*recordItem:]
		le.PutUint64(q, uint64(e.fileOffset))
		le.PutUint32(q[8:], e.offset)
		le.PutUint32(q[12:], e.length)
		le.PutUint64(q[16:], e.sum)
	}
	h := p[len(p)-recordHead:]
	le.PutUint64(h, uint64(r.file))
	le.PutUint64(h[8:], uint64(r.generation))
	le.PutUint64(h[16:], uint64(r.base))
	le.PutUint64(h[24:], uint64(r.origin))
	le.PutUint64(h[32:], r.sequence)
	le.PutUint16(h[40:], r.part)
	le.PutUint16(h[42:], r.parts)
	le.PutUint16(h[44:], uint16(r.length()))
	le.PutUint16(h[46:], r.flags)
	le.PutUint64(h[48:], checksum.Update(nonce, p[:len(p)-16]))
	return low
}

// decodeRecord reads the record that ends at top and lies above bottom. found is
// false at the end of the log. It allocates nothing for damaged input.
func decodeRecord(seg []byte, bottom, top int64, nonce uint64) (r record, low int64, found bool, err error) {
	le := binary.LittleEndian
	if bottom < 0 || top > int64(len(seg)) || top-bottom < recordEnd {
		return r, top, false, nil
	}
	word := le.Uint64(seg[top-8:])
	if word == 0 {
		return r, top, false, nil
	}
	if top-bottom < recordHead {
		return r, top, true, fmt.Errorf("no room for a record")
	}
	h := seg[top-recordHead : top]
	n := int(le.Uint16(h[44:]))
	cost := RecordCost(n)
	r.state = uint32(word)
	if r.state != recordPrepared && r.state != recordComplete && r.state != recordVoid || int64(word>>32) != cost || top-cost < bottom {
		return r, top, true, fmt.Errorf("no record's last word: %#x", word)
	}
	p := seg[top-cost : top]
	if le.Uint64(h[48:]) != checksum.Update(nonce, p[:len(p)-16]) {
		return r, top, true, fmt.Errorf("the record's checksum does not match")
	}
	r.file = bb.FileID(le.Uint64(h))
	r.generation = bb.Generation(le.Uint64(h[8:]))
	r.base = bb.Generation(le.Uint64(h[16:]))
	r.origin = bb.Generation(le.Uint64(h[24:]))
	r.sequence = le.Uint64(h[32:])
	r.part, r.parts, r.flags = le.Uint16(h[40:]), le.Uint16(h[42:]), le.Uint16(h[46:])
	if r.flags&recordIdentity != 0 {
		r.payload = append([]byte(nil), p[:n*recordItem]...)
		return r, top - cost, true, r.check(top - cost)
	}
	r.items = make([]recordExtent, n)
	for i := range r.items {
		q := p[i*recordItem:]
		r.items[i] = recordExtent{int64(le.Uint64(q)), le.Uint32(q[8:]), le.Uint32(q[12:]), le.Uint64(q[16:])}
	}
	return r, top - cost, true, r.check(top - cost)
}

// check refuses a record whose checksum is right and whose content cannot be: in a region
// of an older version its user could have made one.
func (r *record) check(floor int64) error {
	if r.generation == 0 || r.origin == 0 || r.origin > r.generation || r.base >= r.generation || r.part >= r.parts {
		return fmt.Errorf("generation %d, base %d, origin %d, part %d of %d", r.generation, r.base, r.origin, r.part, r.parts)
	}
	for _, e := range r.items {
		if e.length == 0 || e.fileOffset < 0 || e.fileOffset > bb.MaxFileSize-int64(e.length) {
			return fmt.Errorf("an extent of %d bytes at %d", e.length, e.fileOffset)
		}
		if r.flags&recordEvicted == 0 && (e.offset < dataStart || int64(e.offset)+int64(e.length) > floor) {
			return fmt.Errorf("an extent of %d bytes at %d of the segment", e.length, e.offset)
		}
	}
	return nil
}

// publish stores an aligned word of a region in one piece, after everything
// written before it.
func publish(mem []byte, at int64, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	p := mem[at : at+8 : at+8]
	// Regions are mapped at page boundaries and all offsets used here are multiples
	// of 8, so the word is aligned; the pointer does not outlive the call.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&p[0])), binary.NativeEndian.Uint64(b[:]))
}

// voidAt publishes the word of the record that ends at top as void.
func voidAt(seg []byte, top int64) {
	publish(seg, top-8, binary.LittleEndian.Uint64(seg[top-8:])&^math.MaxUint32|recordVoid)
}

// setState publishes the word of the record that ends at top.
func setState(seg []byte, top int64, state uint32, extents int) {
	publish(seg, top-8, uint64(state)|uint64(RecordCost(extents))<<32)
}
