// Package pages is a map from keys to values in memory, compact and outside of the garbage
// collector's heap, cut into pages of about a thousand items that can be written out and read
// back one by one. It must never depend on what an item means, and does no I/O.
//
//	          index: hash of a key → slot
//	                    │
//	 page 0     page 1  ▼            slot = page << 10 | place
//	┌───────┐  ┌────────────────┐
//	│ items │  │ offsets │ items│    item = length | key length | key | revision | value
//	└───────┘  └────────────────┘
//
// A page's items lie in one piece of memory, in any order, with gaps where items were removed or
// have grown. When the piece is full they are moved together. A page of its target size gets no new items until
// enough of it is removed.
package pages

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

const (
	// PerPage is the most items of a page.
	PerPage = 1 << placeBits

	placeBits = 10
	pageBytes = 512 << 10 // of address space; unwritten pages take no memory
	fillBytes = 192 << 10 // of items, above which a page gets no new ones
	mostBytes = 448 << 10 // of items, above which one that grows moves to another page
	reuseAt   = PerPage / 2
	released  = 64 << 10 // bytes of memory that are worth giving back

	// MaxItem is the most bytes of a key and a value together.
	MaxItem = 300 << 10
)

// Slot is the place of an item. It stays until the item is removed, or moved by Put.
type Slot uint32

// NoSlot is no item's.
const NoSlot = ^Slot(0)

// Item is an item of a map. Key and Value lie in a page, and are valid until the map is changed.
type Item struct {
	Key, Value []byte
	Revision   uint64
}

// Map is a map. It is used by one goroutine at a time, or by several that only read.
type Map struct {
	pages []*page
	index index
	open  int   // the page that gets new items; -1: none
	spare []int // pages that have room again
	items int
}

// page is a page. Its items begin at offset-1, 0 stands for a free place.
type page struct {
	mem     []byte
	used    int // bytes
	live    int // bytes of items, without gaps
	items   int
	next    int // no place below is free
	offsets []uint32
	since   uint64 // the sequence of its first change that is not written; 0: all is
	newest  uint64 // no item's revision is above
	spare   bool
}

// New returns an empty map.
func New() *Map { return &Map{open: -1, index: index{seed: maphash.MakeSeed()}} }

// Close gives the memory back. Items that were returned must not be used any more.
func (m *Map) Close() {
	for _, p := range m.pages {
		if p.mem != nil {
			_ = unix.Munmap(p.mem)
		}
	}
	*m = Map{open: -1}
}

// Len returns how many items there are.
func (m *Map) Len() int { return m.items }

// Find returns the slot of a key, or NoSlot.
func (m *Map) Find(key []byte) Slot {
	return m.index.find(m.index.hash(key), func(s Slot) bool { return string(m.Key(s)) == string(key) })
}

// Get returns the item of a key.
func (m *Map) Get(key []byte) (Item, bool) {
	s := m.Find(key)
	if s == NoSlot {
		return Item{}, false
	}
	return m.At(s), true
}

// At returns the item of a slot, which must be in use.
func (m *Map) At(s Slot) Item {
	p := m.pages[s>>placeBits]
	item, _ := decode(p.mem[p.offsets[s%PerPage]-1:])
	return item
}

// Key returns the key of a slot, which must be in use.
func (m *Map) Key(s Slot) []byte {
	p := m.pages[s>>placeBits]
	b := p.mem[p.offsets[s%PerPage]-1:]
	for b[0] >= 0x80 { // the item's length
		b = b[1:]
	}
	n, at := binary.Uvarint(b[1:])
	return b[1+at : 1+at+int(n)]
}

// encodedLen returns the length of an item without its own length.
func encodedLen(key, value []byte) int {
	return uvarintLen(len(key)) + len(key) + 8 + len(value)
}

func uvarintLen(n int) int { return max(bits.Len(uint(n))+6, 7) / 7 }

func encode(b, key []byte, revision uint64, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(encodedLen(key, value)))
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = binary.LittleEndian.AppendUint64(b, revision)
	return append(b, value...)
}

// decode returns the item that b begins with, and its length, or 0 if there is none.
func decode(b []byte) (Item, int) {
	n, a := binary.Uvarint(b)
	if a <= 0 || n > uint64(len(b)-a) {
		return Item{}, 0
	}
	body := b[a : a+int(n)]
	k, c := binary.Uvarint(body)
	if c <= 0 || k > uint64(len(body)-c) || len(body)-c-int(k) < 8 {
		return Item{}, 0
	}
	rest := body[c+int(k):]
	return Item{Key: body[c : c+int(k)], Revision: binary.LittleEndian.Uint64(rest), Value: rest[8:]}, a + int(n)
}

