package bbd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// hoarderEnv makes this binary a program of the other user that takes all it can of the resources that
// sessions hold, prints how much that was, and holds it until its standard input ends.
const hoarderEnv = "FOREBAY_TEST_HOARDER"

type hoarded struct {
	Files, Requests int    // until the first refusal
	Kinds           string // of the refusals
}

func hoard(socket string) int {
	var h hoarded
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + socket})
	if err == nil {
		_, err = admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "hoard"})
	}
	if err == nil {
		err = c.Buffer("hoard").WriteFile(ctx, "f", []byte("x"), 0o600)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	if err := h.files(socket); err != nil {
		fmt.Println(err)
		return 1
	}
	end, err := unfinished(socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer end()
	if json.NewEncoder(os.Stdout).Encode(h) != nil {
		return 1
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// raw begins a session whose frames the test sends itself.
func raw(socket string) (net.Conn, *wire.Reader, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	in := wire.NewReader(conn)
	if _, err := wire.Handshake(conn, in, &wire.Hello{Client: "hoard"}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, in, nil
}

// files opens one file again and again, and leaves requests without an end in flight.
func (h *hoarded) files(socket string) error {
	conn, in, err := raw(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	for id := uint64(1); id < 1000; id++ {
		if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_OPEN, 0, id, &wire.Open{Handle: id, Buffer: "hoard", Path: "f"}, nil); err != nil {
			return err
		}
		head, message, err := in.Next()
		if err == nil && head.DataLength > 0 {
			err = in.ReadData(make([]byte, head.DataLength))
		}
		if err != nil {
			return err
		}
		if err := wire.DecodeReply(head, message, &wire.Opened{}); err != nil {
			h.Kinds += bb.KindOf(err).String() + " "
			break
		}
		h.Files++
	}
	for id := uint64(1); id <= 40; id++ { // few enough for their refusals to fit into the socket
		if _, err := wire.WriteFrame(conn, nil, wire.Type_TYPE_SUBSCRIBE, 0, id, &wire.Subscribe{Buffer: "hoard"}, nil); err != nil {
			return err
		}
	}
	for { // every refusal names its request. Events may come between
		head, message, err := in.Next()
		if err != nil {
			return err
		}
		if head.Has(wire.FlagError) {
			h.Requests = int(head.Request) - 1
			h.Kinds += bb.KindOf(wire.DecodeReply(head, message, nil)).String()
			return nil
		}
	}
}

// unfinished leaves large requests unfinished in as many sessions, more than the daemon reads of.
func unfinished(socket string) (end func(), err error) {
	frame, err := wire.AppendFrame(nil, wire.Type_TYPE_COMMIT, 0, 9, &wire.Commit{Handle: 1}, wire.MaxData)
	if err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, wire.MaxData-100)...)
	var (
		all   sync.WaitGroup
		conns []net.Conn
	)
	for range 8 {
		conn, _, err := raw(socket)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
		all.Go(func() { conn.Write(frame) }) // which never ends where nothing is read
	}
	return func() {
		for _, conn := range conns {
			conn.Close()
		}
		all.Wait()
	}, nil
}

// TestHoarder checks the bounds of the daemon's memory for one user's sessions, and that root
// continues.
func TestHoarder(t *testing.T) {
	t.Parallel()
	open := openDir(t)
	n := startNode(t, func(c *bbd.Config) {
		c.Limits.OpenFiles, c.Limits.Requests, c.Limits.Bytes = 100, 60, 32<<20
	})
	chmod(t, n.dir, 0o755)
	for range 2 { // returned places are free again
		var h hoarded
		end := holdAs(t, open, intruderUID, hoarderEnv+"="+n.socket, &h)
		want := hoarded{Files: 50, Requests: 30, Kinds: "busy busy"}
		if h.Requests == 29 { // the opening that was refused counts until shortly after its answer
			want.Requests = 29
		}
		if h != want {
			t.Errorf("got %+v, want %+v", h, want)
		}
		// A user alone has half of the memory for requests, which are four of them.
		eventually(t, "the user's share is used up", func() bool { return n.daemon.RequestBytes(intruderUID) == 16<<20 })
		root := n.dial()
		b, _ := n.buffer(root, admin.BufferSpec{Name: "roots"})
		write(t, b, "f", random(10<<20))
		end()
		eventually(t, "the user's share is given back", func() bool { return n.daemon.RequestBytes(intruderUID) == 0 })
		for _, name := range []string{"hoard", "roots"} {
			if err := admin.DiscardBuffer(t.Context(), root, name); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWritersThatWait: one user's writers that wait for room do not keep another's from the line.
func TestWritersThatWait(t *testing.T) {
	t.Parallel()
	const his, hers = 5001, 5002
	open, address := openDir(t), freeAddress(t)
	n := startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.Keys, c.Limits.Waiters = address, "127.0.0.1:0", wire.NewKeyring(fabricKey), 8
	})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	sessions := map[uint32]*farSession{}
	for uid, name := range map[uint32]string{his: "full", hers: "empty"} {
		r, store := farDial(t, address, uid), mkdir(t, open, name, 0o700)
		if err := os.Chown(store, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
		r.ok(wire.Type_TYPE_BUFFER_CREATE, &wire.Buffer{Name: name, Capacity: 1 << 20, Backing: "file://" + store}, nil, &wire.Buffer{})
		sessions[uid] = r
	}
	r := sessions[his]
	r.open(&wire.Open{Handle: 1, Buffer: "full", Path: "f", Write: true, Create: true, Mode: 0o600})
	content := random(1 << 20)
	r.ok(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Extents: []*wire.NewExtent{{Length: 1 << 20, Checksum: checksum.Sum(content)}}}, content, &wire.Committed{})
	lease := func(buffer string) *wire.LeaseRequest { return &wire.LeaseRequest{Buffer: buffer, Bytes: 1 << 20} }
	tooMany := func(r *farSession) {
		t.Helper()
		for range 5 { // half of the places, as the user is alone in the line, and one more
			r.send(wire.Type_TYPE_LEASE, lease("full"), nil)
		}
		if reply := r.receive(); !reply.head.Has(wire.FlagError) || reply.error(t).Kind != bb.Busy {
			t.Errorf("one writer too many: %+v", reply)
		}
	}
	tooMany(r)
	sessions[hers].ok(wire.Type_TYPE_LEASE, lease("empty"), nil, &wire.Lease{})
	r.conn.Close()
	again := farDial(t, address, his)
	eventually(t, "the user's places in the line are given back", func() bool { return n.status().Waiting.Writers == 0 })
	tooMany(again)
}

// TestNoWaitTakesWhatIsClean: a writer that does not wait gets clean memory of its user's while another user waits in the
// line, when nothing is evicted ahead of requests.
func TestNoWaitTakesWhatIsClean(t *testing.T) {
	t.Parallel()
	const his, hers = 5001, 5002
	address := freeAddress(t)
	n := startNode(t, func(c *bbd.Config) {
		c.Store.MemoryBytes, c.Store.RegionBytes, c.Store.Shares = 128<<20, 16<<20, true
		c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey)
	})
	store := mkdir(t, openDir(t), "store", 0o700)
	if err := os.Chown(store, hers, hers); err != nil {
		t.Fatal(err)
	}
	root := n.dial()
	for _, spec := range []admin.BufferSpec{
		{Name: "clean", Backing: "file://" + store, UID: hers, GID: hers},
		{Name: "urgent", UID: hers, GID: hers, NoWait: true},
		{Name: "waits", UID: his, GID: his},
	} {
		if _, err := admin.CreateBuffer(t.Context(), root, spec); err != nil {
			t.Fatal(err)
		}
	}
	r, other := farDial(t, address, hers), farDial(t, address, his)
	for _, conn := range []net.Conn{r.conn, other.conn} {
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
	}
	content := random(1 << 20)
	put := func(handle uint64, buffer string) rawReply {
		t.Helper()
		r.open(&wire.Open{Handle: handle, Buffer: buffer, Path: fmt.Sprint("f", handle), Write: true, Create: true, Mode: 0o600})
		m := &wire.Commit{Handle: handle, Close: true, Extents: []*wire.NewExtent{{Length: 1 << 20, Checksum: checksum.Sum(content)}}}
		return r.call(wire.Type_TYPE_COMMIT, m, content)
	}
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	files := uint64(1)
	if reply := put(files, "urgent"); reply.head.Has(wire.FlagError) { // she stays a user with memory, even if all is clean
		t.Fatalf("%+v", reply.error(t))
	}
	for files < 30 {
		files++
		if reply := put(files, "clean"); reply.head.Has(wire.FlagError) {
			t.Fatalf("file %d: %+v", files, reply.error(t))
		}
	}
	for range 60 { // more than a user's share
		other.send(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "waits", Bytes: 1 << 20}, nil)
	}
	eventually(t, "the other user waits", func() bool { return !n.status().Memory.Populating && n.status().Waiting.Writers > 0 })
	n.faults.Set()
	drain(t, root, "clean")
	for range 24 {
		files++
		if reply := put(files, "urgent"); reply.head.Has(wire.FlagError) {
			t.Fatalf("beside memory of the same user that is clean: %+v", reply.error(t))
		}
	}
	if n.status().Waiting.Writers == 0 {
		t.Error("the other user does not wait any more: the test does not test")
	}
}
