package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unique"

	"forebay/bbd/store/format"
	"forebay/bbd/store/linear"
	"forebay/internal/bb"
)

// segState is a segment's place in its life.
//
//	             Lease                    Release, nearly full; Abandon
//	(free) ──────────▶ leased ───────────────────────────────────▶ sealed ◀── recovery
//	                   │    ▲                                       │   ▲
//	           Release │    │ Lease                           Spill │   │ done, or given up
//	                   ▼    │       Spill, Evict need it            ▼   │
//	                   partial ───────────────────────────────────▶ spilling
//
//	free: from partial or sealed, when no extent refers to it, it has no pins and
//	no writer that lost its lease is left (writers.go)
type segState uint8

const (
	segLeased segState = iota
	segPartial
	segSealed
	segSpilling
	segFree
)

var segMoves = [...][]segState{
	segLeased:   {segPartial, segSealed},
	segPartial:  {segLeased, segSealed, segSpilling, segFree},
	segSealed:   {segSpilling, segFree},
	segSpilling: {segSealed},
	segFree:     {},
}

// segment is a slice of a region.
type segment struct {
	sequence uint64 // in order of creation, across restarts
	nonce    uint64
	length   int64
	uid      uint32
	buffer   unique.Handle[string]
	tier     bb.Tier // where its bytes belong, wherever they are

	// Counts of extents in the index, and of their bytes. An extent that several
	// views of a file show in chunks of their own counts once in each.
	refs, held       atomic.Int64 // held: extents that may not be evicted
	live, dirtyBytes atomic.Int64
	lastUse          atomic.Int64

	mu struct {
		sync.Mutex
		state    segState
		region   *region
		offset   int64 // in the region
		lease    bb.LeaseID
		start    int64 // first byte the present lease may fill
		dataEnd  int64 // end of committed data
		floor    int64 // end of the space for data. Records and their end mark lie above
		ready    int64 // from here on the journal has memory for records
		pins     int32
		voids    uint32      // records made void so far: Spill must not miss one
		files    []bb.FileID // that have, or had, extents here
		left     bool        // a lease ended without Release; its writer may still write
		occupied bool        // left, and the writer was there when it was last looked for

		identities, identityBytes int64 // that count, of the store's own records
	}
}

// to changes the state. A move that the picture does not show is a bug here. The caller holds mu.
func (g *segment) to(next segState) {
	if slices.Contains(segMoves[g.mu.state], next) {
		g.mu.state = next
		return
	}
	panic(fmt.Sprintf("store: segment %d moves from state %d to %d", g.sequence, g.mu.state, next))
}

// mem returns the segment's pages. The caller holds mu, has the segment leased or
// pinned, or is alone with it. Segments of linear regions have bytes alone.
func (g *segment) mem() []byte {
	return g.mu.region.Mem[g.mu.offset : g.mu.offset+g.length : g.mu.offset+g.length]
}

// toSpill returns the pages that a spill writes, and their offset in the segment. The caller holds mu.
func (g *segment) toSpill() (mem []byte, from int64) {
	if g.mu.region.Linear {
		return g.bytes(format.DataStart, g.mu.dataEnd-format.DataStart), format.DataStart
	}
	return g.mem(), 0
}

// bytes returns n of the segment's bytes from off on, as mem.
func (g *segment) bytes(off, n int64) []byte {
	at := g.at() + off
	return g.mu.region.Mem[at : at+n : at+n]
}

// at returns where the segment's offset 0 is in the pages, which may be before them. The caller holds mu.
func (g *segment) at() int64 {
	if g.mu.region.Linear {
		return linear.At(g.mu.offset / Unit)
	}
	return g.mu.offset
}

// records returns the segment's part of the journal. The caller holds mu, or is alone with it.
func (g *segment) records() []byte {
	return g.mu.region.Journal[g.mu.offset : g.mu.offset+g.length : g.mu.offset+g.length]
}

// header returns the content of the slot and its copy, wherever the segment is.
func (g *segment) header() format.SegmentHeader {
	return format.SegmentHeader{Units: g.length / Unit, Nonce: g.nonce, Sequence: g.sequence, UID: g.uid, Buffer: g.buffer.Value(), Tier: g.tier}
}

func (g *segment) ref(e *extent) {
	if g == nil {
		return
	}
	g.refs.Add(1)
	if e.state == evicted {
		return
	}
	g.live.Add(int64(e.length))
	if e.state != clean {
		g.held.Add(1)
	}
	if e.state == dirty {
		g.dirtyBytes.Add(int64(e.length))
	}
}

// unref reports whether e was the last extent of the segment.
func (g *segment) unref(e *extent) bool {
	if e.state != evicted {
		g.live.Add(-int64(e.length))
		if e.state != clean {
			g.held.Add(-1)
		}
		if e.state == dirty {
			g.dirtyBytes.Add(-int64(e.length))
		}
	}
	return g.refs.Add(-1) == 0
}

// mark changes the state of an extent between dirty, clean and kept. The caller
// holds the shard of the extent's file.
func (e *extent) mark(next extentState) {
	if e.state == evicted || e.state == next {
		return
	}
	old := *e
	e.state = next
	e.seg.ref(e)
	e.seg.unref(&old)
}

// addFile notes that the segment holds extents of a file. The caller holds mu.
func (g *segment) addFile(f bb.FileID) {
	if n := len(g.mu.files); n == 0 || g.mu.files[n-1] != f {
		g.mu.files = append(g.mu.files, f)
	}
}

// append writes a record below the others and leaves its word to the caller. The
// caller holds mu and has checked that it fits.
func (g *segment) append(r *format.Record) (top int64) {
	top = g.mu.floor + format.RecordEnd
	low := top - format.RecordCost(r.Length())
	log := g.records()
	clear(log[low-format.RecordEnd : low]) // the end of the log, before the record is part of it
	r.Encode(log, top, g.nonce)
	g.mu.floor = low - format.RecordEnd
	return top
}
