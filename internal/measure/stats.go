// Package measure has figures: samples of one quantity, their median, and their text for people. It
// must never depend on the measurement.
package measure

import (
	"math"
	"slices"
	"time"
)

// Unit is the unit of a figure. Rates are better when larger, all others when smaller.
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

// LargerIsBetter reports the direction of a unit.
func (u Unit) LargerIsBetter() bool { return u == BytesPerSecond || u == PerSecond || u == Times }

// Figure is one quantity, from Samples measurements of it.
type Figure struct {
	What    string  `json:"what"`
	Unit    Unit    `json:"unit"`
	Value   float64 `json:"value"`         // the median, unless What names another; ratios are computed from it
	Best    float64 `json:"best"`          // of the samples
	P99     float64 `json:"p99,omitempty"` // where there are enough samples for it
	Samples int     `json:"samples"`
}

// p99From is the number of samples from which on a 99th percentile is not just the worst one.
const p99From = 100

// Of makes a figure of its samples, of which there must be one.
func Of(what string, unit Unit, samples []float64) *Figure {
	sorted := Sorted(samples)
	f := &Figure{What: what, Unit: unit, Value: Quantile(sorted, 0.5), Best: sorted[0], Samples: len(sorted)}
	if unit.LargerIsBetter() {
		f.Best = sorted[len(sorted)-1]
	} else if len(sorted) >= p99From {
		f.P99 = Quantile(sorted, 0.99)
	}
	return f
}

// Quantile returns the q-quantile of sorted samples, interpolated linearly between
// neighbours (type 7 of Hyndman and Fan, The American Statistician 50 (1996)).
func Quantile(sorted []float64, q float64) float64 {
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

// Ratio returns result / limit, nil where there is none.
func Ratio(result, limit *Figure) *float64 {
	if result == nil || limit == nil || result.Unit != limit.Unit || limit.Value == 0 {
		return nil
	}
	r := result.Value / limit.Value
	return &r
}

// Rate returns n things in a time.
func Rate[N int | int64](n N, took time.Duration) float64 {
	return float64(n) / max(took, time.Nanosecond).Seconds()
}

// InSeconds converts times.
func InSeconds(times []time.Duration) []float64 {
	s := make([]float64, len(times))
	for i, t := range times {
		s[i] = t.Seconds()
	}
	return s
}

// Sorted returns the samples in order. The caller keeps its own.
func Sorted(samples []float64) []float64 { return slices.Sorted(slices.Values(samples)) }
