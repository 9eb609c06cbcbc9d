// Package flow counts how fast bytes are flushed: a rate for people, and the pace that predicts
// when a queue will be empty. It is pure, and must never read a clock.
package flow

import (
	"math"
	"time"
)

// Rate is a flow with a decaying past.
type Rate struct {
	perSecond float64
	when      time.Time
}

const (
	rateMemory  = 10 * time.Second
	rateSilence = 3 * rateMemory // a store that accepted nothing for so long has no rate, as the rest of it means nothing
)

// At returns the rate, in bytes a second.
func (r *Rate) At(now time.Time) float64 {
	if r.when.IsZero() || now.Sub(r.when) > rateSilence {
		return 0
	}
	return r.perSecond * math.Exp(-now.Sub(r.when).Seconds()/rateMemory.Seconds())
}

// Add counts bytes that were flushed.
func (r *Rate) Add(now time.Time, bytes int64) {
	r.perSecond = r.At(now) + float64(bytes)/rateMemory.Seconds()
	r.when = now
}

// Pace is the progress of a queue in a spell in which it was never empty. The past counts
// less and less.
type Pace struct {
	since time.Time // when the spell began; zero: the queue is empty
	bytes int64
}

const (
	paceMemory = time.Minute
	paceLeast  = 5 * time.Second // the shortest spell with a pace
)

// Begin begins a spell, unless one is under way.
func (p *Pace) Begin(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
}

// End ends the spell. The queue is empty.
func (p *Pace) End() { *p = Pace{} }

// Add counts bytes that were flushed.
func (p *Pace) Add(now time.Time, bytes int64) {
	p.bytes += bytes
	if spell := now.Sub(p.since); spell > paceMemory {
		p.since, p.bytes = now.Add(-spell/2), p.bytes/2
	}
}

// At returns the pace, in bytes a second. As long as a large file may be on its way, a pace of zero so far
// proves nothing, unless attempts fail.
func (p *Pace) At(now time.Time, failing int) (perSecond float64, known bool) {
	spell := now.Sub(p.since)
	if p.since.IsZero() || spell < paceLeast || p.bytes == 0 && failing == 0 && spell < paceMemory {
		return 0, false
	}
	return float64(p.bytes) / spell.Seconds(), true
}
