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
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
	"forebay/internal/hostiletest"
)

// TestHostileUser has one user attack a daemon of root's in all known ways while another writes,
// drains and compares. No byte is wrong, no attack succeeds, and the daemon starts and ends on
// request. TestAttacksBite shows that each attack succeeds against a daemon without its guard.
//
// Two things are tested elsewhere. Bad input for gossip, the fabric and the namespace's servers comes from other hosts:
// TestManyBadInputs. A daemon that hangs up on bbctl is no attack, since no user can make another's daemon do that. The
// exit code is at stake: TestDaemonHangsUp in cmd/bbctl.
func TestHostileUser(t *testing.T) { withOwnMounts(t, testHostileUser) }

func testHostileUser(t *testing.T) {
	attacked := map[string]int{}
	for _, over := range []transport{overTCP, overTLS} {
		t.Run(over.String(), func(t *testing.T) {
			for kind, n := range attackOnce(t, 16, 1, over) {
				attacked[kind] += n
			}
		})
	}
	for _, kind := range hostiletest.Kinds() {
		if attacked[kind] == 0 {
			t.Errorf("%s: no such attack found anything to attack", kind)
		}
	}
}

// hostileDaemon has a memory tier whose file system has room for its regions and journals, and for
// little more. It has few of all resources that users share, TCP, and credentials that no user may
// use.
const hostileDaemon = `
key_file: {{.Dir}}/key
listen: {tcp: "%s", admin: "127.0.0.1:0"}
memory: {size: %dMiB, region_size: 64MiB}
`

// hostileLimits are the users' shares of it.
var hostileLimits = fmt.Sprintf("limits: {sessions: 64, unproven: 32, open_files: %d, request_memory: %d, waiters: 2000}\n",
	hostiletest.MaxOpenFiles, hostiletest.MaxRequestMemory)

// Sizes in MiB of the memory tier and of its file system, which journals take some of, too.
const (
	hostileMemory = 512
	hostileShm    = 560
)

// transport is the transport of a daemon's TCP sessions.
type transport int

const (
	overTCP transport = iota
	overTLS
)

func (over transport) String() string { return [...]string{"TCP", "TLS"}[over] }

// certify gives a daemon a certificate for TLS, and returns its clients' configuration.
func certify(t testing.TB, d *bbdtest.Daemon) (client clustercert.Files) {
	t.Helper()
	authority, pair, err := clustercert.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		t.Helper()
		file := filepath.Join(d.Dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := write("ca.pem", pair.Cert)
	issue := func(role clustercert.Role, name string) clustercert.Files {
		t.Helper()
		pair, err := authority.Issue(role, nil, time.Now(), 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return clustercert.Files{CA: ca, Cert: write(name+".pem", pair.Cert), Key: write(name+".key", pair.Key)}
	}
	issue(clustercert.Daemon, "daemon")
	d.Config += "tls: {ca: {{.Dir}}/ca.pem, cert: {{.Dir}}/daemon.pem, key: {{.Dir}}/daemon.key}\n"
	return issue(clustercert.Client, "client")
}

// startHostile starts a daemon to be attacked, and returns its address for TCP and the clients' configuration for
// TLS there.
func startHostile(t testing.TB, d *bbdtest.Daemon, limits string, over transport) (tcp string, files clustercert.Files) {
	t.Helper()
	tcp = bbdtest.FreePort(t, "127.0.0.1")
	d.Config = fmt.Sprintf(hostileDaemon, tcp, hostileMemory) + limits
	if over == overTLS {
		files = certify(t, d)
	}
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
	return tcp, files
}

// attackOnce attacks a new daemon, and returns how often in which way.
func attackOnce(t *testing.T, seed uint64, rounds int, over transport) map[string]int {
	t.Helper()
	return attack(t, bbdtest.New(t), hostileLimits, over, hostiletest.Options{Seed: seed, Rounds: rounds})
}

// attack starts a daemon and attacks it.
func attack(t testing.TB, d *bbdtest.Daemon, limits string, over transport, o hostiletest.Options) map[string]int {
	t.Helper()
	tcp, files := startHostile(t, d, limits, over)
	seed := o.Seed
	began, restarts := time.Now(), 0
	alive := func() {
		t.Helper()
		select {
		case <-d.Ended():
			t.Fatalf("seed %d: the daemon has ended\n%s", seed, d.Log())
		default:
		}
	}
	o.Socket, o.TCP, o.TLS, o.Alive = d.Socket, tcp, files, alive
	o.Restart = func(kill bool) {
		if restarts++; kill {
			d.Kill()
		} else {
			d.Stop()
		}
		d.Start()
	}
	o.Stuck = func() {
		t.Helper()
		syscall.Kill(d.Pid(), syscall.SIGQUIT)
		<-d.Ended()
		_, goroutines, _ := strings.Cut(d.Log(), "SIGQUIT: quit")
		t.Fatalf("seed %d: the other user cannot work; the daemon's goroutines:%s", seed, goroutines)
	}
	attacker, victim := hostiletest.Run(t, o)
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
