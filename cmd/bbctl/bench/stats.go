package bench

import (
	"math"
	"slices"
	"time"
)

// Unit is what a figure counts. Rates are better when larger, all others when smaller.
type Unit string

// The units.
const (
	BytesPerSecond Unit = "B/s"
	PerSecond      Unit = "1/s"
	Seconds        Unit = "s"
	CPUPerGiB      Unit = "CPU s/GiB" // processor seconds of all processes together
	Times          Unit = "×"
	Bytes          Unit = "B"
)

// largerIsBetter reports the direction of a unit.
func (u Unit) largerIsBetter() bool { return u == BytesPerSecond || u == PerSecond || u == Times }

// Figure is one quantity, from Samples measurements of it.
type Figure struct {
	What    string  `json:"what"`
	Unit    Unit    `json:"unit"`
	Value   float64 `json:"value"`         // the median, unless What says otherwise: ratios are made of it
	Best    float64 `json:"best"`          // of the samples
	P99     float64 `json:"p99,omitempty"` // where there are enough samples to speak of it
	Samples int     `json:"samples"`
}

// p99From is the number of samples from which on a 99th percentile is not just the worst one.
const p99From = 100

// figure makes a figure of its samples, of which there must be one.
func figure(what string, unit Unit, samples []float64) *Figure {
	sorted := sortedCopy(samples)
	f := &Figure{What: what, Unit: unit, Value: quantile(sorted, 0.5), Best: sorted[0], Samples: len(sorted)}
	if unit.largerIsBetter() {
		f.Best = sorted[len(sorted)-1]
	} else if len(sorted) >= p99From {
		f.P99 = quantile(sorted, 0.99)
	}
	return f
}

// quantile returns the q-quantile of sorted samples, interpolated linearly between
// neighbours (type 7 of Hyndman and Fan, The American Statistician 50 (1996)).
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Goal is what a row is to reach: a bound on the ratio of result to limit, or on the
// result itself. The zero value is a figure that is published and has no bound.
type Goal struct {
	Text     string  `json:"text"`
	Bound    float64 `json:"bound,omitempty"`
	Absolute bool    `json:"absolute,omitempty"` // the bound is one of the result, in its unit
}

// atLeast and atMost are bounds on the ratio; the unit says which of them one is.
func ratioGoal(text string, bound float64) Goal { return Goal{Text: text, Bound: bound} }

// met says whether a goal is reached; it is nil where there is nothing to reach or no figure.
func (g Goal) met(result *Figure, ratio *float64) *bool {
	if g.Bound == 0 || result == nil || !g.Absolute && ratio == nil {
		return nil
	}
	value := result.Value
	if !g.Absolute {
		value = *ratio
	}
	ok := value <= g.Bound
	if result.Unit.largerIsBetter() {
		ok = value >= g.Bound
	}
	return &ok
}

// ratio returns result / limit, nil where there is none.
func ratio(result, limit *Figure) *float64 {
	if result == nil || limit == nil || result.Unit != limit.Unit || limit.Value == 0 {
		return nil
	}
	r := result.Value / limit.Value
	return &r
}

// rate returns n things in a time.
func rate[N int | int64](n N, took time.Duration) float64 {
	return float64(n) / max(took, time.Nanosecond).Seconds()
}

// seconds converts times.
func seconds(times []time.Duration) []float64 {
	s := make([]float64, len(times))
	for i, t := range times {
		s[i] = t.Seconds()
	}
	return s
}

func sortedCopy(samples []float64) []float64 { return slices.Sorted(slices.Values(samples)) }
