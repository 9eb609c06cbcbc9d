package measure

import (
	"fmt"
	"math"
)

// Quantity writes a value with three digits that count, in a unit that people read.
func Quantity(v float64, u Unit) string {
	switch u {
	case BytesPerSecond:
		return scaled(v, 1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s")
	case Bytes:
		return scaled(v, 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case PerSecond:
		return scaled(v, 1000, "/s", "thousand/s", "million/s")
	case Seconds:
		return scaled(v*1e9, 1000, "ns", "µs", "ms", "s")
	case Times:
		return Digits(v) + " ×"
	default:
		return Digits(v) + " " + string(u)
	}
}

func scaled(v, step float64, units ...string) string {
	i := 0
	for math.Abs(v) >= step*0.9995 && i < len(units)-1 {
		v /= step
		i++
	}
	return Digits(v) + " " + units[i]
}

// Digits writes a value with three digits that count.
func Digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.9995 || a == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}
