package bbdtest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"forebay/internal/netnstest"
)

const small = `
listen: {admin: "127.0.0.1:0"}
memory: {size: 128MiB, region_size: 64MiB}
`

var stamp = regexp.MustCompile(`time=(\S+)`)

// The whole process has the wrong time, and the machine does not.
func TestClock(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a standard library of its own, and everything on it")
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		d := New(t)
		d.Config, d.Clock = small, ahead
		d.Start()
		line := stamp.FindStringSubmatch(d.Log())
		if line == nil {
			t.Fatalf("the log tells no time:\n%s", d.Log())
		}
		said, err := time.Parse(time.RFC3339Nano, line[1])
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(said) - ahead; off > time.Minute || off < -time.Minute {
			t.Errorf("a clock that is %v ahead says %v at %v", ahead, said, time.Now())
		}
	}
}

// Two daemons with the same addresses, each on a host of its own.
func TestOnHosts(t *testing.T) {
	hosts := netnstest.New(t, 2).Hosts
	const config = `
listen: {tcp: "{{.Host.Addr}}:7481", admin: "127.0.0.1:7480"}
insecure: true
memory: {size: 128MiB, region_size: 64MiB}
`
	a, b := On(t, hosts[0], config), On(t, hosts[1], config)
	StartAll(t, a, b)
	for i, h := range hosts {
		conn, err := hosts[1-i].DialContext(t.Context(), "tcp", h.Addr.String()+":7481")
		if err != nil {
			t.Errorf("the daemon of %s: %v", h.Name, err)
			continue
		}
		conn.Close()
	}
	a.Stop()
	b.Kill()
}

func TestTryStartSaysWhy(t *testing.T) {
	d := New(t)
	d.Config = "memory: {size: {{.Nothing}}}"
	if err := d.TryStart(); err == nil || !strings.Contains(err.Error(), "Nothing") {
		t.Errorf("a template with an error: %v", err)
	}
	d.Config = "unknown: 1"
	if err := d.TryStart(); err == nil || !strings.Contains(err.Error(), "ended at its start") || !strings.Contains(d.Log(), "unknown") {
		t.Errorf("a configuration with an error: %v\n%s", err, d.Log())
	}
}

func TestRaceIsFound(t *testing.T) {
	const (
		found = "WARNING: DATA RACE\nRead at 0x01 by goroutine 7"
		log   = "level=INFO msg=serves\n==================\n" + found + "\n==================\nlevel=INFO msg=ends\n"
	)
	if got := race(log); got != found {
		t.Errorf("race: got %q, want %q", got, found)
	}
	if got := race("level=INFO msg=serves\n"); got != "" {
		t.Errorf("no race: got %q", got)
	}
}
