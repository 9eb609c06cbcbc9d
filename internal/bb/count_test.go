package bb

import "testing"

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 files":        Count(0, "file"),
		"1 file":         Count(int64(1), "file"),
		"2 files":        Count(2, "file"),
		"1 entry":        Count(uint64(1), "entry", "entries"),
		"7 entries":      Count(7, "entry", "entries"),
		"1 flush waits":  Count(1, "flush waits", "flushes wait"),
		"3 flushes wait": Count(3, "flush waits", "flushes wait"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
