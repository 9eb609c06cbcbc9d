// Package netnstest gives tests real separate hosts. They are network namespaces, each with one interface on a
// common switch, whose links can be cut, slowed and made lossy. It handles networks and processes alone, and
// must never depend on the programs on the hosts. The hosts share one machine in everything else: files, unix
// sockets, shared memory, process ids and clocks.
//
// Nothing is made or changed in the namespace of the test process. Needs root, and
// the commands ip, tc (iproute2) and nsenter (util-linux).
package netnstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Require skips a test where hosts cannot be made, saying why. In CI, where
// nothing may be missing, it fails the test.
func Require(tb testing.TB) {
	tb.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "tests on hosts of their own make network namespaces, and so need root"
	} else {
		for _, tool := range []string{"ip", "tc", "nsenter"} {
			if _, err := exec.LookPath(tool); err != nil {
				missing = fmt.Sprintf("the command %s is missing: make test-tools (packages iproute2, util-linux)", tool)
			}
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CI") != "":
		tb.Fatal(missing)
	default:
		tb.Skip(missing)
	}
}

const (
	folder = "/run/netns" // where ip(8) keeps namespaces by name
	prefix = "forebay-"   // then the owner's process id, a number, and the host
)

// maxHosts is as many as fit in a /24.
const maxHosts = 254

// Cluster is a switch and the hosts on it.
type Cluster struct {
	Hosts []*Host // n1, n2, …

	tb   testing.TB
	name string // of the namespaces, before the host
	mu   struct {
		sync.Mutex
		cut [][]bool // by index of sender and receiver
	}
}

// Host is one host of a cluster: a network namespace with a loopback and one
// interface, eth0.
type Host struct {
	Name string // n1, n2, …
	Addr netip.Addr

	c     *Cluster
	index int
	wire  *wire // stands between eth0 and the switch, where the kernel has no netem
}

var made atomic.Int64 // clusters of this process

// New makes a cluster that is removed when the test ends. Every host reaches every
// other. It calls Require.
func New(tb testing.TB, hosts int) *Cluster {
	tb.Helper()
	Require(tb)
	if hosts < 1 || hosts > maxHosts {
		tb.Fatalf("a cluster has 1 to %d hosts, not %d", maxHosts, hosts)
	}
	if err := sweep(); err != nil {
		tb.Fatalf("removing what killed tests left behind: %v", err)
	}
	c := &Cluster{tb: tb, name: fmt.Sprintf("%s%d-%d-", prefix, os.Getpid(), made.Add(1))}
	c.mu.cut = make([][]bool, hosts)
	for i := range hosts {
		c.mu.cut[i] = make([]bool, hosts)
		c.Hosts = append(c.Hosts, &Host{
			Name: fmt.Sprintf("n%d", i+1), Addr: netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}), c: c, index: i,
		})
	}
	tb.Cleanup(c.remove)
	if err := c.build(); err != nil {
		tb.Fatalf("making hosts: %v", err)
	}
	return c
}

func (c *Cluster) build() error {
	if err := c.add(c.hub()); err != nil {
		return err
	}
	// No hub tracks multicast groups, or has addresses of its own.
	if err := batch(c.hub(), "link add hub type bridge mcast_snooping 0", "link set hub addrgenmode none", "link set hub up"); err != nil {
		return err
	}
	for _, h := range c.Hosts {
		if err := c.add(h.namespace()); err != nil {
			return err
		}
		if err := batch(
			c.hub(),
			fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %s", h.port(), h.mac(), h.namespace()),
			fmt.Sprintf("link set %s addrgenmode none master hub up", h.port()),
		); err != nil {
			return err
		}
		if err := batch(
			h.namespace(), "link set lo up", "link set eth0 addrgenmode none",
			fmt.Sprintf("address add %v/24 dev eth0", h.Addr), "link set eth0 up",
		); err != nil {
			return err
		}
	}
	for _, h := range c.Hosts {
		if err := h.route(); err != nil {
			return err
		}
	}
	return nil
}

// add makes a namespace. The lock is for ip(8), which mounts its folder upon itself
// the first time.
func (c *Cluster) add(namespace string) error {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "forebay-netns.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return run("ip", "netns", "add", namespace)
}

func (c *Cluster) hub() string { return c.name + "hub" }

func (h *Host) namespace() string { return h.c.name + h.Name }

// port is the other end of eth0, in the hub's namespace.
func (h *Host) port() string { return "port" + h.Name }

func (h *Host) mac() string { return fmt.Sprintf("02:fb:00:00:00:%02x", h.index+1) }

// nowhere is the hardware address of no host.
const nowhere = "02:fb:00:00:ff:ff"

// route sets the addresses of the host's neighbours in its kernel. Frames to a neighbour that is
// cut off go to an address without a host. So they vanish silently, as behind a dead switch, and a
// connection hangs. A blackhole route would be reported to the sender, and so would a neighbour
// that does not answer.
func (h *Host) route() error {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	var lines []string
	for _, to := range h.c.Hosts {
		mac := to.mac()
		if h.c.mu.cut[h.index][to.index] {
			mac = nowhere
		}
		if to != h {
			lines = append(lines, fmt.Sprintf("neighbour replace %v lladdr %s nud permanent dev eth0", to.Addr, mac))
		}
	}
	return batch(h.namespace(), lines...)
}

