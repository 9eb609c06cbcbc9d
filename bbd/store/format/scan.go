package format

import (
	"encoding/binary"

	"forebay/internal/bb"
)

// Scan calls each for every record of a segment's part of a journal, newest last, and bad (unless nil) for every
// run of bytes that should be records. WrittenFrom returns the offset from which there is memory up to another one. Scan
// returns the floor and the end of the data.
func Scan(mem []byte, length int64, nonce uint64, writtenFrom func(top int64) int64,
	each func(r *Record, top int64), bad func(from, to int64, claim *Record),
) (floor, dataEnd int64) {
	top, dataEnd := length, int64(DataStart)
	budget := 64 * length // bound of the bytes that resyncing may sum up, for any content of writers
	for {
		r, low, found, err := DecodeRecord(mem, dataEnd, top, nonce)
		if !found {
			return top - RecordEnd, dataEnd
		}
		if err != nil {
			next := resync(mem, max(dataEnd, writtenFrom(top)), top-8, nonce, &budget)
			if bad != nil {
				claim := claimOf(mem, top)
				bad(max(next, dataEnd), top, &claim)
			}
			if next < 0 {
				return dataEnd, dataEnd // nothing may be added any more
			}
			top = next
			continue
		}
		for _, e := range r.Items {
			if r.Flags&RecordEvicted == 0 {
				dataEnd = max(dataEnd, int64(e.Offset)+int64(e.Length))
			}
		}
		each(&r, top)
		top = low
	}
}

// resync returns the top of the next readable record below from, or -1.
func resync(mem []byte, bottom, from int64, nonce uint64, budget *int64) int64 {
	for top := from; top >= bottom+RecordHead && *budget > 0; top -= 8 {
		switch uint32(binary.LittleEndian.Uint64(mem[top-8:])) {
		case RecordPrepared, RecordComplete, RecordVoid:
			*budget -= int64(binary.LittleEndian.Uint64(mem[top-8:])>>32) % MaxSegment
			if _, _, found, err := DecodeRecord(mem, bottom, top, nonce); found && err == nil {
				return top
			}
		}
	}
	return -1
}

// claimOf reads file and generation of a record whose checksum is wrong.
func claimOf(mem []byte, top int64) (r Record) {
	if top < DataStart+RecordHead {
		return r
	}
	h := mem[top-RecordHead : top]
	r.File = bb.FileID(binary.LittleEndian.Uint64(h))
	r.Generation = bb.Generation(binary.LittleEndian.Uint64(h[8:]))
	return r
}
