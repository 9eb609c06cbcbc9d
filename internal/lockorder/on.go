//go:build lockorder

package lockorder

import (
	"fmt"
	"strings"
	"sync"
)

// Checked reports whether the order is checked in this build.
const Checked = true

// Mutex is a mutex with a place in the order. The zero value is unlocked. Lock and TryLock panic if the goroutine holds
// a mutex of a higher place, or of the same one (see Several). Unlock panics in a goroutine that has not locked it.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Lock checks the place before it waits, so that a deadlock is reported and not entered.
func (m *Mutex[R]) Lock() {
	h := ofGoroutine()
	h.check(rankOf[R]())
	m.mu.Lock()
	h.add(m, rankOf[R]())
}

// TryLock is checked too, though it cannot wait, since its caller would wait elsewhere.
func (m *Mutex[R]) TryLock() bool {
	h := ofGoroutine()
	h.check(rankOf[R]())
	locked := m.mu.TryLock()
	if locked {
		h.add(m, rankOf[R]())
	}
	return locked
}

func (m *Mutex[R]) Unlock() {
	ofGoroutine().remove(m, rankOf[R]())
	m.mu.Unlock()
}

type rank struct {
	place   int
	name    string
	several bool
}

func rankOf[R Rank]() rank {
	var r R
	place, name := r.Rank()
	_, several := any(r).(Several)
	return rank{place, name, several}
}

// held are the mutexes of one goroutine, in the order in which it locked them. That goroutine alone
// uses them, unseen by the race detector, since another goroutine may have them after it has ended.
type held struct {
	id  uintptr
	all []taken
}

type taken struct {
	mutex any
	rank  rank
}

//go:norace
func (h *held) check(next rank) {
	for _, t := range h.all {
		if t.rank.place > next.place || t.rank.place == next.place && !next.several {
			panic(fmt.Sprintf("lock order: %s (%d) is taken while %s are held", next.name, next.place, h))
		}
	}
}

//go:norace
func (h *held) add(mutex any, r rank) {
	if len(h.all) == 0 {
		h.keep()
	}
	h.all = append(h.all, taken{mutex, r})
}

//go:norace
func (h *held) remove(mutex any, r rank) {
	for i := len(h.all) - 1; i >= 0; i-- {
		if h.all[i].mutex != mutex {
			continue
		}
		h.all = append(h.all[:i], h.all[i+1:]...)
		if len(h.all) == 0 {
			h.drop()
		}
		return
	}
	panic(fmt.Sprintf("lock order: %s (%d) is unlocked by a goroutine that has not locked it", r.name, r.place))
}

//go:norace
func (h *held) String() string {
	var names []string
	for _, t := range h.all {
		names = append(names, fmt.Sprintf("%s (%d)", t.rank.name, t.rank.place))
	}
	return strings.Join(names, ", ")
}
