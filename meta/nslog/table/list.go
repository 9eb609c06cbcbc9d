package table

import (
	"bytes"
	"slices"
	"sort"

	"forebay/meta/nslog/pages"
)

const leafSize = 512

// list is slots in the order of their keys, in leaves so that an insertion moves few.
type list struct {
	leaves [][]pages.Slot
	n      int
}

// find returns where the slot of a key is, or belongs. The item of the slot moved is not read,
// since its key is the wanted one.
func (l *list) find(m *pages.Map, key []byte, moved pages.Slot) (leaf, at int, found bool) {
	compare := func(s pages.Slot) int {
		if s == moved {
			return 0
		}
		return bytes.Compare(m.Key(s), key)
	}
	if len(l.leaves) == 0 {
		return 0, 0, false
	}
	// Names often come in order, at a start too.
	leaf = len(l.leaves) - 1
	in := l.leaves[leaf]
	if compare(in[len(in)-1]) < 0 {
		return leaf, len(in), false
	}
	leaf = max(sort.Search(len(l.leaves), func(i int) bool { return compare(l.leaves[i][0]) > 0 })-1, 0)
	in = l.leaves[leaf]
	at = sort.Search(len(in), func(i int) bool { return compare(in[i]) >= 0 })
	return leaf, at, at < len(in) && compare(in[at]) == 0
}

// put puts the slot of a key into the list, in the place of one that the item has left if that is
// not NoSlot.
func (l *list) put(m *pages.Map, key []byte, s, moved pages.Slot) {
	leaf, at, found := l.find(m, key, moved)
	if found {
		l.leaves[leaf][at] = s
		return
	}
	l.n++
	if len(l.leaves) == 0 {
		l.leaves = [][]pages.Slot{{s}}
		return
	}
	in := l.leaves[leaf]
	if len(in) < leafSize {
		l.leaves[leaf] = slices.Insert(in, at, s)
		return
	}
	// Names often come in order. Then the leaf before stays full.
	half := leafSize / 2
	if at == leafSize {
		half = leafSize
	}
	right := slices.Clone(in[half:])
	l.leaves[leaf] = in[:half:half]
	l.leaves = slices.Insert(l.leaves, leaf+1, right)
	if at >= half {
		l.leaves[leaf+1] = slices.Insert(right, at-half, s)
	} else {
		l.leaves[leaf] = slices.Insert(in[:half:half], at, s)
	}
}

// remove takes the slot of a key out. Its item is still there.
func (l *list) remove(m *pages.Map, key []byte) {
	leaf, at, found := l.find(m, key, pages.NoSlot)
	if !found {
		return
	}
	l.n--
	if l.leaves[leaf] = slices.Delete(l.leaves[leaf], at, at+1); len(l.leaves[leaf]) == 0 {
		l.leaves = slices.Delete(l.leaves, leaf, leaf+1)
	}
}

// from calls fn with the slots whose keys are not below one, until it returns false.
func (l *list) from(m *pages.Map, key []byte, fn func(pages.Slot) bool) {
	leaf, at, _ := l.find(m, key, pages.NoSlot)
	for ; leaf < len(l.leaves); leaf, at = leaf+1, 0 {
		for _, s := range l.leaves[leaf][at:] {
			if !fn(s) {
				return
			}
		}
	}
}
