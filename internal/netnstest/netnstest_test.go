package netnstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silence is how long nothing must arrive to count as lost.
const silence = 500 * time.Millisecond

// echo serves an echo on a host until the test ends, and returns its address.
func echo(t *testing.T, h *Host) string {
	t.Helper()
	l, err := h.Listen("tcp", fmt.Sprintf("%v:0", h.Addr))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

func connect(t *testing.T, h *Host, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := h.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("from %s to %s: %v", h.Name, address, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// said sends a message and waits for its echo.
func said(conn net.Conn, word string, within time.Duration) error {
	conn.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(conn, word); err != nil {
		return err
	}
	return heard(conn, word, within)
}

func heard(conn net.Conn, word string, within time.Duration) error {
	conn.SetDeadline(time.Now().Add(within))
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("%q came back as %q", word, got)
	}
	return nil
}

func TestHostsReachEachOther(t *testing.T) {
	c := New(t, 4)
	for _, to := range c.Hosts {
		address := echo(t, to)
		for _, from := range c.Hosts {
			if err := said(connect(t, from, address), "hello", 10*time.Second); err != nil {
				t.Errorf("%s to %s: %v", from.Name, to.Name, err)
			}
		}
	}
	if conn, err := net.DialTimeout("tcp", echo(t, c.Hosts[0]), silence); err == nil {
		conn.Close()
		t.Error("a host can be reached from outside of its cluster")
	}
}

func TestClustersDoNotMeet(t *testing.T) {
	a, b := New(t, 3), New(t, 2) // with the same addresses, but for the third
	if err := said(connect(t, a.Hosts[1], echo(t, a.Hosts[0])), "a", 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := said(connect(t, b.Hosts[1], echo(t, b.Hosts[0])), "b", 10*time.Second); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	if conn, err := b.Hosts[1].DialContext(ctx, "tcp", echo(t, a.Hosts[2])); err == nil {
		conn.Close()
		t.Error("two clusters meet")
	}
}

// A cut loses frames, on an established connection too, and rejects nothing. Lost bytes arrive once
// it is healed.
func TestPartitionDropsSilently(t *testing.T) {
	c := New(t, 4)
	n1, n2, n3, n4 := c.Hosts[0], c.Hosts[1], c.Hosts[2], c.Hosts[3]
	address := echo(t, n1)
	across, within := connect(t, n3, address), connect(t, n2, address)
	if err := errors.Join(said(across, "before", 10*time.Second), said(within, "before", 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	c.Partition([]*Host{n1, n2}, []*Host{n3, n4})
	if err := said(across, "during", silence); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an established connection across a partition: %v, not silence", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*silence)
	defer cancel()
	var timeout net.Error
	if _, err := n4.DialContext(ctx, "tcp", address); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a new connection across a partition: %v, not silence", err)
	}
	if err := said(within, "within", 10*time.Second); err != nil {
		t.Errorf("within a group: %v", err)
	}
	c.Heal()
	if err := heard(across, "during", 30*time.Second); err != nil {
		t.Errorf("after healing: %v", err)
	}
	if err := said(connect(t, n4, address), "again", 10*time.Second); err != nil {
		t.Error(err)
	}
}

func TestHostsOfNoGroupMakeOne(t *testing.T) {
	c := New(t, 3)
	c.Partition(c.Hosts[:1])
	if err := said(connect(t, c.Hosts[1], echo(t, c.Hosts[2])), "together", 10*time.Second); err != nil {
		t.Error(err)
	}
	if reaches(t, c.Hosts[1], c.Hosts[0]) {
		t.Error("a host in no group reaches one in a group")
	}
}

func TestIsolateAndRejoin(t *testing.T) {
	c := New(t, 3)
	c.Hosts[0].Isolate()
	for _, h := range c.Hosts[1:] {
		if reaches(t, h, c.Hosts[0]) || reaches(t, c.Hosts[0], h) {
			t.Errorf("%s and the isolated host reach each other", h.Name)
		}
	}
	if !reaches(t, c.Hosts[1], c.Hosts[2]) || !reaches(t, c.Hosts[0], c.Hosts[0]) {
		t.Error("isolating a host cut off others, or itself from itself")
	}
	c.Hosts[0].Rejoin()
	if !reaches(t, c.Hosts[1], c.Hosts[0]) || !reaches(t, c.Hosts[0], c.Hosts[1]) {
		t.Error("a host that rejoined is not reached")
	}
}

// Cut is one way, and datagrams show each way by itself.
func TestCutIsOneWay(t *testing.T) {
	c := New(t, 2)
	a, b := datagrams(t, c.Hosts[0]), datagrams(t, c.Hosts[1])
	c.Cut(c.Hosts[0], c.Hosts[1])
	if arrives(t, a, b) {
		t.Error("a datagram arrives through a cut")
	}
	if !arrives(t, b, a) {
		t.Error("a datagram the other way is lost")
	}
}

func datagrams(t *testing.T, h *Host) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	if err := h.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", fmt.Sprintf("%v:0", h.Addr))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func arrives(t *testing.T, from, to net.PacketConn) bool {
	t.Helper()
	if _, err := from.WriteTo([]byte("word"), to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	to.SetReadDeadline(time.Now().Add(silence))
	n, _, err := to.ReadFrom(make([]byte, 10))
	return err == nil && n == 4
}

// reaches reports whether a connection is made at all.
func reaches(t *testing.T, from, to *Host) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", echo(t, to))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func TestCommandRunsOnItsHost(t *testing.T) {
	c := New(t, 2)
	for _, h := range c.Hosts {
		out, err := h.Command("ip", "-brief", "address", "show", "dev", "eth0").CombinedOutput()
		if err != nil || !strings.Contains(string(out), h.Addr.String()+"/24") {
			t.Errorf("%s: %v: %s", h.Name, err, out)
		}
	}
	cmd := c.Hosts[0].Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for comm := ""; comm != "sleep\n" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		comm = string(text)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process with the id of the command is not the command: %v", cmd.ProcessState)
	}
}

// A process runs until the test process ends, and not only as long as the thread that started it,
// which Do may use later.
func TestCommandOutlivesThreads(t *testing.T) {
	c := New(t, 1)
	cmd := c.Hosts[0].Command("sleep", "60")
	// One goroutine does both, so that it is, in all likelihood, one thread.
	started := make(chan error)
	go func() {
		err := cmd.Start()
		for range 100 {
			err = errors.Join(err, c.Hosts[0].Do(func() error { return nil }))
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if state := processState(t, cmd.Process.Pid); state == "Z" {
		t.Error("the process was killed")
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// processState is the state of proc_pid_stat(5): Z is dead, and not waited for.
func processState(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

func TestNetem(t *testing.T) {
	c := New(t, 2)
	slow, other := c.Hosts[0], c.Hosts[1]
	testLinks(t, slow, other, slow.Netem, slow.ClearNetem)
}

// The wire is tested where the kernel has netem, too.
func TestWire(t *testing.T) {
	c := New(t, 2)
	slow, other := c.Hosts[0], c.Hosts[1]
	set := func(spec string) {
		t.Helper()
		slow.ClearNetem()
		l, err := parseLink(spec)
		if err == nil {
			slow.wire, err = newWire(slow, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	testLinks(t, slow, other, set, slow.ClearNetem)
}

// testLinks checks lower bounds of time alone. A busy machine makes links slower.
func testLinks(t *testing.T, slow, other *Host, set func(string), reset func()) {
	t.Helper()
	in, out := connect(t, other, echo(t, slow)), connect(t, slow, echo(t, other))
	turn := func(conn net.Conn, words string) time.Duration {
		t.Helper()
		began := time.Now()
		errs := make(chan error, 1)
		go func() {
			_, err := io.WriteString(conn, words)
			errs <- err
		}()
		if err := errors.Join(heard(conn, words, 60*time.Second), <-errs); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	for _, conn := range []net.Conn{in, out} {
		set("delay 50ms")
		if d := turn(conn, "delayed"); d < 100*time.Millisecond {
			t.Errorf("there and back in %v, with 50 ms each way", d)
		}
		set("rate 8mbit")
		if d := turn(conn, strings.Repeat("x", 1<<20)); d < time.Second {
			t.Errorf("1 MiB at 8 Mbit/s took %v", d)
		}
		set("loss 5% delay 1ms")
		turn(conn, strings.Repeat("y", 100<<10)) // TCP makes up for it
		reset()
		if d := turn(conn, "good"); d > time.Second {
			t.Errorf("a good link needs %v", d)
		}
	}
	set("loss 100%")
	if err := said(in, "lost", silence); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("over a link that loses everything: %v", err)
	}
	reset()
	if err := heard(in, "lost", 30*time.Second); err != nil {
		t.Errorf("after the link is good again: %v", err)
	}
}

func TestParseLink(t *testing.T) {
	for spec, want := range map[string]link{
		"delay 20ms loss 1% rate 10mbit": {delay: 20 * time.Millisecond, loss: 0.01, rate: 1.25e6, limit: 1000},
		"delay 1s 100ms limit 5":         {delay: time.Second, jitter: 100 * time.Millisecond, limit: 5},
		"rate 500kbit":                   {rate: 62500, limit: 1000},
		"rate 1gbit":                     {rate: 125e6, limit: 1000},
	} {
		if got, err := parseLink(spec); err != nil || got != want {
			t.Errorf("parseLink(%q) = %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"", "delay", "delay x", "loss 1", "loss 101%", "loss x%", "rate 10", "rate -1mbit", "limit x", "reorder 5%"} {
		if got, err := parseLink(spec); err == nil {
			t.Errorf("parseLink(%q) = %+v", spec, got)
		}
	}
}

func TestEverythingIsRemoved(t *testing.T) {
	var name string
	t.Run("cluster", func(t *testing.T) {
		c := New(t, 3)
		c.Hosts[1].Netem("delay 1ms")
		name = c.name
		if len(named(t, name)) != 4 {
			t.Errorf("namespaces of 3 hosts and a hub: %v", named(t, name))
		}
	})
	if left := named(t, name); len(left) != 0 {
		t.Errorf("still there: %v", left)
	}
	links, err := exec.Command("ip", "-brief", "link").Output()
	if err != nil || strings.Contains(string(links), "portn") || strings.Contains(string(links), "nearn") {
		t.Errorf("the namespace of the test has its interfaces: %v\n%s", err, links)
	}
}

func named(t *testing.T, start string) []string {
	t.Helper()
	names, err := namespaces()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, start) })
}

// Remains of a dead process are swept. Those of a living one stay, and those of others.
func TestSweep(t *testing.T) {
	Require(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("%s%d-1-n1", prefix, dead.Process.Pid)
	mine := fmt.Sprintf("%s%d-sweep-n1", prefix, os.Getpid())
	foreign := fmt.Sprintf("%sother%d", prefix, os.Getpid())
	for _, name := range []string{left, mine, foreign} {
		if err := run("ip", "netns", "add", name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if len(named(t, name)) != 0 {
				run("ip", "netns", "delete", name)
			}
		})
	}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	if len(named(t, left)) != 0 || len(named(t, mine)) != 1 || len(named(t, foreign)) != 1 {
		t.Errorf("after sweeping: of a dead process %v, of this one %v, foreign %v", named(t, left), named(t, mine), named(t, foreign))
	}
}

func TestOwner(t *testing.T) {
	for name, want := range map[string]int{"forebay-12-1-n1": 12, "forebay-12": 0, "forebay-x-1": 0, "other-12-1": 0, "forebay--1-2": 0, "": 0} {
		if got := owner(name); got != want {
			t.Errorf("owner(%q) = %d, want %d", name, got, want)
		}
	}
}
