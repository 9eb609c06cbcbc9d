package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
	"forebay/internal/hostiletest"
)

// TestHostileUser has one user attack a daemon of root's in all known ways while another writes,
// drains and compares: no byte is wrong, no attack succeeds, and the daemon starts when it is asked
// to and ends when it is asked to.
func TestHostileUser(t *testing.T) { withOwnMounts(t, testHostileUser) }

func testHostileUser(t *testing.T) {
	attacked := attackOnce(t, 16, 1)
	for _, kind := range hostiletest.Kinds() {
		if attacked[kind] == 0 {
			t.Errorf("%s: no such attack found anything to attack", kind)
		}
	}
}

// hostileDaemon has a memory tier whose file system has room for its regions and journals, and
// for little more; few of all that users share; TCP; and credentials that no user may use.
const hostileDaemon = `
key_file: {{.Dir}}/key
listen: {tcp: "%s", admin: "127.0.0.1:0"}
memory: {size: %dMiB, region_size: 64MiB}
limits: {sessions: 64, unproven: 32, open_files: 4000, request_memory: 16MiB, waiters: 2000}
`

// Sizes in MiB of the memory tier and of its file system, which journals take some of, too.
const (
	hostileMemory = 512
	hostileShm    = 560
)

// startHostile starts a daemon to be attacked.
func startHostile(t *testing.T) (d *bbdtest.Daemon, tcp string) {
	t.Helper()
	d, tcp = bbdtest.New(t), bbdtest.FreePort(t, "127.0.0.1")
	d.Config = fmt.Sprintf(hostileDaemon, tcp, hostileMemory)
	d.Env = []string{"AWS_ACCESS_KEY_ID=SITE", "AWS_SECRET_ACCESS_KEY=SECRET", "AWS_SESSION_TOKEN=TOKEN"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(d.Dir, "key"), clusterkey.New(), 0o600))
	must(os.Chmod(d.Dir, 0o755))
	must(os.MkdirAll(d.Memory, 0o700))
	mount(t, "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm,mode=755", hostileShm), "shm", d.Memory)
	d.Start()
	return d, tcp
}

// attackOnce attacks a new daemon, and returns how often in which way.
func attackOnce(t *testing.T, seed uint64, rounds int) map[string]int {
	t.Helper()
	d, tcp := startHostile(t)
	began, restarts := time.Now(), 0
	alive := func() {
		t.Helper()
		select {
		case <-d.Ended():
			t.Fatalf("seed %d: the daemon has ended\n%s", seed, d.Log())
		default:
		}
	}
	attacker, victim := hostiletest.Run(t, hostiletest.Options{
		Socket: d.Socket, TCP: tcp, Seed: seed, Rounds: rounds, Alive: alive,
		Restart: func(kill bool) {
			if restarts++; kill {
				d.Kill()
			} else {
				d.Stop()
			}
			d.Start()
		},
		Stuck: func() {
			t.Helper()
			syscall.Kill(d.Pid(), syscall.SIGQUIT)
			<-d.Ended()
			_, goroutines, _ := strings.Cut(d.Log(), "SIGQUIT: quit")
			t.Fatalf("seed %d: the other user cannot work; the daemon's goroutines:%s", seed, goroutines)
		},
	})
	alive()
	t.Logf("seed %d: %d restarts in %v; the other user has written %d files in %d rounds, and had %d sessions over TCP",
		seed, restarts, time.Since(began).Round(time.Millisecond), victim.Files, victim.Rounds, victim.Tokens)
	for _, name := range slices.Sorted(maps.Keys(attacker.Took)) {
		t.Logf("%-24s %d, in %v; %d without effect %s", name, attacker.Attacks[name], attacker.Took[name].Round(time.Millisecond), attacker.Void[name], attacker.Why[name])
	}
	t.Logf("seed %d: %q", seed, attacker.Order)
	if attacker.Failed != "" {
		t.Errorf("seed %d: an attack succeeded, or could not be made: %s", seed, attacker.Failed)
	}
	if victim.Failed != "" || victim.Files == 0 || victim.Tokens == 0 {
		t.Errorf("seed %d: the other user, after %d sessions over TCP: %s", seed, victim.Tokens, victim.Failed)
	}
	d.Stop()
	return attacker.Attacks
}
