package bbd_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// rawSession sends frames, also those that the client package never sends.
type rawSession struct {
	t    *testing.T
	conn net.Conn
	in   *wire.Reader
	last uint64
}

// rawReply is a frame that came back.
type rawReply struct {
	head    wire.Header
	message []byte
	data    []byte
}

// connect opens a connection without a handshake.
func (n *node) connect() *rawSession {
	n.t.Helper()
	conn, err := net.Dial("unix", n.socket)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &rawSession{t: n.t, conn: conn, in: wire.NewReader(conn)}
}

// raw opens a session.
func (n *node) raw() *rawSession {
	n.t.Helper()
	r := n.connect()
	r.ok(wire.Type_TYPE_HELLO, &wire.Hello{MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Client: "raw"}, nil, &wire.Welcome{})
	return r
}

func (r *rawSession) send(typ wire.Type, m proto.Message, data []byte) uint64 {
	r.t.Helper()
	r.last++
	if _, err := wire.WriteFrame(r.conn, nil, typ, 0, r.last, m, data); err != nil {
		r.t.Fatalf("sending %v: %v", typ, err)
	}
	return r.last
}

func (r *rawSession) receive() rawReply {
	r.t.Helper()
	head, message, err := r.in.Next()
	if err != nil {
		r.t.Fatalf("no reply: %v", err)
	}
	reply := rawReply{head, append([]byte(nil), message...), make([]byte, head.DataLength)}
	if err := r.in.ReadData(reply.data); head.DataLength > 0 && err != nil {
		r.t.Fatal(err)
	}
	return reply
}

func (r *rawSession) call(typ wire.Type, m proto.Message, data []byte) rawReply {
	r.t.Helper()
	id := r.send(typ, m, data)
	reply := r.receive()
	if reply.head.Request != id || !reply.head.Has(wire.FlagReply) {
		r.t.Fatalf("%v: an answer to %d with flags %#x, not to %d", typ, reply.head.Request, reply.head.Flags, id)
	}
	return reply
}

// ok calls and takes the answer.
func (r *rawSession) ok(typ wire.Type, m proto.Message, data []byte, answer proto.Message) {
	r.t.Helper()
	reply := r.call(typ, m, data)
	if reply.head.Has(wire.FlagError) {
		r.t.Fatalf("%v: %v", typ, reply.error(r.t))
	}
	if err := proto.Unmarshal(reply.message, answer); err != nil {
		r.t.Fatal(err)
	}
}

// refused calls, and checks for an error of a kind with a reason.
func (r *rawSession) refused(what string, kind bb.Kind, typ wire.Type, m proto.Message, data []byte) {
	r.t.Helper()
	reply := r.call(typ, m, data)
	if !reply.head.Has(wire.FlagError) {
		r.t.Errorf("%s: %v was not refused", what, typ)
		return
	}
	err := reply.error(r.t)
	if err.Kind != kind || err.Err == nil {
		r.t.Errorf("%s: %v gives %v, want kind %v and a reason", what, typ, err, kind)
	}
}

func (p rawReply) error(t *testing.T) *bb.Error {
	t.Helper()
	var m wire.Error
	if err := proto.Unmarshal(p.message, &m); err != nil {
		t.Fatal(err)
	}
	return m.AsError()
}

// ends checks that the daemon ends the connection.
func (r *rawSession) ends(what string) {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	for {
		_, _, err := r.in.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.t.Errorf("%s: the session goes on", what)
		}
		if err != nil {
			return
		}
	}
}

// listing is all that there is, as text.
func listing(t *testing.T, c *client.Client) string {
	t.Helper()
	buffers, err := admin.Buffers(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, spec := range buffers {
		fmt.Fprintf(&all, "%+v\n", spec)
		for e, err := range c.Buffer(spec.Name).Walk(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "%+v\n", e)
		}
	}
	return all.String()
}

// badNode is a daemon with something in it, and a way to determine that it did not change.
func badNode(t *testing.T, change func(*bbd.Config)) (n *node, unchanged func()) {
	t.Helper()
	n = startNode(t, change)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "good"})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	content := random(100_000)
	write(t, b, "f", content)
	write(t, b, "d/g", []byte("gee"))
	drain(t, c, "good")
	before := listing(t, c)
	return n, func() {
		t.Helper()
		c := n.dial()
		defer c.Close()
		if after := listing(t, c); after != before {
			t.Errorf("something changed:\n%s\nwas\n%s", after, before)
		}
		wantFile(t, c.Buffer("good"), "f", content)
		eventually(t, "handles and leases are released", func() bool {
			for _, s := range n.status().Sessions {
				if s.Client == "raw" && (s.Leases > 0 || s.Handles > 0) {
					return false
				}
			}
			return true
		})
	}
}

