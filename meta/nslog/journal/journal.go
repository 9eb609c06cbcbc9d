// Package journal records the places of changes, for readers that follow the changes. It must never
// know the content of a place.
package journal

import "slices"

// most bounds a journal. A reader that is further behind reads everything.
const most = 1 << 14

// Journal is the places of the newest changes, in their order. It is changed by one goroutine while
// it is not read.
type Journal struct {
	first  uint64 // number of the first place below
	places []uint64
}

// Note adds a change.
func (j *Journal) Note(place uint64) {
	if len(j.places) == most {
		j.first += most / 2
		j.places = append(j.places[:0], j.places[most/2:]...)
	}
	j.places = append(j.places, place)
}

// Next returns the number that the next change gets.
func (j *Journal) Next() uint64 { return j.first + uint64(len(j.places)) }

// Since returns the places of the changes from a number on, each once. It returns false if the
// journal does not reach so far back.
func (j *Journal) Since(number uint64) ([]uint64, bool) {
	if number < j.first {
		return nil, false
	}
	places := slices.Clone(j.places[number-j.first:])
	slices.Sort(places)
	return slices.Compact(places), true
}
