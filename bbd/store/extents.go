package store

import (
	"slices"
	"sort"
)

// extent is one run of a file's bytes in the index, the visible piece of one write that a writer
// committed.
//
//	whole extent as committed, with its checksum
//	┌───────────┬──────────────────────┬────────┐
//	│    cut    │ this piece: length   │        │   whole bytes in all
//	└───────────┴──────────────────────┴────────┘
//	            └ offset in the segment
//
// An evicted extent's segment is that of the record of its eviction (nil where only snapshots show
// it). Its bytes are in no segment.
type extent struct {
	off    int64 // in the file
	seg    *segment
	sum    uint64 // of the whole extent
	length uint32
	offset uint32
	cut    uint32
	whole  uint32
	state  extentState
}

// extentState is the state of an extent's copy on the backing store.
//
//	dirty ──MarkClean──▶ clean ──Evict──▶ evicted ──Fill──▶ clean
//	      ◀──MarkDirty──   └─ a newer generation replaced the copy ─▶ kept
type extentState uint8

const (
	dirty   extentState = iota
	clean               // the backing store has it
	kept                // the backing store had it, and older views still show it
	evicted             // only the backing store has it
)

func (e *extent) end() int64 { return e.off + int64(e.length) }

// piece returns the part of e in [from, to), which must overlap it.
func (e extent) piece(from, to int64) extent {
	from, to = max(from, e.off), min(to, e.end())
	skip := uint32(from - e.off)
	e.off, e.length = from, uint32(to-from)
	e.offset += skip
	e.cut += skip
	return e
}

// chunkMax bounds the extents that one insertion moves and that the first change after a copy copies.
const chunkMax = 128

// chunk is a run of extents that several maps of one file may share. It is changed
// only while one map refers to it. Its extents count in their segments once,
// however many maps share it.
type chunk struct {
	refs  int32
	items []extent
}

// extentMap holds the extents of one view of a file, ordered and without overlap.
// Copies share chunks until one of them changes. Guarded by the file's shard.
type extentMap struct{ chunks []*chunk }

// dead collects segments whose last extent went, to be freed once no lock is held.
type dead []*segment

func (d *dead) unref(e *extent) {
	if e.seg != nil && e.seg.unref(e) {
		*d = append(*d, e.seg)
	}
}

func (m *extentMap) copy() extentMap {
	for _, c := range m.chunks {
		c.refs++
	}
	return extentMap{slices.Clone(m.chunks)}
}

// release empties the map.
func (m *extentMap) release(d *dead) {
	for _, c := range m.chunks {
		c.release(d)
	}
	m.chunks = nil
}

func (c *chunk) release(d *dead) {
	if c.refs--; c.refs > 0 {
		return
	}
	for i := range c.items {
		d.unref(&c.items[i])
	}
}

func (m *extentMap) size() int64 {
	if len(m.chunks) == 0 {
		return 0
	}
	last := m.chunks[len(m.chunks)-1].items
	return last[len(last)-1].end()
}

// find returns the chunk and the place in it of the first extent that ends after off. If there is
// none, it returns those past the last chunk.
func (m *extentMap) find(off int64) (ci, i int) {
	ci = sort.Search(len(m.chunks), func(k int) bool {
		items := m.chunks[k].items
		return items[len(items)-1].end() > off
	})
	if ci == len(m.chunks) {
		return ci, 0
	}
	items := m.chunks[ci].items
	return ci, sort.Search(len(items), func(k int) bool { return items[k].end() > off })
}

// walk calls f for every extent that overlaps [from, to), in order, until f
// returns false. f may change the state of the extent and nothing else.
func (m *extentMap) walk(from, to int64, f func(*extent) bool) {
	ci, i := m.find(from)
	for ; ci < len(m.chunks); ci, i = ci+1, 0 {
		items := m.chunks[ci].items
		for ; i < len(items); i++ {
			if items[i].off >= to || !f(&items[i]) {
				return
			}
		}
	}
}

// put makes e visible in place of overlapping extents.
func (m *extentMap) put(e extent, d *dead) {
	if e.off >= m.size() && m.appendLast(e) {
		return
	}
	ci, i := m.find(e.off)
	if ci == len(m.chunks) { // past the end, and the last chunk is full or shared
		ci--
		i = len(m.chunks[ci].items)
	}
	add := make([]extent, 0, 3)
	cj, j := ci, i
	for cj < len(m.chunks) {
		items := m.chunks[cj].items
		if j == len(items) {
			if cj+1 == len(m.chunks) {
				break
			}
			cj, j = cj+1, 0
			continue
		}
		old := items[j]
		if old.off >= e.end() {
			break
		}
		if old.off < e.off {
			add = append(add, old.piece(old.off, e.off))
		}
		if old.end() > e.end() {
			add = append(add, e, old.piece(e.end(), old.end()))
			e.length = 0 // has been added
		}
		j++
	}
	if e.length > 0 {
		add = append(add, e)
	}
	if cj > ci && j == 0 { // nothing of chunk cj is touched
		cj--
		j = len(m.chunks[cj].items)
	}
	m.splice(ci, i, cj, j, add, d)
}

// appendLast adds e behind everything if the last chunk has room and is not shared.
func (m *extentMap) appendLast(e extent) bool {
	if n := len(m.chunks); n > 0 {
		c := m.chunks[n-1]
		if c.refs == 1 && len(c.items) < chunkMax {
			e.seg.ref(&e)
			c.items = append(c.items, e)
			return true
		}
		if len(c.items) < chunkMax/2 {
			return false // splice copies it, or the chunks stay tiny
		}
	}
	e.seg.ref(&e)
	m.chunks = append(m.chunks, &chunk{refs: 1, items: []extent{e}})
	return true
}

// splice replaces the extents from (ci, i) up to but not including (cj, j) by add.
func (m *extentMap) splice(ci, i, cj, j int, add []extent, d *dead) {
	first, last := m.chunks[ci], m.chunks[cj]
	if ci == cj && first.refs == 1 && len(first.items)-(j-i)+len(add) <= chunkMax {
		for k := range add {
			add[k].seg.ref(&add[k])
		}
		for k := i; k < j; k++ {
			d.unref(&first.items[k])
		}
		first.items = slices.Replace(first.items, i, j, add...)
		return
	}
	items := slices.Concat(first.items[:i], add, last.items[j:])
	for k := range items {
		items[k].seg.ref(&items[k])
	}
	var fresh []*chunk
	for half := range slices.Chunk(items, max(1, (len(items)+1)/(1+len(items)/chunkMax))) {
		fresh = append(fresh, &chunk{refs: 1, items: slices.Clone(half)})
	}
	for _, c := range m.chunks[ci : cj+1] {
		c.release(d)
	}
	m.chunks = slices.Replace(m.chunks, ci, cj+1, fresh...)
}