func TestBadPaths(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, nil)
	r := n.raw()
	handle := uint64(0)
	everywhere := func(what, buffer, path string, kind bb.Kind) {
		t.Helper()
		at := &wire.PathRequest{Buffer: buffer, Path: path}
		r.refused(what, kind, wire.Type_TYPE_STAT, at, nil)
		r.refused(what, kind, wire.Type_TYPE_LIST, &wire.ListRequest{Buffer: buffer, Path: path}, nil)
		for _, parents := range []bool{false, true} {
			r.refused(what, kind, wire.Type_TYPE_MKDIR, &wire.Mkdir{Buffer: buffer, Path: path, Parents: parents}, nil)
		}
		r.refused(what, kind, wire.Type_TYPE_RENAME, &wire.Rename{Buffer: buffer, From: "f", To: path}, nil)
		r.refused(what, kind, wire.Type_TYPE_RENAME, &wire.Rename{Buffer: buffer, From: path, To: "f2"}, nil)
		for _, recursive := range []bool{false, true} {
			r.refused(what, kind, wire.Type_TYPE_REMOVE, &wire.Remove{Buffer: buffer, Path: path, Recursive: recursive}, nil)
		}
		r.refused(what, kind, wire.Type_TYPE_SET_XATTR, &wire.SetXattr{Buffer: buffer, Path: path, Name: []byte("user.a")}, nil)
		r.refused(what, kind, wire.Type_TYPE_XATTRS, at, nil)
		r.refused(what, kind, wire.Type_TYPE_SETATTR, &wire.SetAttr{Buffer: buffer, Path: path, Mode: proto.Uint32(0)}, nil)
		for _, m := range []*wire.Open{{}, {Write: true, Create: true}, {Write: true, Create: true, Exclusive: true}} {
			handle++
			m.Handle, m.Buffer, m.Path = handle, buffer, path
			r.refused(what, kind, wire.Type_TYPE_OPEN, m, nil)
			r.refused(what, kind, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: handle, Close: true}, nil)
			r.ok(wire.Type_TYPE_CLOSE, &wire.Close{Handle: handle}, nil, &wire.Empty{})
		}
		stage := &wire.Stage{Buffer: buffer, Path: path, Url: "file://" + n.base}
		r.refused(what, kind, wire.Type_TYPE_STAGE_IN, stage, nil)
		r.refused(what, kind, wire.Type_TYPE_STAGE_OUT, stage, nil)
	}
	for what, path := range map[string]string{
		"dots": "../x", "dots inside": "d/../../x", "dots at the end": "d/..", "a NUL byte": "a\x00b",
		"a name of 300 bytes": strings.Repeat("n", 300), "a name of 300 bytes of two each": "n" + strings.Repeat("ü", 150),
		"a depth of 1,000": strings.Repeat("d/", 1000), "5,000 bytes": strings.Repeat("a", 5000),
		"a long path of characters of three bytes": strings.Repeat("d/€", 2000), "almost a whole frame": strings.Repeat("d/", wire.MaxMessage/2-50),
	} {
		everywhere(what, "good", path, bb.Invalid)
	}
	everywhere("an unknown buffer", "absent", "f", bb.NotFound)
	for _, name := range []string{"", "..", "a/b", "UPPER", "a\x00b", "nö", strings.Repeat("x", 64), strings.Repeat("ü", 400_000)} {
		everywhere("a buffer's name that is none", name, "f", bb.Invalid)
	}
	for _, m := range []*wire.Mkdir{{Buffer: "good", Path: ""}, {Buffer: "good", Path: "f"}} {
		r.refused("a directory that is there", bb.Exists, wire.Type_TYPE_MKDIR, m, nil)
	}
	r.refused("a file as directory", bb.NotDirectory, wire.Type_TYPE_MKDIR, &wire.Mkdir{Buffer: "good", Path: "f/x/y", Parents: true}, nil)
	r.refused("below itself", bb.Invalid, wire.Type_TYPE_RENAME, &wire.Rename{Buffer: "good", From: "d", To: "d/e"}, nil)
	unchanged()
}

