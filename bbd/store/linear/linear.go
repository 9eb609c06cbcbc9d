// Package linear is the layout of a linear region, whose pages are one file's bytes, each at its offset in the file,
// and decides what memory such a region takes. It must never depend on regions themselves.
package linear

import "forebay/bbd/store/format"

// A program may read the pages of a linear region in place of the file. So they have neither a header, nor the start of
// a segment, nor room for records, which are in the journal alone. Segments divide the file. In the journal each lies
// in a stride of its own, so that the unit of a segment tells the place of its pages:
//
//	pages     │ stride data │ stride data │ rest │          31 MiB each
//	          │             │             │
//	journal   │ tables │ segment, 32 units │ segment, 32 units │ segment of the rest │
//
// Byte 0 of a segment, as its offsets go, would be format.DataStart before its first byte of data.
const (
	stride     = 32 // units
	strideData = (stride - 1) * format.Unit
	maxUnits   = (format.SlotCopies - format.SlotTable) / format.SlotSize

	// Least is the size of a file, in bytes, from which on a region of its own is worth it.
	Least = 8 << 20
	// Most is the largest size, in bytes.
	Most = (maxUnits - 1) / stride * strideData
)

// At returns the offset in the pages of the beginning of the segment at a unit. It is negative for the first one.
func At(unit int64) int64 { return (unit-1)/stride*strideData - format.DataStart }

// Segment is one of a linear region's segments: its units, and the bytes [From, To) of the file.
type Segment struct {
	Unit, Units int64
	From, To    int64
}

// Layout divides a file of so many bytes, from 1 to Most. It returns the segments, and the size of the journal.
func Layout(size int64) (segments []Segment, journal int64) {
	unit := int64(1)
	for from := int64(0); from < size; from += strideData {
		s := Segment{Unit: unit, From: from, To: min(size, from+strideData)}
		s.Units = min(stride, (format.DataStart+s.To-s.From)/format.Unit+2)
		segments = append(segments, s)
		unit += stride
	}
	last := segments[len(segments)-1]
	return segments, (last.Unit + last.Units) * format.Unit
}

// Of returns the index of the segment with a byte of the file.
func Of(off int64) int { return int(off / strideData) }

// Cut returns the extents of bytes [off, end) of the file, one for each segment that they lie in. Each has the checksum sum.
func Cut(off, end int64, sum uint64) (list []format.RecordExtent) {
	for off < end {
		from := off / strideData * strideData
		to := min(end, from+strideData)
		list = append(list, format.RecordExtent{
			FileOffset: off, Offset: uint32(format.DataStart + off - from), Length: uint32(to - off), Sum: sum,
		})
		off = to
	}
	return list
}

// Spills reports whether segments as large as those of a file of so many bytes fit into regions of a size.
func Spills(size, region int64) bool { return min(stride, size/format.Unit+2) < region/format.Unit }

// Take chooses the empty regions, of so many bytes each, to be given up for need bytes. It takes none, unless one is left
// for writers.
func Take(need int64, empty []int64) (n int, sum int64) {
	for n < len(empty) && sum < need {
		sum += empty[n]
		n++
	}
	if sum < need || n == len(empty) {
		return 0, 0
	}
	return n, sum
}
