package lustre

import "sync"

// On Lustre a write fails with ENOSPC when one of the file's targets is full, however much room the others have. The
// attempt after that asks for another layout, over twice as many targets, and so for other objects.

// FullTargets counts, by name, the attempts that met a full target. The zero value is ready for use; its methods
// may be called concurrently.
type FullTargets struct {
	mu    sync.Mutex
	tries map[string]int
}

const (
	maxFull  = 4096 // names remembered
	mostFull = 6    // so many doublings ask for all targets
)

// Note counts an attempt.
func (f *FullTargets) Note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil || len(f.tries) >= maxFull {
		f.tries = map[string]int{}
	}
	f.tries[name]++
}

// Forget is called when the name was written.
func (f *FullTargets) Forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tries, name)
}

// Count returns how many attempts there have been.
func (f *FullTargets) Count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries[name]
}

// Other returns the layout for an attempt after tries that met a full target. The zero layout is that of a file
// for which the table has none.
func (l Layout) Other(tries int) Layout {
	if l.Count == 0 {
		l = Layout{Count: 1}
	}
	if l.Count > 0 {
		l.Count <<= min(tries, mostFull)
	}
	if tries >= mostFull || l.Count > maxStripes {
		l.Count = -1
	}
	return l
}

const maxStripes = 2000 // LOV_MAX_STRIPE_COUNT
