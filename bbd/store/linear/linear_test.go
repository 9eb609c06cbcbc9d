package linear

import (
	"slices"
	"testing"

	"forebay/bbd/store/format"
)

// TestLayout checks that segments cover the file, neither meet in the journal nor leave it, and that each byte has its offset
// of the file in the pages.
func TestLayout(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{1, 4096, format.Unit - format.DataStart, format.Unit, Least, strideData - 1, strideData, strideData + 1, 1 << 30, Most - 1, Most} {
		segments, journal := Layout(size)
		end, unit := int64(0), int64(1)
		for i, s := range segments {
			if s.From != end || s.To <= s.From || s.Unit < unit {
				t.Fatalf("%d bytes: segment %d is %+v, after byte %d and unit %d", size, i, s, end, unit)
			}
			for _, off := range []int64{s.From, s.To - 1} {
				if at := At(s.Unit) + format.DataStart + off - s.From; at != off || Of(off) != i {
					t.Errorf("%d bytes: byte %d of segment %d lies at %d", size, off, i, at)
				}
			}
			if room := s.Units*format.Unit - format.DataStart - (s.To - s.From); room < format.Unit/2 {
				t.Errorf("%d bytes: segment %d has %d bytes for records", size, i, room)
			}
			end, unit = s.To, s.Unit+s.Units
		}
		if end != size || unit*format.Unit != journal || unit > maxUnits {
			t.Errorf("%d bytes: segments end at %d, and at unit %d of a journal of %d bytes", size, end, unit, journal)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	const d = format.DataStart
	for name, c := range map[string]struct {
		off, end int64
		want     []format.RecordExtent
	}{
		"in the first":  {5, 9, []format.RecordExtent{{FileOffset: 5, Offset: d + 5, Length: 4, Sum: 3}}},
		"to its end":    {5, strideData, []format.RecordExtent{{FileOffset: 5, Offset: d + 5, Length: strideData - 5, Sum: 3}}},
		"in the second": {strideData, strideData + 1, []format.RecordExtent{{FileOffset: strideData, Offset: d, Length: 1, Sum: 3}}},
		"over an end": {strideData - 1, strideData + 2, []format.RecordExtent{
			{FileOffset: strideData - 1, Offset: d + strideData - 1, Length: 1, Sum: 3}, {FileOffset: strideData, Offset: d, Length: 2, Sum: 3},
		}},
	} {
		if got := Cut(c.off, c.end, 3); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		need  int64
		empty []int64
		n     int
		sum   int64
	}{
		"nothing is empty":        {10, nil, 0, 0},
		"one, which writers need": {10, []int64{20}, 0, 0},
		"one of two":              {10, []int64{20, 20}, 1, 20},
		"two of three":            {30, []int64{20, 20, 20}, 2, 40},
		"all of them":             {50, []int64{20, 20, 20}, 0, 0},
		"more than all":           {70, []int64{20, 20, 20}, 0, 0},
	} {
		if n, sum := Take(c.need, c.empty); n != c.n || sum != c.sum {
			t.Errorf("%s: %d regions with %d bytes, want %d with %d", name, n, sum, c.n, c.sum)
		}
	}
}

func TestSpills(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size, region int64
		want         bool
	}{{Least, 8 << 20, false}, {Least, 64 << 20, true}, {1 << 30, 32 << 20, false}, {1 << 30, 33 << 20, true}} {
		if got := Spills(c.size, c.region); got != c.want {
			t.Errorf("%d bytes, regions of %d: %v", c.size, c.region, got)
		}
	}
}
