//go:build soak

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
	"forebay/internal/hostiletest"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/tcp"
)

// flood is a daemon with all its listeners, and bad input for each.
type flood struct {
	t                 *testing.T
	d                 *bbdtest.Daemon
	tcp, gossip, nats string
	key               []byte
}

const floodedDaemon = `
name: n1
key_file: {{.Dir}}/key
listen: {tcp: "%s", admin: "127.0.0.1:0"}
cluster: {listen: "%s", join: "%[2]s", advertise: 127.0.0.1}
nats: {servers: "%s"}
memory: {size: 256MiB, region_size: 64MiB}
`

// The user whose bad input it is, and that user's buffer.
const (
	floodUID    = 5002
	floodBuffer = "flood"
)

// goodBuffer is a buffer of root's, which the user may not enter.
const goodBuffer = "good"

func startFlooded(t *testing.T) *flood {
	t.Helper()
	f := &flood{t: t, d: bbdtest.New(t), tcp: bbdtest.FreePort(t, "127.0.0.1"), gossip: bbdtest.FreePort(t, "127.0.0.1"), nats: bbdtest.FreePort(t, "127.0.0.1")}
	f.d.Config = fmt.Sprintf(floodedDaemon, f.tcp, f.gossip, f.nats)
	file := filepath.Join(f.d.Dir, "key")
	err := errors.Join(os.WriteFile(file, clusterkey.New(), 0o600), os.Chmod(f.d.Dir, 0o711))
	keys, keyErr := clusterkey.Read(file)
	if err := errors.Join(err, keyErr); err != nil {
		t.Fatal(err)
	}
	f.key = keys[0]
	f.d.Start()
	return f
}

// floodUsage is the daemon's use of resources.
type floodUsage struct {
	goroutines, files, memory int            // memory in KiB, without the regions
	streams                   int            // of the namespace's server, each with goroutines that count in neither
	began                     map[string]int // all goroutines, by where they began
}

func (u floodUsage) String() string {
	return fmt.Sprintf("%d goroutines, and those of %d streams, %d files, %d KiB", u.goroutines, u.streams, u.files, u.memory)
}

// profile counts the daemon's goroutines by where they are.
func (f *flood) profile() string {
	f.t.Helper()
	h := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(f.d.Dir, "bbd-admin.sock"))
	}}}
	r, err := h.Get("http://bbd/debug/pprof/goroutine?debug=1")
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f *flood) usage() (u floodUsage) {
	f.t.Helper()
	u.began = f.goroutines()
	for began, n := range u.began {
		switch {
		case strings.HasSuffix(began, streamLoop):
			u.streams = n
		case !strings.Contains(began, "/server.(*stream).") && !strings.Contains(began, "/server.(*fileStore)."):
			u.goroutines += n
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.d.Pid()))
	status, statusErr := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.d.Pid()))
	if err := errors.Join(err, statusErr); err != nil {
		f.t.Fatal(err)
	}
	u.files = len(files)
	_, anonymous, _ := strings.Cut(string(status), "RssAnon:")
	fmt.Sscan(anonymous, &u.memory)
	return u
}

// settles waits until the daemon holds about as much as before, and a stream of the namespace for each
// new buffer of the flood's user, and returns its holdings.
func (f *flood) settles(before floodUsage, buffers int) floodUsage {
	f.t.Helper()
	const goroutines, files, memory = 10, 10, 256 << 10
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		now := f.usage()
		if now.goroutines <= before.goroutines+goroutines && now.streams <= before.streams+buffers &&
			now.files <= before.files+files+buffers && now.memory <= before.memory+memory {
			return now
		}
		if time.Now().After(end) {
			f.t.Errorf("the daemon holds %v, and held %v before; of goroutines it has more: %s\n%s", now, before, grown(before.began, now.began), f.profile())
			return now
		}
	}
}

// dialUnix connects as the user. The kernel takes the rights of the thread that connects.
func (f *flood) dialUnix() (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good, as the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, floodUID, floodUID, floodUID); errno != 0 {
			err = errno
			return
		}
		fd, dialErr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err = dialErr; err != nil {
			return
		}
		file := os.NewFile(uintptr(fd), "session")
		defer file.Close()
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: f.d.Socket}); err == nil {
			conn, err = net.FileConn(file)
		}
	}()
	<-done
	return conn, err
}

func (f *flood) dialTCP() (net.Conn, error) { return net.Dial("tcp", f.tcp) }

