package startup

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSteps: a step is named after 2 s and every 10 s from then on, a shorter one never, and none
// after the end.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := New(slog.New(slog.NewTextHandler(&out, nil)), "short")
		lines := func() (n int) {
			synctest.Wait()
			return strings.Count(out.String(), "\n")
		}
		for range 4 {
			time.Sleep(1900 * time.Millisecond)
			s.At("other", nil)
			s.At("short", nil)
		}
		if n := lines(); n != 0 {
			t.Errorf("%d lines of short steps: %s", n, out.String())
		}
		at := "first"
		s.At("long", func() string { return at })
		time.Sleep(2100 * time.Millisecond)
		if n := lines(); n != 1 || !strings.Contains(out.String(), "for=long") || !strings.Contains(out.String(), "detail=first") {
			t.Errorf("after 2 s: %s", out.String())
		}
		s.At("long", func() string { return "second" }) // which continues
		time.Sleep(20 * time.Second)
		if n := lines(); n != 3 || !strings.Contains(out.String(), "detail=second") {
			t.Errorf("after 22 s: %s", out.String())
		}
		s.End()
		s.End()
		time.Sleep(time.Minute)
		if n := lines(); n != 3 {
			t.Errorf("after the end: %s", out.String())
		}
		(*Steps)(nil).At("nothing", nil)
		(*Steps)(nil).End()
	})
}
