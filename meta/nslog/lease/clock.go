package lease

import "time"

// Moment is a time by two clocks. While a machine sleeps, its monotonic clock stands still, and its
// wall clock goes on.
type Moment struct{ monotonic, wall time.Time }

// Now returns the present moment.
func Now() Moment {
	t := time.Now()
	return Moment{t, t.Round(0)}
}

// Since returns how long ago an earlier moment was, by the clock that went on for longer. A wall
// clock that is set forward ends a lease early, which costs its holder a message.
func (m Moment) Since(earlier Moment) time.Duration {
	return max(m.monotonic.Sub(earlier.monotonic), m.wall.Sub(earlier.wall))
}
