//go:build soak

package main

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestHostileUserForLong is TestHostileUser with other seeds, over TCP and TLS in turn, for as long as
// FOREBAY_HOSTILE sets, a minute without it. FOREBAY_SEED is the first seed. A failure names its own.
func TestHostileUserForLong(t *testing.T) { withOwnMounts(t, testHostileUserForLong) }

func testHostileUserForLong(t *testing.T) {
	length, seed := time.Minute, uint64(1)
	if text := os.Getenv("FOREBAY_HOSTILE"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("FOREBAY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 3
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			attackOnce(t, seed, rounds, transport(seed%2))
		})
	}
}
