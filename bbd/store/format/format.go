// Package format is the encoding of regions, segments, commit records and identities. It must never
// depend on the validity of any of them.
package format

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
// A region is two files of the same size, of whole units of 1 MiB: its pages, which its user maps
// and writes, and its journal, which is the store's own and which no client ever has. Nothing in
// the pages is relied on, since they are bytes, and the journal has their checksums. An offset
// means the same place of the region in both. Units of data are used in the pages, and records in
// the journal, so that neither is used in full:
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
//	region header:  magic 8 │ version 4 │ flags 4 │ id 8 │ size 8 │ uid 4 │ tier 4 │ instance 8 │ namespace 8 │ length of node 2 │ node │ … │ pages 8 at 320 │ … │ crc 8
//	slot (128 B):   magic 8 │ version 4 │ units 4 │ nonce 8 │ sequence 8 │ uid 4 │ length of name 4 │ name 64 │ tier 1 │ … │ crc 8
//
// Slot i describes the segment that begins at unit i. Its magic is 0 where none does. The copy is
// for the day one is damaged. A segment, as its offsets go:
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
// remains of earlier segments in the journal never pass for a record. The word (state 4
// │ length 4) is stored last, with one atomic store, and is all that changes later:
// prepared → complete, or → void.
//
// The order is enough in memory, because regions and journals are page cache of a tmpfs. When the
// process is killed, every store that it executed is there and none that it did not. Another
// process has them in program order, since by the time it maps the journal the dead one's stores
// have drained. So a record whose word is there is whole, and one whose word is missing does not
// exist. On disk nothing counts before fsync (see Store.Spill).
//
// A daemon that is upgraded adopts the regions of its predecessor. So any change in a journal, a
// slot or a record, new flags too, is a new version. A release reads its version and those before,
// and refuses to start on others before it touches anything. It refuses a flag of a region that it does not
// have in the same way, so that of linear regions (package linear) came without a new version. The slot's tier came without a
// new version. It was 0 (memory) before, and a release that does not read it loses only that
// preference.
//
// Versions 1 and 2 had no journal. Header, slots and records lay in the pages, each at its offset
// of today, and the copy of a slot at the beginning of its segment. A region of theirs gets a
// journal once, see adoptOlder. Version 1 records no owner, either:
//
//	version 1:      magic 8 │ version 4 │ flags 4 │ id 8 │ size 8 │ uid 4 │ tier 4 │ instance 8 │ crc 8
//
// It counts as this daemon's own, as in the release that wrote it. Releases before version 3
// mistake a journal for a region of a version that they do not read, and refuse to start.
const (
	Version     = 3
	PagesOnly   = 2 // the last version that had no journals
	Ownerless   = 1 // the version whose header names no owner
	slotVersion = 1

	regionMagic  = 0x4e4f494745524246 // "FBREGION"
	SegmentMagic = 0x544e454d47455346 // "FSEGMENT"

	HeaderSize    = 512
	OldHeaderSize = 56
	HeaderCopy    = 4096
	ownerMax      = 256 // bytes of a node's name
	pagesAt       = 320
	SlotTable     = 8192
	SlotCopies    = Unit / 2
	SlotSize      = 128
	nameMax       = 64

	DataStart = 4096 // of a segment

	RecordHead = 64
	RecordItem = 24
	RecordEnd  = 8 // zeros below the last record

	RecordPrepared = 0x50424652 // "RFBP"
	RecordComplete = 0x43424652 // "RFBC"
	RecordVoid     = 0x56424652 // "RFBV"
)

// Sizes of regions and segments, in bytes.
const (
	Unit       = 1 << 20 // segments are whole units
	MaxSegment = 64 << 20
	MaxRegion  = 1 << 30
)

// Flags of a region.
const (
	RegionOwned  = 1 << iota
	RegionLog    // holds the store's own records and is never leased
	RegionLinear // its pages are one file's bytes, see package linear

	RegionFlags = RegionOwned | RegionLog | RegionLinear
)

// Flags of a record.
const (
	RecordEvicted  = 1 << iota // its extents are only on the backing store
	RecordClean                // its extents are on the backing store too
	RecordIdentity             // it has an identity and no extents
)

// RecordCost returns the bytes of record that one commit of n extents takes in one segment. Extents
// of the same commit in other segments count there.
func RecordCost(extents int) int64 { return RecordHead + RecordItem*int64(extents) }