// Put stores an item, as the record of a sequence does, and returns where it is now and where the
// item of its key was before, NoSlot if there was none. Keys and values are copied.
func (m *Map) Put(key []byte, revision uint64, value []byte, seq uint64) (now, before Slot, err error) {
	n := encodedLen(key, value)
	if n > MaxItem {
		return NoSlot, NoSlot, bb.E(bb.Invalid, "store", "", "the item is too large")
	}
	before = m.Find(key)
	if before != NoSlot {
		if p := m.pages[before>>placeBits]; m.rewrite(p, before, key, revision, value) {
			p.touch(revision, seq)
			return before, before, nil
		}
	}
	at, err := m.roomy(n + uvarintLen(n))
	if err != nil {
		return NoSlot, before, err
	}
	if before != NoSlot {
		m.removeAt(before, seq)
	}
	now = m.add(at, key, revision, value)
	m.pages[at].touch(revision, seq)
	return now, before, nil
}

func (p *page) touch(revision, seq uint64) {
	p.newest = max(p.newest, revision)
	if p.since == 0 {
		p.since = seq
	}
}

// rewrite stores another value in a slot, if its page has room for it.
func (m *Map) rewrite(p *page, s Slot, key []byte, revision uint64, value []byte) bool {
	at := int(p.offsets[s%PerPage]) - 1
	_, old := decode(p.mem[at:])
	n := encodedLen(key, value)
	n += uvarintLen(n)
	if n > old {
		if p.live-old+n > mostBytes {
			return false
		}
		if p.used+n > len(p.mem) {
			p.offsets[s%PerPage] = 0 // its bytes are a gap now
			p.compact()
		}
		at = p.used
		p.offsets[s%PerPage] = uint32(at) + 1
		p.used += n
	}
	p.live += n - old
	encode(p.mem[at:at:len(p.mem)], key, revision, value)
	return true
}

// roomy returns the number of a page that has room for n bytes.
func (m *Map) roomy(n int) (int, error) {
	for {
		if m.open >= 0 {
			p := m.pages[m.open]
			if p.items < PerPage && (p.items == 0 || p.live+n <= fillBytes) {
				if p.used+n > len(p.mem) {
					p.compact()
				}
				return m.open, nil
			}
			m.open = -1
		}
		if last := len(m.spare) - 1; last >= 0 {
			m.open, m.spare = m.spare[last], m.spare[:last]
			m.pages[m.open].spare = false
			continue
		}
		m.open = len(m.pages)
		if err := m.grow(m.open); err != nil {
			return 0, err
		}
	}
}

// grow makes sure that there is a page of a number.
func (m *Map) grow(number int) error {
	for len(m.pages) <= number {
		m.pages = append(m.pages, &page{})
	}
	p := m.pages[number]
	if p.mem != nil {
		return nil
	}
	mem, err := unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return &bb.Error{Kind: bb.NoSpace, Op: "allocate", Path: "namespace", Err: err, Remedy: "see the memory limits of the daemon"}
	}
	// A huge page would take memory for bytes that are never written.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	p.mem = mem
	return nil
}

// add stores a new item in a page that has room.
func (m *Map) add(number int, key []byte, revision uint64, value []byte) Slot {
	p := m.pages[number]
	for p.next < len(p.offsets) && p.offsets[p.next] != 0 {
		p.next++
	}
	if p.next == len(p.offsets) {
		if cap(p.offsets) == len(p.offsets) {
			grown := make([]uint32, len(p.offsets), min(max(16, 2*len(p.offsets)), PerPage))
			copy(grown, p.offsets)
			p.offsets = grown
		}
		p.offsets = append(p.offsets, 0)
	}
	p.offsets[p.next] = uint32(p.used) + 1
	n := len(encode(p.mem[p.used:p.used:len(p.mem)], key, revision, value))
	p.used, p.live, p.items = p.used+n, p.live+n, p.items+1
	m.items++
	s := Slot(number<<placeBits | p.next)
	m.index.insert(m.index.hash(key), s)
	return s
}

// Remove removes the item of a key, as the record of a sequence does, and returns where it was.
func (m *Map) Remove(key []byte, seq uint64) Slot {
	s := m.Find(key)
	if s != NoSlot {
		m.removeAt(s, seq)
	}
	return s
}

