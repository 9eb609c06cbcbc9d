package forward

import (
	"bytes"
	"errors"
	"testing"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// TestHasAll: a commit whose answer was lost was carried out if the closed generation shows each of its
// extents as it was written.
func TestHasAll(t *testing.T) {
	t.Parallel()
	there := []store.MirrorExtent{{FileOffset: 0, Length: 10, Checksum: 1}, {FileOffset: 10, Length: 5, Checksum: 2}}
	extent := func(offset, length int64, sum uint64) *wire.NewExtent {
		return &wire.NewExtent{FileOffset: offset, Length: length, Checksum: sum, Lease: 7}
	}
	for name, c := range map[string]struct {
		extents []*wire.NewExtent
		want    bool
	}{
		"none":                     {nil, true},
		"one of them":              {[]*wire.NewExtent{extent(10, 5, 2)}, true},
		"all":                      {[]*wire.NewExtent{extent(0, 10, 1), extent(10, 5, 2)}, true},
		"one that was overwritten": {[]*wire.NewExtent{extent(0, 10, 1), extent(10, 5, 3)}, false},
		"a part":                   {[]*wire.NewExtent{extent(0, 9, 1)}, false},
		"one beyond the end":       {[]*wire.NewExtent{extent(15, 5, 2)}, false},
	} {
		if got := hasAll(there, c.extents); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// leased is a node with one lease, 7, of sixteen bytes.
type leased string

func (l leased) LeasedBytes(id bb.LeaseID, offset, length int64) ([]byte, error) {
	if id != 7 || offset+length > int64(len(l)) {
		return nil, errors.New("no such bytes")
	}
	return []byte(l[offset : offset+length]), nil
}

// TestGather: the bytes of a commit come from its data, in order, and from the client's leases. Nothing
// that is out of bounds is taken.
func TestGather(t *testing.T) {
	t.Parallel()
	f := &File{b: &Buffer{name: "b", o: Options{Leases: leased("0123456789abcdef")}}}
	for name, c := range map[string]struct {
		extents []*wire.NewExtent
		data    string
		want    string // pieces with a comma after each
		kind    bb.Kind
	}{
		"data":                 {[]*wire.NewExtent{{Length: 2}, {FileOffset: 2, Length: 3}}, "vwxyz", "vw,xyz,", 0},
		"a lease":              {[]*wire.NewExtent{{Length: 4, Lease: 7, SegmentOffset: 10}}, "", "abcd,", 0},
		"both":                 {[]*wire.NewExtent{{Length: 1}, {Length: 2, Lease: 7}, {Length: 1}}, "xy", "x,01,y,", 0},
		"too little data":      {[]*wire.NewExtent{{Length: 2}}, "x", "", bb.Invalid},
		"another's lease":      {[]*wire.NewExtent{{Length: 1, Lease: 8}}, "", "", bb.Invalid},
		"nothing":              {[]*wire.NewExtent{{}}, "", "", bb.Invalid},
		"a negative offset":    {[]*wire.NewExtent{{FileOffset: -1, Length: 1}}, "x", "", bb.Invalid},
		"beyond the last byte": {[]*wire.NewExtent{{FileOffset: bb.MaxFileSize, Length: 1}}, "x", "", bb.Invalid},
	} {
		got, err := f.gather(&wire.Commit{Extents: c.extents}, []byte(c.data), func(id bb.LeaseID) bool { return id == 7 })
		if c.kind != 0 {
			if bb.KindOf(err) != c.kind {
				t.Errorf("%s: %v, want %v", name, err, c.kind)
			}
			continue
		}
		all := bytes.Join(append(got, nil), []byte(","))
		if err != nil || string(all) != c.want {
			t.Errorf("%s: %q (%v), want %q", name, all, err, c.want)
		}
	}
}
