package replica

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// wide is a message of extents that take as much room in it as extents can.
func wide(extents int) *wire.Replicate {
	m := &wire.Replicate{Buffer: strings.Repeat("b", 64), File: 1 << 63, Generation: 1 << 63, Whole: true}
	x := &wire.NewExtent{FileOffset: bb.MaxFileSize - 1, Length: store.MaxSegment, Checksum: 1 << 63, Lease: 1 << 63, SegmentOffset: store.MaxSegment}
	for range extents {
		m.Extents = append(m.Extents, x)
	}
	return m
}

func TestReplicaParts(t *testing.T) {
	b := &Buffer{name: "b"}
	for _, c := range []struct {
		extents int
		mayPart bool
		parts   int
		kind    bb.Kind
	}{
		{0, true, 1, 0},
		{maxExtents, true, 1, 0},
		{maxExtents, false, 1, 0},
		{maxExtents + 1, true, 2, 0},
		{3 * maxExtents, true, 3, 0},
		{48_000, true, 3, 0},
		{48_000, false, 0, bb.Unsupported},
		{maxPartsExtents + 1, true, 0, bb.Invalid},
	} {
		m := wide(c.extents)
		parts, err := b.inParts(m, c.mayPart, 5)
		if len(parts) != c.parts || c.kind != 0 && bb.KindOf(err) != c.kind || c.kind == 0 && err != nil {
			t.Errorf("%d extents: %d parts, %v", c.extents, len(parts), err)
		}
		var all []*wire.NewExtent
		for i, p := range parts {
			if n := proto.Size(p); n > wire.MaxMessage {
				t.Errorf("%d extents: part %d has %d bytes", c.extents, i, n)
			}
			if len(parts) > 1 && (p.More != (i+1 < len(parts)) || p.Parts != 5 || !p.Whole || int(p.Before) != len(all)) {
				t.Errorf("%d extents: part %d: parts %d, before %d, more %v", c.extents, i, p.Parts, p.Before, p.More)
			}
			all = append(all, p.Extents...)
		}
		if err == nil && len(all) != c.extents {
			t.Errorf("%d extents: %d in all parts", c.extents, len(all))
		}
	}
	// A commit that fits into one message is sent whole to a daemon that accepts no parts.
	small := wide(0)
	for range maxExtents + 1000 {
		small.Extents = append(small.Extents, &wire.NewExtent{FileOffset: 1, Length: 1, Checksum: 1, Lease: 1, SegmentOffset: 1})
	}
	if parts, err := b.inParts(small, false, 5); len(parts) != 1 || err != nil {
		t.Errorf("%d parts, %v", len(parts), err)
	}
}

// A commit is whole, or it is refused. Parts that are missing, repeated or of another attempt are
// not joined.
func TestJoinParts(t *testing.T) {
	type part struct {
		id     uint64
		before uint32
		n      int
		more   bool
	}
	for name, c := range map[string]struct {
		parts []part
		want  int // extents of the last; -1: it is refused
	}{
		"all":              {[]part{{1, 0, 5, true}, {1, 5, 5, true}, {1, 10, 2, false}}, 12},
		"one is missing":   {[]part{{1, 0, 5, true}, {1, 10, 2, false}}, -1},
		"one is repeated":  {[]part{{1, 0, 5, true}, {1, 5, 5, true}, {1, 5, 5, true}}, -1},
		"another attempt":  {[]part{{1, 0, 5, true}, {2, 5, 5, false}}, -1},
		"begun again":      {[]part{{1, 0, 5, true}, {2, 0, 5, true}, {2, 5, 1, false}}, 6},
		"none has come":    {[]part{{1, 5, 5, false}}, -1},
		"after the last":   {[]part{{1, 0, 5, true}, {1, 5, 1, false}, {1, 6, 1, false}}, -1},
		"the first is all": {[]part{{1, 0, 5, false}}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(Parts)
			for i, p := range c.parts {
				got, err := s.Join(7, &wire.Replicate{Parts: p.id, Before: p.before, More: p.more}, make([]store.NewExtent, p.n))
				if i+1 < len(c.parts) {
					if err != nil || p.more && got != nil {
						t.Fatalf("part %d: %d extents, %v", i, len(got), err)
					}
					continue
				}
				if c.want < 0 && bb.KindOf(err) != bb.Invalid || c.want >= 0 && (err != nil || len(got) != c.want) {
					t.Errorf("the last part: %d extents, %v", len(got), err)
				}
			}
			if len(s.files) != 0 {
				t.Errorf("parts are kept of %d files", len(s.files))
			}
		})
	}
	s := new(Parts)
	for f := range bb.FileID(3 * maxPartsFiles) {
		if _, err := s.Join(f, &wire.Replicate{Parts: 1, More: true}, make([]store.NewExtent, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.files) > maxPartsFiles {
		t.Errorf("parts are kept of %d files", len(s.files))
	}
}
