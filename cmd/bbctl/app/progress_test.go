package app

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		Figures
		passed time.Duration
		want   string
	}{
		{Figures{}, 0, "put: 0 files"},
		{Figures{Files: 1500}, 10 * time.Second, "put: 1500 files"}, // how many there are is not known
		{Figures{Files: 0, FilesTotal: 3, Bytes: 0, BytesTotal: 4096}, 10 * time.Second, "put: 0 of 3 files, 0 B of 4.0 KiB"},
		{Figures{Files: 1, FilesTotal: 3, Bytes: 2048, BytesTotal: 4096}, 20 * time.Second, "put: 1 of 3 files, 2.0 KiB of 4.0 KiB, 102 B/s, 20s left"},
		{Figures{Files: 3, FilesTotal: 3, Bytes: 4096, BytesTotal: 4096}, 4 * time.Second, "put: 3 of 3 files, 4.0 KiB of 4.0 KiB, 1.0 KiB/s"},
	} {
		if got := progressLine("put", c.Figures, c.passed); got != c.want {
			t.Errorf("%+v after %v: %q, want %q", c.Figures, c.passed, got, c.want)
		}
	}
}

func TestShowProgress(t *testing.T) {
	for _, c := range []struct {
		mode           string
		json, terminal bool
		bar, lines     bool
	}{
		{"auto", false, true, true, false},
		{"auto", false, false, false, false},
		{"always", false, true, true, false},
		{"always", false, false, false, true},
		{"always", true, false, false, false},
		{"never", false, true, false, false},
		{"never", false, false, false, false},
	} {
		if bar, lines := showProgress(c.mode, c.json, c.terminal); bar != c.bar || lines != c.lines {
			t.Errorf("%+v: bar %v, lines %v", c, bar, lines)
		}
	}
	for mode, want := range map[string]bool{"auto": true, "always": true, "never": true, "": false, "yes": false} {
		if err := checkProgress(mode); (err == nil) != want {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

// TestBarHasNoGoroutine: a bar that waits for its first figure longer than its spinner turns, and is never
// ended, leaves no goroutine. The bubble fails where one is left, and the race detector where one reads the bar.
func TestBarHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bar := newBar(io.Discard, "rm")
		time.Sleep(time.Second)
		if err := bar.Set64(1); err != nil {
			t.Error(err)
		}
	})
}
