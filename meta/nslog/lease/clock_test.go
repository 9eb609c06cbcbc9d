package lease

import (
	"testing"
	"time"
)

// A lease ends by the clock that went on.
func TestSince(t *testing.T) {
	t.Parallel()
	from := Now()
	after := func(monotonic, wall time.Duration) Moment {
		return Moment{from.monotonic.Add(monotonic), from.wall.Add(wall)}
	}
	for what, c := range map[string]struct{ monotonic, wall, want time.Duration }{
		"both went on":           {time.Second, time.Second, time.Second},
		"the machine slept":      {time.Second, time.Hour, time.Hour},
		"the clock was set back": {time.Second, -time.Hour, time.Second},
	} {
		if got := after(c.monotonic, c.wall).Since(from); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
