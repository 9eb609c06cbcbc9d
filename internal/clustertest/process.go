package clustertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/internal/netnstest"
)

// Options have the place and the work of a client of the workload.
type Options struct {
	Name      string          // of the client, of its directory and journal; unlike any other's
	Host      *netnstest.Host `json:"-"` // nil: where the test is
	Address   string          // of the daemon: unix:///socket or tcp://host:port
	KeyFile   string          // for TCP
	Buffer    string
	Peers     []string      // names of the clients whose files it reads; all, usually
	Seed      uint64        // unlike any other client's; decides its operations
	OpTimeout time.Duration // the deadline of each operation; default 10 s
	MaxSize   int           // of a file, in bytes, about; default 1 MiB
	Files     int           // that it has at a time, about; default 20

	Journal string // its file; set by Start
}

// workerEnv holds the Options of a process that is a client.
const workerEnv = "FOREBAY_TEST_WORKER"

// Main is for the first line of a package's TestMain. In a process that Start has started it is a
// client, and does not return.
func Main() {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = work(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Client is a client process. Its methods are for one goroutine at a time.
type Client struct {
	Options

	tb     testing.TB
	cmd    *exec.Cmd
	stderr strings.Builder
	ended  chan error
	asked  bool // to end
	over   bool
	killed int64
}

// Start starts a client. The package's TestMain has to call Main. It is killed when
// the test ends, if nothing else ended it.
func Start(tb testing.TB, o Options) *Client {
	tb.Helper()
	if o.OpTimeout == 0 {
		o.OpTimeout = 10 * time.Second
	}
	if o.MaxSize == 0 {
		o.MaxSize = 1 << 20
	}
	if o.Files == 0 {
		o.Files = 20
	}
	o.Journal = filepath.Join(tb.TempDir(), o.Name+".journal")
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := &Client{Options: o, tb: tb, ended: make(chan error, 1)}
	c.cmd = exec.Command(self)
	if o.Host != nil {
		c.cmd = o.Host.Command(self)
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() { c.ended <- c.cmd.Wait() }()
	tb.Cleanup(c.Kill)
	return c
}

// Kill ends the client in the middle of its work.
func (c *Client) Kill() {
	if c.over {
		return
	}
	c.over, c.killed = true, Now()
	c.cmd.Process.Kill()
	<-c.ended
}

// Stop lets the client end its operation, and waits for it.
func (c *Client) Stop() {
	c.tb.Helper()
	if c.over {
		return
	}
	c.ask()
	select {
	case err := <-c.ended:
		c.over = true
		if err != nil {
			c.tb.Errorf("client %s: %v\n%s", c.Name, err, c.stderr.String())
		}
	case <-time.After(c.OpTimeout + 10*time.Second):
		c.tb.Errorf("client %s does not come to an end", c.Name)
		c.Kill()
		c.killed = 0 // its last operation hung
	}
}

// ask signals the client to end, once. A second signal would kill it.
func (c *Client) ask() {
	if !c.asked && !c.over {
		c.asked = true
		c.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// StopAll stops clients at the same time.
func StopAll(clients ...*Client) {
	for _, c := range clients {
		c.ask()
	}
	for _, c := range clients {
		c.Stop()
	}
}

// AwaitOK waits until clients, which are at work, have done so many of each of some operations.
func AwaitOK(tb testing.TB, n int, within time.Duration, clients []*Client, ops ...Op) {
	tb.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(200 * time.Millisecond) {
		done := map[Op]int{}
		for _, c := range clients {
			j, err := ReadJournal(c.Name, c.Options.Journal)
			if err != nil && !os.IsNotExist(err) {
				tb.Fatal(err)
			}
			for _, r := range j.Records {
				if r.Outcome == OK {
					done[r.Op]++
				}
			}
		}
		if !slices.ContainsFunc(ops, func(op Op) bool { return done[op] < n }) {
			return
		}
		if time.Now().After(deadline) {
			tb.Errorf("after %v clients have done %v, want %d of each of %v", within, done, n, ops)
			return
		}
	}
}

// Journal returns the client's journal. It must have ended.
func (c *Client) Journal() Journal {
	c.tb.Helper()
	j, err := ReadJournal(c.Name, c.Options.Journal)
	if err != nil && !os.IsNotExist(err) {
		c.tb.Fatal(err)
	}
	j.Killed = c.killed
	return j
}

// Journals returns those of all clients.
func Journals(clients ...*Client) []Journal {
	var all []Journal
	for _, c := range clients {
		c.tb.Helper()
		all = append(all, c.Journal())
	}
	return all
}