// openedFile opens a file on a raw session.
func (r *rawSession) open(m *wire.Open) *wire.Opened {
	r.t.Helper()
	answer := &wire.Opened{}
	r.ok(wire.Type_TYPE_OPEN, m, nil, answer)
	return answer
}

func TestBadExtents(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, nil)
	r := n.raw()
	r.open(&wire.Open{Handle: 1, Buffer: "good", Path: "new", Write: true, Create: true})
	commit := func(what string, data []byte, extents ...*wire.NewExtent) {
		t.Helper()
		r.refused(what, bb.Invalid, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Extents: extents}, data)
	}
	commit("a negative offset", []byte("x"), &wire.NewExtent{FileOffset: -1, Length: 1})
	commit("a negative length", []byte("x"), &wire.NewExtent{Length: -1})
	commit("no length", []byte("x"), &wire.NewExtent{})
	commit("beyond the largest file", []byte("x"), &wire.NewExtent{FileOffset: bb.MaxFileSize, Length: 1})
	commit("an overflow", []byte("x"), &wire.NewExtent{FileOffset: math.MaxInt64, Length: 1})
	commit("both largest", []byte("x"), &wire.NewExtent{FileOffset: math.MaxInt64, Length: math.MaxInt64})
	commit("less data than announced", []byte("x"), &wire.NewExtent{Length: 2})
	commit("more data than announced", []byte("xyz"), &wire.NewExtent{Length: 2, Checksum: checksum.Sum([]byte("xy"))})
	commit("data and no extent", []byte("xyz"))
	r.refused("a wrong checksum", bb.Checksum, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Extents: []*wire.NewExtent{{Length: 2, Checksum: 5}}}, []byte("xy"))

	var lease, foreign wire.Lease
	r.ok(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "good", Bytes: 1 << 20}, nil, &lease)
	other := n.raw()
	other.ok(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "good", Bytes: 1 << 20}, nil, &foreign)
	leased := func(what string, id uint64, offset, length int64) {
		t.Helper()
		commit(what, nil, &wire.NewExtent{Length: length, Lease: id, SegmentOffset: offset})
	}
	leased("another session's lease", foreign.Id, foreign.DataStart, 1)
	leased("a lease that never was", 1<<60, lease.DataStart, 1)
	leased("before the data", lease.Id, lease.DataStart-8, 8)
	leased("the segment's header", lease.Id, 0, 8)
	leased("a negative place", lease.Id, -64, 8)
	leased("beyond the record floor", lease.Id, lease.RecordFloor, 8)
	leased("up into the records", lease.Id, lease.DataStart, lease.Length)
	leased("beyond the segment", lease.Id, lease.Length, 8)
	leased("an overflowing place", lease.Id, math.MaxInt64, 8)
	leased("an overflowing length", lease.Id, lease.DataStart, math.MaxInt64/2)
	r.refused("a lease of less than nothing", bb.Invalid, wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "good", Bytes: -1}, nil)
	r.refused("returning another's lease", bb.Invalid, wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: foreign.Id}, nil)
	r.ok(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: lease.Id}, nil, &wire.Empty{})
	leased("a lease that was returned", lease.Id, lease.DataStart, 8)
	r.refused("returning it twice", bb.Invalid, wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: lease.Id}, nil)
	r.refused("an abort that does not close", bb.Invalid, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Abort: true}, nil)
	r.ok(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Abort: true, Close: true}, nil, &wire.Committed{})

	r.open(&wire.Open{Handle: 2, Buffer: "good", Path: "f"})
	for what, m := range map[string]*wire.ExtentsRequest{
		"a negative offset": {Offset: -1, Length: 1}, "a negative length": {Length: -1},
		"the largest offset": {Offset: math.MaxInt64, Length: 1}, "the largest length": {Length: math.MaxInt64},
		"both": {Offset: math.MaxInt64, Length: math.MaxInt64},
	} {
		m.Handle = 2
		r.refused(what, bb.Invalid, wire.Type_TYPE_EXTENTS, m, nil)
	}
	var empty wire.Extents
	r.ok(wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: 2, Offset: 100_000, Length: 1 << 40}, nil, &empty)
	if len(empty.Extents) != 0 || empty.DataLength != 0 || empty.Pin != 0 {
		t.Errorf("beyond the end there is %+v", &empty)
	}
	r.refused("committing to what is read", bb.Invalid, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 2}, nil)
	r.ok(wire.Type_TYPE_UNPIN, &wire.Unpin{Pins: []uint64{0, 1 << 63, 7}}, nil, &wire.Empty{})
	r.ok(wire.Type_TYPE_CLOSE, &wire.Close{Handle: 2}, nil, &wire.Empty{})
	unchangedAfter(other, unchanged)
}

