package pages

import "hash/maphash"

const (
	parts     = 64 // of an index, each of which grows by itself, so that no single change waits for all
	firstSize = 16
)

// index finds slots by the hashes of their keys: tables with linear probing, of which each
// place holds 32 bits of a hash and a slot.
type index struct {
	seed  maphash.Seed
	parts [parts]part
}

type part struct {
	places []uint64 // 0: free; else hash << 32 | slot + 1
	used   int
}

func (x *index) hash(key []byte) uint64 { return maphash.Bytes(x.seed, key) }

func (x *index) part(hash uint64) *part { return &x.parts[hash>>58] }

// find returns the slot of a hash for which is reports true, or NoSlot.
func (x *index) find(hash uint64, is func(Slot) bool) Slot {
	p := x.part(hash)
	if len(p.places) == 0 {
		return NoSlot
	}
	tag, mask := uint32(hash), uint32(len(p.places)-1)
	for at := tag & mask; p.places[at] != 0; at = (at + 1) & mask {
		if entry := p.places[at]; uint32(entry>>32) == tag && is(Slot(uint32(entry)-1)) {
			return Slot(uint32(entry) - 1)
		}
	}
	return NoSlot
}

func (x *index) insert(hash uint64, s Slot) {
	p := x.part(hash)
	if p.used*8 >= len(p.places)*7 {
		old := p.places
		p.places = make([]uint64, max(firstSize, 2*len(old)))
		for _, entry := range old {
			if entry != 0 {
				p.place(entry)
			}
		}
	}
	p.used++
	p.place(uint64(uint32(hash))<<32 | uint64(s+1))
}

func (p *part) place(entry uint64) {
	mask := uint32(len(p.places) - 1)
	at := uint32(entry>>32) & mask
	for p.places[at] != 0 {
		at = (at + 1) & mask
	}
	p.places[at] = entry
}

// remove takes a slot out, and moves the slots after it so that no search ends too early.
func (x *index) remove(hash uint64, s Slot) {
	p := x.part(hash)
	mask := uint32(len(p.places) - 1)
	want := uint64(uint32(hash))<<32 | uint64(s+1)
	at := uint32(hash) & mask
	for p.places[at] != want {
		at = (at + 1) & mask
	}
	p.used--
	for next := (at + 1) & mask; p.places[next] != 0; next = (next + 1) & mask {
		// An entry may move back to the gap unless it belongs behind it.
		if home := uint32(p.places[next]>>32) & mask; (next-home)&mask >= (next-at)&mask {
			p.places[at] = p.places[next]
			at = next
		}
	}
	p.places[at] = 0
}