// session begins a session of the user's.
func (f *flood) session(dial func() (net.Conn, error), hello *wire.Hello, keys ...[]byte) (net.Conn, *wire.Reader, *wire.Welcome, error) {
	conn, err := dial()
	if err != nil {
		return nil, nil, nil, err
	}
	in := wire.NewReader(conn)
	w, err := wire.Handshake(conn, in, hello, keys...)
	if err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	return conn, in, w, nil
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func badFrame() []byte { return hostiletest.BadFrame(rand.New(rand.NewPCG(rand.Uint64(), 0))) }

// fabricHello begins like a stream of one-sided transfers.
func fabricHello() []byte {
	b := append([]byte("FBYRDMA\x00"), noise(56)...)
	b[8], b[9] = 1, 1
	return b[:8+rand.IntN(len(b)-7)]
}

// send sends so many results of make, each over a connection of its own, and returns the number of
// answers that were no errors.
func (f *flood) send(n int, dial func() (net.Conn, error), bad func() []byte) (answered int) {
	f.t.Helper()
	for i := range n {
		conn, err := dial()
		if err != nil {
			f.t.Fatalf("connection %d: %v", i, err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = conn.Write(bad())
		if half, ok := conn.(interface{ CloseWrite() error }); ok && i%3 == 0 {
			_ = half.CloseWrite()
			if head, _, err := wire.NewReader(conn).Next(); err == nil && !head.Has(wire.FlagError) {
				answered++
			}
		}
		conn.Close()
	}
	return answered
}

// requests sends so many bad requests, in four sessions at a time. Of a session that the daemon ends
// it does not read the rest.
func (f *flood) requests(n int, dial func() (net.Conn, error), keys ...[]byte) string {
	f.t.Helper()
	var (
		sent, answered atomic.Int64
		all            sync.WaitGroup
	)
	for range 4 {
		all.Go(func() {
			for sent.Load() < int64(n) {
				conn, in, _, err := f.session(dial, &wire.Hello{Client: "flood", Uid: floodUID, Gid: floodUID}, keys...)
				if err != nil {
					f.t.Errorf("after %d requests: %v", sent.Load(), err)
					return
				}
				f.inSession(conn, in, func() bool { return sent.Add(1) <= int64(n) }, &answered)
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d, of which %d were answered", n, answered.Load())
}

// inSession sends bad requests until the daemon has had enough of the session, or there were many.
func (f *flood) inSession(conn net.Conn, in *wire.Reader, more func() bool, answered *atomic.Int64) {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for {
			head, _, err := in.Next()
			if err != nil || head.DataLength > 0 && in.ReadData(make([]byte, head.DataLength)) != nil {
				return
			}
			if !head.Has(wire.FlagMore) {
				answered.Add(1)
			}
		}
	}()
	conn.SetWriteDeadline(time.Now().Add(time.Minute))
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for i := 0; i < 100 && more(); i++ {
		typ, m, data := hostiletest.BadRequest(rnd, []string{floodBuffer, goodBuffer}[i%2])
		var frame *wire.FrameError
		if _, err := wire.WriteFrame(conn, nil, typ, uint16(rand.IntN(8))&^1, uint64(rand.IntN(1000)), m, data); err != nil && !errors.As(err, &frame) {
			break
		}
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	conn.SetReadDeadline(time.Now().Add(time.Second)) // a request may have no end
	<-heard
	conn.Close()
}

// tokens shows tokens of which something was changed, and returns how many, and how many were let in.
func (f *flood) tokens(text string) (tried, in int) {
	f.t.Helper()
	public, secret, err := wire.ParseToken([]byte(text))
	if err != nil {
		f.t.Fatal(err)
	}
	try := func(public, secret []byte) {
		tried++
		if conn, _, _, err := f.session(f.dialTCP, &wire.Hello{Client: "flood", Token: public}, secret); err == nil {
			in++
			conn.Close()
		}
	}
	whole := slices.Concat(public, secret)
	for i := range whole {
		for _, x := range []byte{1, 0x80, 0xff} {
			b := slices.Clone(whole)
			b[i] ^= x
			try(b[:len(public)], b[len(public):])
		}
	}
	for _, p := range [][]byte{append(slices.Clone(public), 'x'), public[:len(public)-1], {1}, make([]byte, 1<<19), append(slices.Clone(public[:len(public)-3]), "other"...)} {
		try(p, secret)
	}
	return tried, in
}

// oneSided reaches for memory with keys and offsets that are not the session's, and returns how
// many times, and how many succeeded.
func (f *flood) oneSided(n int) (tried, went int) {
	f.t.Helper()
	conn, in, w, err := f.session(f.dialTCP, &wire.Hello{Client: "flood", Uid: floodUID, Gid: floodUID}, f.key)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	var lease wire.Lease
	if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_LEASE, 0, 10, &wire.LeaseRequest{Buffer: floodBuffer, Bytes: 1 << 20}, nil); err != nil {
		f.t.Fatal(err)
	}
	head, message, err := in.Next()
	if err := errors.Join(err, wire.DecodeReply(head, message, &lease)); err != nil {
		f.t.Fatal(err)
	}
	fabric, err := tcp.New(tcp.Options{Authenticate: func(_ context.Context, s net.Conn) error {
		return wire.ShowTicket(s, w.Session, w.DataTicket)
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	defer fabric.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Minute)
	defer cancel()
	c, err := fabric.Dial(ctx, w.DataAddress)
	if err != nil {
		f.t.Fatal(err)
	}
	do := func(kind rdma.OpKind, key []byte, at uint64) error {
		k, err := rdma.DecodeRemoteKey(key)
		if err != nil {
			f.t.Fatal(err)
		}
		return rdma.Do(ctx, c, []rdma.Op{{Kind: kind, Local: make([]byte, 4096), Remote: rdma.Remote{Key: k, Offset: at}}})
	}
	own, size := lease.Region.Key, uint64(lease.Region.Length)
	if err := do(rdma.OpWrite, own, uint64(lease.Offset+lease.DataStart)); err != nil {
		f.t.Fatalf("the session's own lease: %v", err)
	}
	try := func(kind rdma.OpKind, key []byte, at uint64) {
		if tried++; do(kind, key, at) == nil {
			went++
		}
	}
	for _, at := range []uint64{size, size - 1, size + 1, 1 << 63, 1<<64 - 1, 1<<64 - 4096, 1 << 40} {
		try(rdma.OpRead, own, at)
		try(rdma.OpWrite, own, at)
	}
	for i := 0; tried < n; i++ {
		key := slices.Clone(own)
		if i%2 == 0 {
			binary.BigEndian.PutUint64(key, uint64(i/2+1)) // another region, with this one's secret
		} else {
			key[8+i%(len(key)-8)] ^= byte(1 + i%255)
		}
		if !slices.Equal(key, own) {
			try(rdma.OpRead, key, 0)
		}
	}
	return tried, went
}

// TestManyBadInputs sends bad input to each listener. The daemon ends only its sessions, admits no
// client, changes only the sender's own files, and holds no more afterwards than before.
func TestManyBadInputs(t *testing.T) {
	f := startFlooded(t)
	c, store := dial(t, f.d), t.TempDir()
	f.furnish(c, store)
	user, err := client.Dial(t.Context(), client.Options{
		Address: "tcp://" + f.tcp, KeyFile: filepath.Join(f.d.Dir, "key"), User: &client.User{UID: floodUID, GID: floodUID},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateBuffer(t.Context(), user, admin.BufferSpec{Name: floodBuffer}); err != nil {
		t.Fatal(err)
	}
	text, _, err := admin.Token(t.Context(), user, floodBuffer, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	user.Close()
	_, _, w, err := f.session(f.dialTCP, &wire.Hello{Client: "flood", Uid: floodUID, Gid: floodUID}, f.key)
	if err != nil {
		t.Fatal(err)
	}
	fabric := func() (net.Conn, error) { return net.Dial("tcp", w.DataAddress) }
	before := f.usage()
	t.Logf("before: %v", before)
	step := func(what string, do func() string) {
		t.Helper()
		began, stood := time.Now(), f.standing(c, store)
		said := do()
		select {
		case <-f.d.Ended():
			t.Fatalf("after %s the daemon has ended\n%s", what, f.d.Log())
		default:
		}
		took := time.Since(began).Round(time.Millisecond)
		buffers, entries := f.owns(c)
		after := f.settles(before, buffers)
		n := differences(t, what, stood, f.standing(c, store))
		t.Logf("%s: %s, in %v; %d of %d things of others are changed, and the user has %d buffers with %d entries; then %v, of goroutines more: %s",
			what, said, took, n, len(stood), buffers, entries, after, grown(before.began, after.began))
	}
	none := func(n, answered int) string {
		t.Helper()
		if answered > 0 {
			t.Errorf("%d of %d went through", answered, n)
		}
		return fmt.Sprintf("%d, of which %d went through", n, answered)
	}
	step("one-sided keys and offsets", func() string { return none(f.oneSided(2013)) })
	step("changed tokens", func() string { return none(f.tokens(text)) })
	step("bad frames over the unix socket", func() string { return none(6000, f.send(6000, f.dialUnix, badFrame)) })
	step("bad frames over TCP", func() string { return none(5000, f.send(5000, f.dialTCP, badFrame)) })
	step("fabric hellos", func() string { return none(3000, f.send(3000, fabric, fabricHello)) })
	step("frames on the namespace server's port", func() string {
		return none(1500, f.send(1500, func() (net.Conn, error) { return net.Dial("tcp", f.nats) }, badFrame))
	})
	step("bad requests over the unix socket", func() string { return f.requests(20072, f.dialUnix) })
	step("bad requests over TCP", func() string { return f.requests(10081, f.dialTCP, f.key) })
	t.Log("gossip packets: " + f.packets(c, 21500)) // last: the members that prove the right key stay listed
	if strings.Contains(f.d.Log(), "panic") {
		t.Error("the daemon's log tells of a panic")
	}
	if _, err := admin.Drain(t.Context(), c, goodBuffer, time.Minute, nil); err != nil {
		t.Error(err)
	}
	f.d.Stop()
}