func unchangedAfter(r *rawSession, unchanged func()) {
	r.t.Helper()
	r.conn.Close()
	unchanged()
}

func TestBadHandles(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, func(cfg *bbd.Config) { cfg.Limits.Handles, cfg.Limits.Leases = 3, 2 })
	r := n.raw()
	r.refused("handle 0", bb.Invalid, wire.Type_TYPE_OPEN, &wire.Open{Buffer: "good", Path: "f"}, nil)
	r.open(&wire.Open{Handle: 9, Buffer: "good", Path: "f"})
	r.refused("a handle in use", bb.Invalid, wire.Type_TYPE_OPEN, &wire.Open{Handle: 9, Buffer: "good", Path: "f"}, nil)
	for _, h := range []uint64{0, 1, math.MaxUint64} {
		r.refused("an unknown handle", bb.Invalid, wire.Type_TYPE_COMMIT, &wire.Commit{Handle: h, Close: true}, nil)
		r.refused("an unknown handle", bb.Invalid, wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: h, Length: 1}, nil)
		r.refused("an unknown handle", bb.Invalid, wire.Type_TYPE_CLOSE, &wire.Close{Handle: h}, nil)
	}
	other := n.raw()
	other.refused("another session's handle", bb.Invalid, wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: 9, Length: 1}, nil)
	r.open(&wire.Open{Handle: 10, Buffer: "good", Path: "f"})
	r.open(&wire.Open{Handle: 11, Buffer: "good", Path: "f"})
	r.refused("more handles than allowed", bb.Invalid, wire.Type_TYPE_OPEN, &wire.Open{Handle: 12, Buffer: "good", Path: "f"}, nil)
	for range 2 {
		r.ok(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "good"}, nil, &wire.Lease{})
	}
	r.refused("more leases than allowed", bb.Busy, wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "good"}, nil)
	for h := range uint64(3) {
		r.ok(wire.Type_TYPE_CLOSE, &wire.Close{Handle: 9 + h}, nil, &wire.Empty{})
	}
	r.refused("a closed handle", bb.Invalid, wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: 9, Length: 1}, nil)
	r.refused("resuming nothing", bb.Lost, wire.Type_TYPE_OPEN, &wire.Open{
		Handle: 9, Buffer: "good", Path: "ghost", Write: true, ResumeFile: 77, ResumeGeneration: 78, ResumeCommitted: true,
	}, nil)
	unchangedAfter(r, unchanged)
}

func TestTooManyInFlight(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, func(cfg *bbd.Config) { cfg.Limits.InFlight = 5 })
	r := n.raw()
	for range 5 {
		r.send(wire.Type_TYPE_SUBSCRIBE, &wire.Subscribe{Buffer: "good"}, nil) // answered when something happens
	}
	for range 100 {
		r.refused("one request too many", bb.Busy, wire.Type_TYPE_STAT, &wire.PathRequest{Buffer: "good", Path: "f"}, nil)
	}
	unchangedAfter(r, unchanged)
}

