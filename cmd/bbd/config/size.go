package config

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Size is a number of bytes, or a share of something in percent.
type Size struct {
	Bytes int64
	Share Percent // if not 0, of a whole that the field names
}

// Bytes returns a size of n bytes.
func Bytes(n int64) Size { return Size{Bytes: n} }

// Of returns the size in bytes where the whole has so many.
func (s Size) Of(whole int64) int64 {
	if s.Share == 0 {
		return s.Bytes
	}
	hi, lo := bits.Mul64(uint64(whole), uint64(s.Share))
	part, _ := bits.Div64(hi, lo, 100)
	return int64(part)
}

// units, the largest first. The binary ones come before the decimal ones that are
// no larger, so that String prefers them.
var units = []struct {
	name  string
	bytes int64
}{
	{"PiB", 1 << 50},
	{"PB", 1e15},
	{"TiB", 1 << 40},
	{"TB", 1e12},
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"KB", 1e3},
	{"B", 1},
}

// String writes the size so that ParseSize reads the same one.
func (s Size) String() string {
	if s.Share != 0 {
		return s.Share.String()
	}
	for _, u := range units {
		if s.Bytes != 0 && s.Bytes%u.bytes == 0 && u.name != "B" {
			return strconv.FormatInt(s.Bytes/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// ParseSize reads a size as people write it: 64GiB, 1.5TB, 25%, 4096. Units are
// binary (KiB, MiB, …; K, M, … for short) or decimal (KB, MB, …).
func ParseSize(text string) (Size, error) {
	if strings.HasSuffix(text, "%") {
		share, err := ParsePercent(text)
		return Size{Share: share}, err
	}
	number := strings.TrimRight(text, "KMGTPEiBkmgtpeb ")
	unit, err := unitBytes(strings.TrimSpace(text[len(number):]))
	if err != nil {
		return Size{}, fmt.Errorf("%w in %q", err, text)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/unit {
			return Size{}, fmt.Errorf("%q is out of range", text)
		}
		return Size{Bytes: n * unit}, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpPnN_") {
		return Size{}, fmt.Errorf("%q is not a size such as 64GiB", text)
	}
	if f *= float64(unit); f < 0 || f >= math.MaxInt64 {
		return Size{}, fmt.Errorf("%q is out of range", text)
	}
	return Size{Bytes: int64(f)}, nil
}

func unitBytes(name string) (int64, error) {
	if name == "" {
		return 1, nil
	}
	for _, u := range units {
		short := strings.TrimSuffix(u.name, "iB")
		if strings.EqualFold(name, u.name) || (short != u.name && strings.EqualFold(name, short)) {
			return u.bytes, nil
		}
	}
	return 0, fmt.Errorf("unknown unit %q", name)
}

// Percent is a share in percent.
type Percent int

// String writes the share with its sign.
func (p Percent) String() string { return strconv.Itoa(int(p)) + "%" }

// ParsePercent reads a whole number from 1% to 100%.
func ParsePercent(text string) (Percent, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || !strings.HasSuffix(text, "%") || n < 1 || n > 100 {
		return 0, fmt.Errorf("%q is not a share from 1%% to 100%%", text)
	}
	return Percent(n), nil
}