type RegionHeader struct {
	Flags    uint32
	ID       bb.RegionID
	Size     int64
	UID      uint32
	Tier     bb.Tier
	Instance bb.InstanceID
	Owner    Owner
	Version  uint32 // as found
	Pages    int64  // bytes of the pages of a linear region; 0: Size
}

// PagesSize returns the bytes of the pages.
func (h *RegionHeader) PagesSize() int64 {
	if h.Flags&RegionLinear != 0 {
		return h.Pages
	}
	return h.Size
}

func (h RegionHeader) Encode(p []byte) {
	le := binary.LittleEndian
	clear(p[OldHeaderSize:HeaderSize])
	le.PutUint64(p, regionMagic)
	le.PutUint32(p[8:], Version)
	le.PutUint32(p[12:], h.Flags)
	le.PutUint64(p[16:], uint64(h.ID))
	le.PutUint64(p[24:], uint64(h.Size))
	le.PutUint32(p[32:], h.UID)
	le.PutUint32(p[36:], uint32(h.Tier))
	le.PutUint64(p[40:], uint64(h.Instance))
	le.PutUint64(p[48:], h.Owner.Namespace)
	le.PutUint16(p[56:], uint16(copy(p[58:58+ownerMax], h.Owner.Node)))
	le.PutUint64(p[pagesAt:], uint64(h.Pages))
	le.PutUint64(p[HeaderSize-8:], checksum.Sum(p[:HeaderSize-8]))
}

// DecodeRegionHeader reads a region's first bytes: the header or, if it is damaged, its copy. It
// refuses another version without reading the other bytes, since only the magic and the version lie
// at the same place in all of them.
func DecodeRegionHeader(p []byte) (h RegionHeader, mended bool, err error) {
	if len(p) < HeaderCopy+HeaderSize {
		return h, false, fmt.Errorf("has %d bytes, no room for a header", len(p))
	}
	h, err = decodeOneHeader(p[:HeaderSize])
	if err == nil {
		return h, false, nil
	}
	copied, copyErr := decodeOneHeader(p[HeaderCopy : HeaderCopy+HeaderSize])
	if copyErr == nil {
		return copied, true, nil
	}
	if bb.KindOf(copyErr) == bb.Unsupported {
		err = copyErr
	}
	return h, false, err
}

func decodeOneHeader(p []byte) (h RegionHeader, err error) {
	le := binary.LittleEndian
	if le.Uint64(p) != regionMagic {
		return h, fmt.Errorf("begins with %#x, not with a region's magic", le.Uint64(p))
	}
	v := le.Uint32(p[8:])
	sum := HeaderSize - 8
	switch v {
	case Version, PagesOnly:
	case Ownerless:
		sum = OldHeaderSize - 8
	default:
		return h, bb.E(bb.Unsupported, "region", "", fmt.Sprintf("format version %d found, versions %d to %d supported", v, Ownerless, Version)).
			WithRemedy("start the version of bbd that wrote it, drain and stop it; or delete the region")
	}
	if le.Uint64(p[sum:]) != checksum.Sum(p[:sum]) {
		return h, fmt.Errorf("the header's checksum does not match")
	}
	h = RegionHeader{
		Version: v,
		Flags:   le.Uint32(p[12:]), ID: bb.RegionID(le.Uint64(p[16:])), Size: int64(le.Uint64(p[24:])),
		UID: le.Uint32(p[32:]), Tier: bb.Tier(le.Uint32(p[36:])), Instance: bb.InstanceID(le.Uint64(p[40:])),
	}
	if h.Flags&^RegionFlags != 0 {
		return h, bb.E(bb.Unsupported, "region", "", fmt.Sprintf("flags %#x found, %#x supported", h.Flags, RegionFlags)).
			WithRemedy("start the release of bbd that wrote it, or a newer one")
	}
	most := int64(MaxRegion)
	if h.Flags&RegionLinear != 0 {
		most = (SlotCopies - SlotTable) / SlotSize * Unit
		h.Pages = int64(le.Uint64(p[pagesAt:]))
		if h.Pages <= 0 || h.Pages > h.Size || h.Tier != bb.TierMemory || v != Version {
			return h, fmt.Errorf("version %d, tier %d, %d bytes of pages", v, h.Tier, h.Pages)
		}
	}
	if h.Size < 2*Unit || h.Size > most || h.Size%Unit != 0 || h.Tier > bb.TierDisk {
		return h, fmt.Errorf("size %d, tier %d", h.Size, h.Tier)
	}
	if v > Ownerless {
		n := int(le.Uint16(p[56:]))
		if n > ownerMax {
			return h, fmt.Errorf("a node's name of %d bytes", n)
		}
		h.Owner = Owner{Namespace: le.Uint64(p[48:]), Node: string(p[58 : 58+n])}
	}
	return h, nil
}

