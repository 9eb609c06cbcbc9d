package admin

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// FuzzReadLines cuts receipts at lines and loses nothing.
func FuzzReadLines(f *testing.F) {
	f.Add("a\nbb\nccc", 4)
	f.Add("\n\n\n", 1)
	f.Add(strings.Repeat("x", 100)+"\n", 50)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + limit&0xffff
		in := bufio.NewReaderSize(strings.NewReader(text), 16)
		var got []byte
		for {
			lines, err := readLines(in, limit)
			if err != nil {
				return // a line that is too long
			}
			if len(lines) == 0 {
				break
			}
			if len(lines) > limit {
				t.Fatalf("%d bytes at once, at most %d are allowed", len(lines), limit)
			}
			got = append(got, lines...)
		}
		if rest, _ := io.ReadAll(in); string(got)+string(rest) != text {
			t.Errorf("read %q of %q", got, text)
		} else if len(rest) > 0 && len(rest) <= limit && !strings.Contains(text, "\n") {
			t.Errorf("%d bytes are left", len(rest))
		}
	})
}
