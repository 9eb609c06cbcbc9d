package hostlimit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"forebay/internal/checksum"
	"forebay/internal/measure"
)

func TestPass(t *testing.T) {
	src := make([]byte, 3*Step+5)
	Fill(src)
	dst := make([]byte, Step+100) // shorter; written over and over
	want := checksum.Sum(src)
	for _, w := range Ways {
		whole := make([]byte, len(src))
		_, short := w.Pass(dst, src)
		_, long := w.Pass(whole, src)
		if short != want || long != want || !bytes.Equal(whole, src) {
			t.Errorf("%s: a pass does not copy and sum everything", w.name)
		}
	}
}

func TestLimits(t *testing.T) {
	l := Limits{{1, 2, 3}, {4, 5, 6}}
	if f := l.Best("x", measure.BytesPerSecond); f.Value != 5 || f.What != "x, "+Ways[1].name {
		t.Errorf("the best rate: %+v", f)
	}
	if f := l.Best("x", measure.CPUPerGiB); f.Value != 2 || f.What != "x, "+Ways[0].name {
		t.Errorf("the best time: %+v", f)
	}
}

func TestDirectWrite(t *testing.T) {
	dir := t.TempDir()
	if _, err := DirectWrite(t.Context(), dir, 4*Step, 3); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "limit"))
	if err != nil || info.Size() != 4*Step {
		t.Errorf("%v, %v", info, err)
	}
}

func TestRoundTrips(t *testing.T) {
	times, err := RoundTrips(100)
	if err != nil || len(times) != 100 || slices.Min(times) <= 0 {
		t.Errorf("%v, %v", times, err)
	}
}
