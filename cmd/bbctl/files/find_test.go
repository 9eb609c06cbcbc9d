package files

import (
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/bb"
)

func TestSought(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	file := client.Entry{Name: "Step-7.pt", Path: "run/Step-7.pt", Type: bb.TypeFile, Size: 100, State: client.StateDirty, ModTime: now.Add(-time.Hour)}
	dir := client.Entry{Name: "run", Path: "run", Type: bb.TypeDirectory, ModTime: now.Add(-time.Hour)}
	any := sought{over: -1, under: -1}
	with := func(change func(*sought)) sought { q := any; change(&q); return q }
	for name, test := range map[string]struct {
		q         sought
		file, dir bool
	}{
		"anything":          {any, true, true},
		"name":              {with(func(q *sought) { q.names = []string{"x", "Step-*"} }), true, false},
		"case of names":     {with(func(q *sought) { q.names = []string{"step-*"} }), false, false},
		"case ignored":      {with(func(q *sought) { q.names, q.fold = []string{"step-*.PT"}, true }), true, false},
		"path":              {with(func(q *sought) { q.paths = []string{"run/*"} }), true, false},
		"not across a name": {with(func(q *sought) { q.paths = []string{"*"} }), false, true},
		"across names":      {with(func(q *sought) { q.paths = []string{"**"} }), true, true},
		"files":             {with(func(q *sought) { q.kind = "f" }), true, false},
		"directories":       {with(func(q *sought) { q.kind = "d" }), false, true},
		"state":             {with(func(q *sought) { q.states = []string{"lost", "dirty"} }), true, false},
		"another state":     {with(func(q *sought) { q.states = []string{"clean"} }), false, false},
		"over":              {with(func(q *sought) { q.over = 99 }), true, false},
		"not over":          {with(func(q *sought) { q.over = 100 }), false, false},
		"under":             {with(func(q *sought) { q.under = 101 }), true, false},
		"not under":         {with(func(q *sought) { q.under = 100 }), false, false},
		"newer":             {with(func(q *sought) { q.newer = now.Add(-2 * time.Hour) }), true, true},
		"not newer":         {with(func(q *sought) { q.newer = now.Add(-time.Hour) }), false, false},
		"older":             {with(func(q *sought) { q.older = now }), true, true},
		"not older":         {with(func(q *sought) { q.older = now.Add(-time.Hour) }), false, false},
	} {
		if got := test.q.has(&file, file.Path); got != test.file {
			t.Errorf("%s: the file: %v", name, got)
		}
		if got := test.q.has(&dir, dir.Path); got != test.dir {
			t.Errorf("%s: the directory: %v", name, got)
		}
	}
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "7d": now.AddDate(0, 0, -7), "0.5d": now.Add(-12 * time.Hour),
		"2026-11-01T00:00:00Z": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := parseTime("--newer", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"-1h", "soon", "d", "7", "yesterday"} {
		if got, err := parseTime("--newer", text, now); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}