type SegmentHeader struct {
	Units    int64
	Nonce    uint64
	Sequence uint64
	UID      uint32
	Buffer   string
	Tier     bb.Tier
}

// Encode writes a header into p with its magic missing. publish stores that.
func (h SegmentHeader) Encode(p []byte) {
	le := binary.LittleEndian
	clear(p[:SlotSize])
	le.PutUint32(p[8:], slotVersion)
	le.PutUint32(p[12:], uint32(h.Units))
	le.PutUint64(p[16:], h.Nonce)
	le.PutUint64(p[24:], h.Sequence)
	le.PutUint32(p[32:], h.UID)
	le.PutUint32(p[36:], uint32(len(h.Buffer)))
	copy(p[40:40+nameMax], h.Buffer)
	p[40+nameMax] = byte(h.Tier)
	le.PutUint64(p[SlotSize-8:], checksum.Sum(p[8:SlotSize-8]))
}

func DecodeSegmentHeader(p []byte) (h SegmentHeader, err error) {
	le := binary.LittleEndian
	if len(p) < SlotSize || le.Uint64(p) != SegmentMagic {
		return h, fmt.Errorf("no segment's magic")
	}
	if le.Uint64(p[SlotSize-8:]) != checksum.Sum(p[8:SlotSize-8]) || le.Uint32(p[8:]) != slotVersion {
		return h, fmt.Errorf("the segment header's checksum does not match")
	}
	n := le.Uint32(p[36:])
	h = SegmentHeader{
		Units: int64(le.Uint32(p[12:])), Nonce: le.Uint64(p[16:]), Sequence: le.Uint64(p[24:]), UID: le.Uint32(p[32:]),
	}
	if n > nameMax || h.Units < 1 || h.Units > MaxSegment/Unit {
		return h, fmt.Errorf("%d units, a name of %d bytes", h.Units, n)
	}
	h.Buffer = string(p[40 : 40+n])
	if h.Tier = bb.Tier(p[40+nameMax]); h.Tier > bb.TierDisk {
		h.Tier = bb.TierMemory // one of a newer release
	}
	return h, nil
}

// Record is a decoded commit record.
type Record struct {
	State       uint32
	File        bb.FileID
	Generation  bb.Generation
	Base        bb.Generation
	Origin      bb.Generation // the generation in the chain of bases that started from nothing
	Sequence    uint64
	Part, Parts uint16
	Flags       uint16
	Items       []RecordExtent
	Payload     []byte // of an identity, in place of items
	Top         int64  // where it was written, or found
}

// Length is the number of a record's extents, or as many as have the size of its payload.
func (r *Record) Length() int {
	if r.Flags&RecordIdentity != 0 {
		return len(r.Payload) / RecordItem
	}
	return len(r.Items)
}

type RecordExtent struct {
	FileOffset int64
	Offset     uint32 // in the segment
	Length     uint32
	Sum        uint64
}

// Encode writes the record so that it ends at top, with its word still missing,
// and returns where it begins. The caller has checked that it fits.
func (r *Record) Encode(seg []byte, top int64, nonce uint64) (low int64) {
	le := binary.LittleEndian
	low = top - RecordCost(r.Length())
	p := seg[low:top]
	copy(p, r.Payload)
	for i, e := range r.Items {
		q := p[i*RecordItem:]
		le.PutUint64(q, uint64(e.FileOffset))
		le.PutUint32(q[8:], e.Offset)
		le.PutUint32(q[12:], e.Length)
		le.PutUint64(q[16:], e.Sum)
	}
	h := p[len(p)-RecordHead:]
	le.PutUint64(h, uint64(r.File))
	le.PutUint64(h[8:], uint64(r.Generation))
	le.PutUint64(h[16:], uint64(r.Base))
	le.PutUint64(h[24:], uint64(r.Origin))
	le.PutUint64(h[32:], r.Sequence)
	le.PutUint16(h[40:], r.Part)
	le.PutUint16(h[42:], r.Parts)
	le.PutUint16(h[44:], uint16(r.Length()))
	le.PutUint16(h[46:], r.Flags)
	le.PutUint64(h[48:], checksum.Update(nonce, p[:len(p)-16]))
	return low
}