func TestBadFrames(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, func(cfg *bbd.Config) { cfg.Limits.Handshake = 200 * time.Millisecond })
	frame, err := wire.AppendFrame(nil, wire.Type_TYPE_STAT, 0, 1, &wire.PathRequest{Buffer: "good", Path: "f"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int, v uint32) []byte {
		c := append([]byte(nil), frame...)
		binary.LittleEndian.PutUint32(c[at:], v)
		return c
	}
	notAMessage, err := wire.AppendFrame(nil, wire.Type_TYPE_STAT, 0, 1, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A message whose checksum is right and that is no protobuf.
	var unknown wire.Empty
	unknown.ProtoReflect().SetUnknown([]byte{0xff, 0xff, 0xff})
	garbage, err := wire.AppendFrame(nil, wire.Type_TYPE_OPEN, 0, 1, &unknown, 0)
	if err != nil {
		t.Fatal(err)
	}
	for what, bytes := range map[string][]byte{
		"a message of 4 GiB":       changed(0, math.MaxUint32),
		"a message just too large": changed(0, wire.MaxMessage+1),
		"data of 4 GiB":            changed(4, math.MaxUint32),
		"data just too large":      changed(4, wire.MaxData+1),
		"a changed request id":     changed(8, 77),
		"a changed checksum":       changed(20, 77),
		"noise":                    random(4096),
		"zeros":                    make([]byte, 4096),
		"HTTP":                     []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"a message that is none":   garbage,
	} {
		r := n.raw()
		r.conn.Write(bytes)
		r.ends(what)
		r.conn.Close()
		r = n.connect() // the same before Hello
		r.conn.Write(bytes)
		r.ends(what + " before Hello")
	}
	for cut := 1; cut < len(frame); cut += 5 {
		r := n.raw()
		r.conn.Write(frame[:cut])
		r.conn.(*net.UnixConn).CloseWrite()
		r.ends(fmt.Sprintf("a frame cut after %d bytes", cut))
	}
	silent := n.connect()
	silent.ends("a client that says nothing")
	r := n.raw()
	r.conn.Write(notAMessage) // an empty message is one, of no buffer
	if err := r.receive().error(t); err.Kind != bb.Invalid {
		t.Errorf("an empty request: %v", err)
	}
	eventually(t, "the sessions end", func() bool { return len(n.status().Sessions) <= 2 })
	unchanged()
}

func TestBadHandshakes(t *testing.T) {
	t.Parallel()
	n, unchanged := badNode(t, nil)
	hello := func(low, high uint32) *wire.Hello {
		return &wire.Hello{MinVersion: low, MaxVersion: high, Client: "raw"}
	}
	for what, m := range map[string]*wire.Hello{
		"a newer protocol": hello(wire.MaxVersion+1, wire.MaxVersion+9), "an older one": hello(0, wire.MinVersion-1),
	} {
		r := n.connect()
		r.refused(what, bb.Unsupported, wire.Type_TYPE_HELLO, m, nil)
		r.ends(what)
	}
	r := n.connect()
	r.refused("no Hello first", bb.Invalid, wire.Type_TYPE_STAT, &wire.PathRequest{Buffer: "good", Path: "f"}, nil)
	r.ends("no Hello first")
	r = n.connect()
	r.refused("Hello with data", bb.Invalid, wire.Type_TYPE_HELLO, hello(1, 1), []byte("x"))
	r.ends("Hello with data")

	r = n.raw()
	r.refused("a second Hello", bb.Invalid, wire.Type_TYPE_HELLO, hello(1, 1), nil)
	r.refused("a proof nobody asked for", bb.Invalid, wire.Type_TYPE_PROVE, &wire.Prove{Proof: []byte("x")}, nil)
	r.refused("a request of a later time", bb.Unsupported, wire.Type(9999), nil, nil)
	r.refused("such a request with data", bb.Unsupported, wire.Type(999), nil, random(1000))
	r.ok(wire.Type_TYPE_STAT, &wire.PathRequest{Buffer: "good", Path: "f"}, nil, &wire.Entry{})
	unchanged()
}

// Replies stay within a frame however long names and reasons are.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(cfg *bbd.Config) { cfg.Flush.DirtyAge, cfg.Flush.Workers = time.Millisecond, 16 })
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "long"})
	const files = 2500
	names := map[string]bool{}
	for i := range files {
		name := strings.Repeat("n", 250) + fmt.Sprintf("%05d", i)
		names[name] = true
		write(t, b, name, []byte("x"))
	}
	listed := func() (n, reasons int) {
		for e, err := range b.ReadDir(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if n++; !names[e.Name] {
				t.Fatalf("%s is listed", e.Name)
			}
			if e.Reason != "" {
				reasons++
			}
		}
		return n, reasons
	}
	eventually(t, "every flush has failed", func() bool {
		n, reasons := listed()
		if n != files {
			t.Fatalf("%d files are listed, %d were written", n, files)
		}
		return reasons == files
	})
	n.loseMemory()
	c = n.dial()
	lost, err := c.Buffer("long").Lost(t.Context())
	if err != nil || len(lost) != files {
		t.Errorf("%d files are lost, %d should be (%v)", len(lost), files, err)
	}
}
