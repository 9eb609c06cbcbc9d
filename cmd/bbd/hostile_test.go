package main

import (
	"os"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/hostiletest"
)

// TestHostileUser has one user attack a daemon of root's in all known ways while another writes,
// drains and compares: no byte is wrong, and the daemon goes on.
func TestHostileUser(t *testing.T) {
	if testing.Short() {
		t.Skip("daemon and users are processes of their own")
	}
	t.Parallel()
	const seed, rounds = 16, 2
	attackOnce(t, seed, rounds)
}

// attackOnce attacks a new daemon.
func attackOnce(t *testing.T, seed uint64, rounds int) {
	t.Helper()
	d := bbdtest.New(t, "--memory-region-size", "64MiB", "--limits-sessions", "64")
	if err := os.Chmod(d.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.Start()
	defer d.Stop()
	began := time.Now()
	attacker, victim := hostiletest.Run(t, d.Socket, seed, rounds)
	t.Logf("seed %d: %v in %v; the other user has written %d files", seed, attacker.Attacks, time.Since(began).Round(time.Millisecond), victim.Files)
	if attacker.Failed != "" {
		t.Errorf("seed %d: an attack could not be made: %s", seed, attacker.Failed)
	}
	if victim.Failed != "" || victim.Files == 0 {
		t.Errorf("seed %d: the other user: %s", seed, victim.Failed)
	}
	select {
	case <-d.Ended():
		t.Fatalf("seed %d: the daemon has ended\n%s", seed, d.Log())
	default:
	}
}
