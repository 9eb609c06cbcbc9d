package measure

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted []float64
		q      float64
		want   float64
	}{
		{[]float64{3}, 0.99, 3},
		{[]float64{1, 2}, 0.5, 1.5},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0, 1},
		{[]float64{1, 2, 3, 4}, 1, 4},
		{[]float64{0, 10}, 0.25, 2.5},
	} {
		if got := Quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.sorted, c.q, got, c.want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing = %v", got)
	}
}

func TestFigure(t *testing.T) {
	samples := []float64{5, 1, 3}
	speed := Of("speed", BytesPerSecond, samples)
	if speed.Value != 3 || speed.Best != 5 || speed.P99 != 0 || speed.Samples != 3 {
		t.Errorf("rate: %+v", speed)
	}
	if samples[0] != 5 {
		t.Error("figure sorted its caller's samples")
	}
	many := make([]float64, 200)
	for i := range many {
		many[i] = float64(i)
	}
	times := Of("time", Seconds, many)
	if times.Best != 0 || times.Value != 99.5 || math.Abs(times.P99-197.01) > 1e-9 {
		t.Errorf("time: %+v", times)
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		v    float64
		u    Unit
		want string
	}{
		{11.93e9, BytesPerSecond, "11.9 GB/s"},
		{999.96e6, BytesPerSecond, "1.00 GB/s"},
		{1 << 30, Bytes, "1.00 GiB"},
		{52_340, PerSecond, "52.3 thousand/s"},
		{8.214e-6, Seconds, "8.21 µs"},
		{1.5, Seconds, "1.50 s"},
		{140, Seconds, "140 s"},
		{2e-9, Seconds, "2.00 ns"},
		{0, Seconds, "0.00 ns"},
		{0.2e-9, Seconds, "0.200 ns"},
		{0.0912, CPUPerGiB, "0.091 CPU s/GiB"},
		{5.5, Times, "5.50 ×"},
	} {
		if got := Quantity(c.v, c.u); got != c.want {
			t.Errorf("quantity(%v, %s) = %q, want %q", c.v, c.u, got, c.want)
		}
	}
}

func TestRate(t *testing.T) {
	if got := Rate(int64(100), 2*time.Second); got != 50 {
		t.Errorf("rate = %v", got)
	}
	if got := Rate(1, 0); math.IsInf(got, 0) {
		t.Error("the rate of something that took no time is infinite")
	}
}