// Partition lets hosts reach only those of their own group. Hosts that are in no group make up one
// more. All frames between two groups are lost silently, on established connections too. It
// replaces earlier partitions.
func (c *Cluster) Partition(groups ...[]*Host) {
	c.tb.Helper()
	group := make([]int, len(c.Hosts))
	for i, g := range groups {
		for _, h := range g {
			group[h.index] = i + 1
		}
	}
	c.cut(func(from, to int, _ bool) bool { return group[from] != group[to] })
}

// Heal lets every host reach every other again. Netem stays.
func (c *Cluster) Heal() {
	c.tb.Helper()
	c.cut(func(int, int, bool) bool { return false })
}

// Cut loses everything that one host sends another, and nothing that it receives.
func (c *Cluster) Cut(from, to *Host) {
	c.tb.Helper()
	c.cut(func(f, t int, was bool) bool { return was || f == from.index && t == to.index })
}

// Isolate cuts a host off from all others, both ways.
func (h *Host) Isolate() {
	h.c.tb.Helper()
	h.c.cut(func(from, to int, was bool) bool { return was || from == h.index || to == h.index })
}

// Rejoin lets a host reach all others again, and be reached.
func (h *Host) Rejoin() {
	h.c.tb.Helper()
	h.c.cut(func(from, to int, was bool) bool { return was && from != h.index && to != h.index })
}

func (c *Cluster) cut(whether func(from, to int, was bool) bool) {
	c.tb.Helper()
	c.mu.Lock()
	for from, row := range c.mu.cut {
		for to := range row {
			row[to] = whether(from, to, row[to])
		}
	}
	c.mu.Unlock()
	for _, h := range c.Hosts {
		if err := h.route(); err != nil {
			c.tb.Fatalf("cutting links: %v", err)
		}
	}
}

// Command is exec.Command of a process on the host. The process has the host's network
// and everything else of the test process, whose end it does not survive.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	// nsenter execs, so that the process has the id of the caller's view. ip netns exec would make
	// a mount namespace, too, in which other daemons' mounts are not visible.
	cmd := exec.Command("nsenter", append([]string{"--net=" + filepath.Join(folder, h.namespace()), "--", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Do runs a function on a thread that is on the host meanwhile. Sockets that it opens belong to the
// host until they are closed. Goroutines that it starts do not.
func (h *Host) Do(f func() error) error { return inside(h.namespace(), f) }

func inside(namespace string, f func() error) error {
	there, err := os.Open(filepath.Join(folder, namespace))
	if err != nil {
		return err
	}
	defer there.Close()
	done := make(chan error, 1)
	go func() { done <- onThread(there, f) }()
	return <-done
}

// onThread takes the goroutine's thread into a namespace and back. It does not let the
// thread end, since processes that it once started with Pdeathsig would be killed.
func onThread(there *os.File, f func() error) error {
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread ends with the goroutine, since it is still locked
	}
	runtime.UnlockOSThread()
	return err
}

// DialContext connects from the host. The address is a literal one. A name would be looked up on
// other threads.
func (h *Host) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil && !strings.HasPrefix(network, "unix") {
		return nil, err
	}
	err = h.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on the host, at a literal address.
func (h *Host) Listen(network, address string) (l net.Listener, err error) {
	err = h.Do(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// remove removes the cluster. A process that is still on a host is the test's mistake.
func (c *Cluster) remove() {
	for _, h := range c.Hosts {
		if h.wire != nil {
			h.wire.close()
		}
		out, _ := exec.Command("ip", "netns", "pids", h.namespace()).Output()
		for field := range strings.FieldsSeq(string(out)) {
			pid, err := strconv.Atoi(field)
			if err != nil || pid == os.Getpid() {
				continue
			}
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			c.tb.Errorf("process %d (%s) still ran on %s", pid, bytes.TrimSpace(name), h.Name)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	names, err := namespaces()
	if err != nil {
		c.tb.Error(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, c.name) {
			if err := run("ip", "netns", "delete", name); err != nil {
				c.tb.Error(err)
			}
		}
	}
}

// sweep removes namespaces whose owner is dead.
func sweep() error {
	names, err := namespaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		pid := owner(name)
		if pid == 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		err := run("ip", "netns", "delete", name)
		if _, gone := os.Stat(filepath.Join(folder, name)); err != nil && gone == nil {
			return err // and not that another test swept it at the same time
		}
	}
	return nil
}

// owner is the process that made a namespace of that name, or 0 if it is none of ours.
func owner(name string) int {
	rest, ours := strings.CutPrefix(name, prefix)
	digits, _, more := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(digits)
	if !ours || !more || err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// namespaces lists the names of all namespaces.
func namespaces() ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// batch has ip(8) do all lines in a namespace, or fail at the first that fails.
func batch(namespace string, lines ...string) error {
	cmd := exec.Command("ip", "-n", namespace, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -n %s: %w: %s\n%s", namespace, err, bytes.TrimSpace(out), strings.Join(lines, "\n"))
	}
	return nil
}

// toolTime is how long a command of iproute2 may take.
const toolTime = 30 * time.Second

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), toolTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