func (m *Map) removeAt(s Slot, seq uint64) {
	number := int(s >> placeBits)
	p := m.pages[number]
	item, n := decode(p.mem[p.offsets[s%PerPage]-1:])
	m.index.remove(m.index.hash(item.Key), s)
	place := int(s % PerPage)
	p.offsets[place] = 0
	p.next = min(p.next, place)
	p.live, p.items = p.live-n, p.items-1
	m.items--
	p.touch(0, seq)
	if p.items == 0 && p.used > 0 {
		p.release(0)
		p.used = 0
	}
	if !p.spare && number != m.open && p.items <= reuseAt && p.live <= fillBytes/2 {
		p.spare = true
		m.spare = append(m.spare, number)
	}
}

// compact moves the items of a page together.
func (p *page) compact() {
	packed := p.appendItems(make([]byte, 0, p.live), func(place int, at uint32) { p.offsets[place] = at + 1 })
	copy(p.mem, packed)
	if p.used-len(packed) >= released {
		p.release(len(packed))
	}
	p.used = len(packed)
}

// release gives the memory from an offset on back.
func (p *page) release(from int) {
	size := unix.Getpagesize()
	if from = (from + size - 1) / size * size; from < p.used {
		_ = unix.Madvise(p.mem[from:], unix.MADV_DONTNEED)
	}
}

func (p *page) appendItems(b []byte, moved func(place int, at uint32)) []byte {
	start := len(b)
	for place, at := range p.offsets {
		if at == 0 {
			continue
		}
		_, n := decode(p.mem[at-1:])
		moved(place, uint32(len(b)-start))
		b = append(b, p.mem[at-1:int(at)-1+n]...)
	}
	return b
}

// Pages returns how many pages there are. Their numbers begin with 0.
func (m *Map) Pages() int { return len(m.pages) }

// Since returns the sequence of the first change of a page that was not written, or 0 if all were.
func (m *Map) Since(number int) uint64 { return m.pages[number].since }

// Newest returns a revision that none of a page's items is above.
func (m *Map) Newest(number int) uint64 { return m.pages[number].newest }

// Written records that a page was written.
func (m *Map) Written(number int) { m.pages[number].since = 0 }

// Unwritten records that a page has changes since a sequence that were not written.
func (m *Map) Unwritten(number int, since uint64) {
	if p := m.pages[number]; p.since == 0 || since < p.since {
		p.since = since
	}
}

// AppendPage appends the items of a page to b.
func (m *Map) AppendPage(b []byte, number int) []byte {
	return m.pages[number].appendItems(b, func(int, uint32) {})
}

// EachIn calls fn with the items of a page, which it must not change.
func (m *Map) EachIn(number int, fn func(Slot, Item)) {
	p := m.pages[number]
	for place, at := range p.offsets {
		if at != 0 {
			item, _ := decode(p.mem[at-1:])
			fn(Slot(number<<placeBits|place), item)
		}
	}
}

// Load fills a page that has no items with the result of AppendPage. Of two items of a key, the one
// in another page is kept if its revision is higher. Else it is dropped, and its page has changes
// since a sequence. Leaving is called before that, with its slot and the newer value. Taken is called
// with each slot that was taken, and the one that its key had before or NoSlot. The error of bytes
// that AppendPage never returned is of kind Checksum.
func (m *Map) Load(number int, items []byte, since uint64, leaving func(gone Slot, newer []byte), taken func(now, gone Slot)) error {
	if err := m.grow(number); err != nil {
		return err
	}
	p := m.pages[number]
	if p.items != 0 || len(items) > len(p.mem) {
		return bb.E(bb.Checksum, "load", "page", "it has items already, or too many")
	}
	for len(items) > 0 {
		item, n := decode(items)
		if n == 0 || p.items == PerPage {
			return bb.E(bb.Checksum, "load", "page", "an item cannot be decoded")
		}
		items = items[n:]
		gone := m.Find(item.Key)
		if gone != NoSlot && m.At(gone).Revision >= item.Revision {
			m.Unwritten(number, since)
			continue
		}
		if gone != NoSlot {
			leaving(gone, item.Value)
			m.removeAt(gone, since)
		}
		now := m.add(number, item.Key, item.Revision, item.Value)
		p.newest = max(p.newest, item.Revision)
		taken(now, gone)
	}
	if number != m.open && !p.spare && p.items <= reuseAt && p.live <= fillBytes/2 {
		p.spare = true
		m.spare = append(m.spare, number)
	}
	return nil
}