// DecodeRecord reads the record that ends at top and lies above bottom. found is
// false at the end of the log. It allocates nothing for damaged input.
func DecodeRecord(seg []byte, bottom, top int64, nonce uint64) (r Record, low int64, found bool, err error) {
	le := binary.LittleEndian
	if bottom < 0 || top > int64(len(seg)) || top-bottom < RecordEnd {
		return r, top, false, nil
	}
	word := le.Uint64(seg[top-8:])
	if word == 0 {
		return r, top, false, nil
	}
	if top-bottom < RecordHead {
		return r, top, true, fmt.Errorf("no room for a record")
	}
	h := seg[top-RecordHead : top]
	n := int(le.Uint16(h[44:]))
	cost := RecordCost(n)
	r.State = uint32(word)
	if r.State != RecordPrepared && r.State != RecordComplete && r.State != RecordVoid || int64(word>>32) != cost || top-cost < bottom {
		return r, top, true, fmt.Errorf("no record's last word: %#x", word)
	}
	p := seg[top-cost : top]
	if le.Uint64(h[48:]) != checksum.Update(nonce, p[:len(p)-16]) {
		return r, top, true, fmt.Errorf("the record's checksum does not match")
	}
	r.File = bb.FileID(le.Uint64(h))
	r.Generation = bb.Generation(le.Uint64(h[8:]))
	r.Base = bb.Generation(le.Uint64(h[16:]))
	r.Origin = bb.Generation(le.Uint64(h[24:]))
	r.Sequence = le.Uint64(h[32:])
	r.Part, r.Parts, r.Flags = le.Uint16(h[40:]), le.Uint16(h[42:]), le.Uint16(h[46:])
	if r.Flags&RecordIdentity != 0 {
		r.Payload = append([]byte(nil), p[:n*RecordItem]...)
		return r, top - cost, true, r.Check(top - cost)
	}
	r.Items = make([]RecordExtent, n)
	for i := range r.Items {
		q := p[i*RecordItem:]
		r.Items[i] = RecordExtent{int64(le.Uint64(q)), le.Uint32(q[8:]), le.Uint32(q[12:]), le.Uint64(q[16:])}
	}
	return r, top - cost, true, r.Check(top - cost)
}

// Check refuses a record whose checksum is right and whose content cannot be. In a region of an
// older version its user could have made one.
func (r *Record) Check(floor int64) error {
	if r.Generation == 0 || r.Origin == 0 || r.Origin > r.Generation || r.Base >= r.Generation || r.Part >= r.Parts {
		return fmt.Errorf("generation %d, base %d, origin %d, part %d of %d", r.Generation, r.Base, r.Origin, r.Part, r.Parts)
	}
	for _, e := range r.Items {
		if e.Length == 0 || e.FileOffset < 0 || e.FileOffset > bb.MaxFileSize-int64(e.Length) {
			return fmt.Errorf("an extent of %d bytes at %d", e.Length, e.FileOffset)
		}
		if r.Flags&RecordEvicted == 0 && (e.Offset < DataStart || int64(e.Offset)+int64(e.Length) > floor) {
			return fmt.Errorf("an extent of %d bytes at %d of the segment", e.Length, e.Offset)
		}
	}
	return nil
}

// Publish stores an aligned word of a region in one piece, after everything
// written before it.
func Publish(mem []byte, at int64, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	p := mem[at : at+8 : at+8]
	// Regions are mapped at page boundaries and all offsets used here are multiples of 8, so the
	// word is aligned. The pointer does not outlive the call.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&p[0])), binary.NativeEndian.Uint64(b[:]))
}

// VoidAt publishes the word of the record that ends at top as void.
func VoidAt(seg []byte, top int64) {
	Publish(seg, top-8, binary.LittleEndian.Uint64(seg[top-8:])&^math.MaxUint32|RecordVoid)
}

// SetState publishes the word of the record that ends at top.
func SetState(seg []byte, top int64, state uint32, extents int) {
	Publish(seg, top-8, uint64(state)|uint64(RecordCost(extents))<<32)
}
