// Package rdmatest is the conformance suite of rdma providers, the duties of each of them. It must never test a
// property of only one.
package rdmatest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/rdma"
)

// Provider is the provider under test.
type Provider struct {
	// New returns a fresh fabric.
	New func() (rdma.Fabric, error)
	// Addr returns an address to listen on.
	Addr func(t testing.TB) string
}

// Suite runs all conformance tests. The calling package's TestMain must be Main, with the same
// provider. Some tests have their peer in a process of its own.
func Suite(t *testing.T, p Provider) {
	SuiteInProcess(t, p)
	t.Run("PeerKilled", func(t *testing.T) { checkLeaks(t, p, testPeerKilled) })
}

// SuiteInProcess runs the conformance tests that need no second process, for further
// configurations of a provider.
func SuiteInProcess(t *testing.T, p Provider) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Provider)
	}{
		{"WriteThenRead", testWriteThenRead},
		{"Sizes", testSizes},
		{"Batches", testBatches},
		{"Refused", testRefused},
		{"Malformed", testMalformed},
		{"KeysAreSecret", testKeysAreSecret},
		{"RevokedBefore", testRevokedBefore},
		{"RevokedDuring", testRevokedDuring},
		{"TenThousandInFlight", testTenThousandInFlight},
		{"BackPressure", testBackPressure},
		{"CancelledPost", testCancelledPost},
		{"Done", testDone},
		{"CloseUnblocks", testCloseUnblocks},
		{"CloseCompletesAll", testCloseCompletesAll},
		{"PeerCloses", testPeerCloses},
		{"DialNobody", testDialNobody},
		{"FabricClosed", testFabricClosed},
		{"Concurrent", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { checkLeaks(t, p, c.run) })
	}
}

func checkLeaks(t *testing.T, p Provider, run func(*testing.T, Provider)) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) { run(t, p) }) // its clean-up ends before the check
}

const (
	childVariable = "RDMATEST_CHILD"
	childRegion   = 4 << 20
)

// Main is the TestMain of a package that calls Suite. Some tests start the test binary again as
// their peer.
func Main(m *testing.M, p Provider) {
	if addr := os.Getenv(childVariable); addr != "" {
		if err := serveChild(p, addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serveChild is the peer process. It registers a region, prints where it is, and accepts connections
// until its standard input ends or it is killed.
func serveChild(p Provider, addr string) error {
	ctx := context.Background()
	f, err := p.New()
	if err != nil {
		return err
	}
	mem, err := Allocate(childRegion)
	if err != nil {
		return err
	}
	region, err := f.Register(mem, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		return err
	}
	l, err := f.Listen(ctx, addr)
	if err != nil {
		return err
	}
	key, _ := region.Key().AppendBinary(nil) // cannot fail
	fmt.Printf("%s %s\n", l.Addr(), hex.EncodeToString(key))
	go func() {
		for {
			if _, err := l.Accept(ctx); err != nil {
				return
			}
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a peer in a process of its own.
type child struct {
	cmd  *exec.Cmd
	addr string
	key  rdma.RemoteKey
}

func startChild(t *testing.T, p Provider) *child {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childVariable+"="+p.Addr(t))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	addr, key, _ := strings.Cut(strings.TrimSpace(line), " ")
	b, err := hex.DecodeString(key)
	must(t, err)
	c.addr = addr
	c.key, err = rdma.DecodeRemoteKey(b)
	must(t, err)
	return c
}

// pair is two connected fabrics, the initiator's connection and the target's.
type pair struct {
	t             testing.TB
	near, far     rdma.Fabric
	listener      rdma.Listener
	conn, farConn rdma.Conn
	ctx           context.Context
	limit         rdma.Limits // the target's
}

const patience = 10 * time.Minute

func newPair(t testing.TB, p Provider) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	x := &pair{t: t, ctx: ctx, near: newFabric(t, p), far: newFabric(t, p)}
	t.Cleanup(cancel) // before the fabrics close
	x.limit = x.far.Limits()
	var err error
	x.listener, err = x.far.Listen(ctx, p.Addr(t))
	must(t, err)
	x.conn, x.farConn = x.connect()
	return x
}

func newFabric(t testing.TB, p Provider) rdma.Fabric {
	t.Helper()
	f, err := p.New()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func (x *pair) connect() (near, far rdma.Conn) {
	x.t.Helper()
	type accepted struct {
		c   rdma.Conn
		err error
	}
	ch := make(chan accepted, 1)
	go func() {
		c, err := x.listener.Accept(x.ctx)
		ch <- accepted{c, err}
	}()
	near, err := x.near.Dial(x.ctx, x.listener.Addr())
	must(x.t, err)
	a := <-ch
	must(x.t, a.err)
	return near, a.c
}

const readWrite = rdma.AccessRemoteRead | rdma.AccessRemoteWrite

// region registers fresh memory at the target.
func (x *pair) region(size int, access rdma.Access) rdma.Region {
	x.t.Helper()
	return register(x.t, x.far, size, access)
}

// local returns memory for operations of the initiator, registered where the provider needs it.
func (x *pair) local(size int) []byte { return localMemory(x.t, x.near, size) }

func localMemory(t testing.TB, f rdma.Fabric, size int) []byte {
	t.Helper()
	if f.Limits().NeedsLocal {
		return register(t, f, size, rdma.AccessLocal).Bytes()
	}
	return make([]byte, size)
}

func register(t testing.TB, f rdma.Fabric, size int, access rdma.Access) rdma.Region {
	t.Helper()
	mem, err := Allocate(size)
	must(t, err)
	r, err := f.Register(mem, access)
	must(t, err)
	t.Cleanup(func() {
		_ = r.Close() // a test that kills its peer gets an error here
		must(t, Free(mem))
	})
	return r
}

func write(local []byte, key rdma.RemoteKey, off uint64, id uint64) rdma.Op {
	return rdma.Op{Kind: rdma.OpWrite, Local: local, Remote: rdma.Remote{Key: key, Offset: off}, ID: id}
}

func read(local []byte, key rdma.RemoteKey, off uint64, id uint64) rdma.Op {
	return rdma.Op{Kind: rdma.OpRead, Local: local, Remote: rdma.Remote{Key: key, Offset: off}, ID: id}
}

func (x *pair) do(ops ...rdma.Op) error { return rdma.Do(x.ctx, x.conn, ops) }

// fill writes a pattern that depends on the seed and the place.
func fill(b []byte, seed int) []byte {
	state := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		state = state*6364136223846793005 + 1442695040888963407
		b[i] = byte(state >> 56)
	}
	return b
}

// WantEnd waits until a connection has ended. If it did for another reason than the given one, it
// fails the test.
func WantEnd(t testing.TB, c rdma.Conn, want error) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatalf("the connection to %s has not ended", c.Peer())
	}
	if err := c.Err(); !errors.Is(err, want) {
		t.Fatalf("the connection to %s has ended for another reason: %v, want %v", c.Peer(), err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
