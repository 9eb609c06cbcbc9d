package client_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	mrand "math/rand/v2"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// fake is a small daemon in memory. It uses the real protocol on a real socket and keeps real
// region files, and it is stricter than a daemon has to be. It checks every extent's checksum and
// that no commit's data and records meet. As a daemon does, it carries no request of a session out
// once the next one of the same client has begun.
type fake struct {
	t      testing.TB
	dir    string
	socket string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	sessions map[string]*fakeConn // the last one of each client, by Hello.connection
	wg       sync.WaitGroup

	epoch, instance uint64
	inlineOnly      bool
	inlineThreshold uint32
	maxInFlight     uint32
	key             []byte

	// Hooks, all optional, called without the lock.
	onRequest func(c *fakeConn, h wire.Header, m proto.Message) (handled bool)
	leaseGate chan struct{} // a lease is granted for each receive; closed: at once

	buffers map[string]*wire.Buffer
	entries map[string]*fakeEntry // by buffer/path
	regions []*fakeRegion
	leases  map[uint64]*fakeLease
	last    uint64
	counts  map[wire.Type]int
	pins    int
	version uint32 // of the protocol; 0: the newest
	spoil   bool   // fill the segments of leases that end, as if others wrote there
}

type fakeRegion struct {
	wire.Region
	mem  []byte
	used int64
}

type fakeLease struct {
	conn       *fakeConn
	id         uint64
	region     *fakeRegion
	off, len   int64
	floor, end int64
}

type fakeEntry struct {
	wire.Entry
	visible []*wire.Extent
	size    int64
	next    *fakeGeneration // being written
}

type fakeGeneration struct {
	number    uint64
	visible   []*wire.Extent
	size      int64
	writers   int
	published bool
}

type fakeConn struct {
	f       *fake
	conn    net.Conn
	in      *wire.Reader
	out     *wire.Writer
	handles map[uint64]*fakeHandle
	pins    map[uint64]bool
	data    []byte // of the request that is being handled
	stop    chan struct{}
	wg      sync.WaitGroup

	replaced bool          // the client's next session has begun
	ended    chan struct{} // closed at the session's end
}

type fakeHandle struct {
	key     string
	e       *fakeEntry
	gen     *fakeGeneration // for writing
	visible []*wire.Extent  // for reading
	size    int64
	err     error
}

const fakeRegionSize = 64 << 20

func newFake(t testing.TB) *fake {
	f := &fake{
		t: t, dir: t.TempDir(), epoch: 1, instance: 7, inlineThreshold: 32 << 10, maxInFlight: 1024,
		conns: map[net.Conn]struct{}{}, sessions: map[string]*fakeConn{}, buffers: map[string]*wire.Buffer{}, entries: map[string]*fakeEntry{},
		leases: map[uint64]*fakeLease{}, counts: map[wire.Type]int{},
	}
	f.socket = filepath.Join(f.dir, "bbd.sock")
	f.buffers["b"] = &wire.Buffer{Name: "b", Mode: 0o755, State: "active"}
	f.entries["b/"] = &fakeEntry{Entry: wire.Entry{Type: uint32(bb.TypeDirectory), Mode: 0o755, MtimeNs: 1}}
	f.start()
	t.Cleanup(func() {
		f.kill()
		for _, r := range f.regions {
			unix.Munmap(r.mem)
		}
	})
	return f
}

func (f *fake) address() string { return "unix://" + f.socket }

func (f *fake) start() {
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			if f.listener != l { // killed meanwhile
				conn.Close()
			}
			f.conns[conn] = struct{}{}
			f.mu.Unlock()
			f.wg.Go(func() { f.serve(conn) })
		}
	})
}

// cut breaks all connections. The daemon keeps running.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

// kill ends the daemon. Committed bytes stay. Writers are lost.
func (f *fake) kill() {
	f.mu.Lock()
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
	f.mu.Unlock()
	f.cut()
	f.wg.Wait()
}

func (f *fake) restart() {
	f.kill()
	f.mu.Lock()
	f.epoch++
	f.mu.Unlock()
	f.start()
}

func (f *fake) count(t wire.Type) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[t]
}

func (f *fake) id() uint64 { f.last++; return f.last }

func (f *fake) serve(conn net.Conn) {
	c := &fakeConn{
		f: f, conn: conn, in: wire.NewReader(conn), out: wire.NewWriter(conn), handles: map[uint64]*fakeHandle{},
		pins: map[uint64]bool{}, stop: make(chan struct{}), ended: make(chan struct{}),
	}
	defer c.end()
	for {
		h, message, err := c.in.Next()
		if err != nil {
			return
		}
		m := fakeMessage(h.Type)
		if m == nil || proto.Unmarshal(message, m) != nil {
			return
		}
		data := make([]byte, h.DataLength)
		if len(data) > 0 && c.in.ReadData(data) != nil {
			return
		}
		c.data = data
		if hello, ok := m.(*wire.Hello); ok {
			c.replace(string(hello.Connection))
		}
		f.mu.Lock()
		if c.replaced {
			f.mu.Unlock()
			return
		}
		f.counts[h.Type]++
		hook := f.onRequest
		f.mu.Unlock()
		if hook != nil && hook(c, h, m) {
			continue
		}
		c.handle(h, m, data)
	}
}

// replace waits for the end of the client's session before this one.
func (c *fakeConn) replace(connection string) {
	f := c.f
	if connection == "" {
		return
	}
	f.mu.Lock()
	old := f.sessions[connection]
	f.sessions[connection] = c
	if old != nil {
		old.replaced = true
		old.conn.Close()
	}
	f.mu.Unlock()
	if old != nil {
		<-old.ended
	}
}

func fakeMessage(t wire.Type) proto.Message {
	switch t {
	case wire.Type_TYPE_HELLO:
		return new(wire.Hello)
	case wire.Type_TYPE_PROVE:
		return new(wire.Prove)
	case wire.Type_TYPE_CANCEL:
		return new(wire.Cancel)
	case wire.Type_TYPE_STATUS:
		return new(wire.StatusRequest)
	case wire.Type_TYPE_SUBSCRIBE:
		return new(wire.Subscribe)
	case wire.Type_TYPE_BUFFER_CREATE:
		return new(wire.Buffer)
	case wire.Type_TYPE_BUFFER_GET, wire.Type_TYPE_LOST, wire.Type_TYPE_RECEIPT:
		return new(wire.BufferName)
	case wire.Type_TYPE_BUFFER_LIST:
		return new(wire.Empty)
	case wire.Type_TYPE_BUFFER_DESTROY:
		return new(wire.BufferDestroy)
	case wire.Type_TYPE_STAT:
		return new(wire.PathRequest)
	case wire.Type_TYPE_LIST:
		return new(wire.ListRequest)
	case wire.Type_TYPE_MKDIR:
		return new(wire.Mkdir)
	case wire.Type_TYPE_MKNOD:
		return new(wire.Mknod)
	case wire.Type_TYPE_RENAME:
		return new(wire.Rename)
	case wire.Type_TYPE_EXCHANGE:
		return new(wire.ExchangeNames)
	case wire.Type_TYPE_REMOVE:
		return new(wire.Remove)
	case wire.Type_TYPE_OPEN:
		return new(wire.Open)
	case wire.Type_TYPE_COMMIT:
		return new(wire.Commit)
	case wire.Type_TYPE_EXTENTS:
		return new(wire.ExtentsRequest)
	case wire.Type_TYPE_UNPIN:
		return new(wire.Unpin)
	case wire.Type_TYPE_CLOSE:
		return new(wire.Close)
	case wire.Type_TYPE_LEASE:
		return new(wire.LeaseRequest)
	case wire.Type_TYPE_RETURN:
		return new(wire.ReturnLease)
	case wire.Type_TYPE_DRAIN:
		return new(wire.Drain)
	case wire.Type_TYPE_VERIFY:
		return new(wire.Verify)
	case wire.Type_TYPE_SETATTR:
		return new(wire.SetAttr)
	case wire.Type_TYPE_SET_XATTR:
		return new(wire.SetXattr)
	case wire.Type_TYPE_NODE_FORGET, wire.Type_TYPE_NODE_UNDRAIN:
		return new(wire.NodeName)
	case wire.Type_TYPE_LIFETIME_DUE:
		return new(wire.LifetimeDue)
	case wire.Type_TYPE_TXN_BEGIN:
		return new(wire.TxnBegin)
	}
	return nil
}

func (c *fakeConn) reply(h wire.Header, m proto.Message, data []byte, err error) {
	if err != nil {
		c.out.Send(h.Type, wire.FlagReply|wire.FlagError, h.Request, wire.FailedReply(h.Type, err), nil)
		return
	}
	c.out.Send(h.Type, wire.FlagReply, h.Request, m, data)
}

func (c *fakeConn) more(h wire.Header, m proto.Message, data []byte) {
	c.out.Send(h.Type, wire.FlagReply|wire.FlagMore, h.Request, m, data)
}

func (c *fakeConn) handle(h wire.Header, m proto.Message, data []byte) {
	f := c.f
	if r, ok := m.(*wire.LeaseRequest); ok && f.leaseGate != nil {
		c.wg.Go(func() {
			select {
			case <-f.leaseGate:
			case <-c.stop:
				return
			}
			f.mu.Lock()
			reply, err := c.lease(r)
			f.mu.Unlock()
			c.reply(h, reply, nil, err)
		})
		return
	}
	f.mu.Lock()
	reply, out, err := c.answer(h, m, data)
	f.mu.Unlock()
	if reply == nil && err == nil {
		return
	}
	c.reply(h, reply, out, err)
}

// answer carries a request out. The fake is locked.
func (c *fakeConn) answer(h wire.Header, m proto.Message, data []byte) (proto.Message, []byte, error) {
	f := c.f
	switch m := m.(type) {
	case *wire.Hello:
		if f.key != nil {
			nonce := make([]byte, wire.NonceSize)
			rand.Read(nonce)
			x, err := wire.NewExchange(c.conn, m.Nonce, nonce)
			if err != nil {
				return nil, nil, err
			}
			c.more(h, &wire.Challenge{Nonce: nonce, Proof: x.DaemonProof(f.key)}, nil)
			return nil, nil, nil
		}
		return f.welcome(), nil, nil
	case *wire.Prove:
		return f.welcome(), nil, nil
	case *wire.Cancel:
		return &wire.Empty{}, nil, nil
	case *wire.StatusRequest:
		return &wire.StatusReply{Json: []byte(`{"node":"fake"}`)}, nil, nil
	case *wire.Subscribe:
		e, _ := json.Marshal(bb.Event{Kind: bb.EventCommitted, Buffer: "b", Path: "x"})
		for range 3 {
			c.more(h, &wire.Event{Json: e}, nil)
		}
		return nil, nil, nil
	case *wire.Buffer:
		if f.buffers[m.Name] != nil {
			return nil, nil, bb.E(bb.Exists, "create buffer", m.Name, "it is there")
		}
		f.buffers[m.Name] = m
		f.entries[m.Name+"/"] = &fakeEntry{Entry: wire.Entry{Type: uint32(bb.TypeDirectory), Mode: 0o755, MtimeNs: 1}}
		return m, nil, nil
	case *wire.BufferName:
		if h.Type == wire.Type_TYPE_LOST {
			return &wire.Entries{Entries: []*wire.Entry{{Path: "gone", Name: "gone", Type: 1, State: uint32(bb.StateLost), Reason: "node x died"}}}, nil, nil
		}
		if h.Type == wire.Type_TYPE_RECEIPT {
			c.more(h, &wire.Empty{}, []byte("{\"a\":1}\n"))
			return &wire.Empty{}, []byte("{\"b\":2}\n"), nil
		}
		if b := f.buffers[m.Name]; b != nil {
			return b, nil, nil
		}
		return nil, nil, bb.E(bb.NotFound, "buffer", m.Name, "there is none")
	case *wire.Empty:
		r := &wire.Buffers{}
		for _, name := range slices.Sorted(maps.Keys(f.buffers)) {
			r.Buffers = append(r.Buffers, f.buffers[name])
		}
		return r, nil, nil
	case *wire.BufferDestroy:
		if f.buffers[m.Name] == nil {
			return nil, nil, bb.E(bb.NotFound, "buffer", m.Name, "there is none")
		}
		delete(f.buffers, m.Name)
		return &wire.Empty{}, nil, nil
	case *wire.PathRequest:
		e := f.entries[m.Buffer+"/"+m.Path]
		if e == nil || e.Generation == 0 && e.Type == uint32(bb.TypeFile) {
			return nil, nil, bb.E(bb.NotFound, "stat", m.Path, "there is none")
		}
		return e.message(), nil, nil
	case *wire.ListRequest:
		return f.list(m), nil, nil
	case *wire.Mkdir:
		return f.mkdir(m)
	case *wire.Rename:
		return f.rename(m)
	case *wire.Remove:
		key := m.Buffer + "/" + m.Path
		if f.entries[key] == nil {
			return nil, nil, bb.E(bb.NotFound, "remove", m.Path, "there is none")
		}
		for k := range f.entries {
			if k == key || m.Recursive && strings.HasPrefix(k, key+"/") {
				delete(f.entries, k)
			}
		}
		return &wire.Empty{}, nil, nil
	case *wire.Open:
		reply, out, err := c.open(m)
		if err != nil {
			c.handles[m.Handle] = &fakeHandle{err: err}
			return nil, nil, err
		}
		return reply, out, nil
	case *wire.Commit:
		return c.commit(m, data)
	case *wire.ExtentsRequest:
		fh := c.handles[m.Handle]
		if fh == nil || fh.err != nil || fh.gen != nil {
			return nil, nil, bb.E(bb.Invalid, "read", "", "the handle is not open for reading")
		}
		reply, out := c.extents(fh, m.Offset, m.Length, m.Inline)
		return reply, out, nil
	case *wire.Unpin:
		for _, p := range m.Pins {
			if !c.pins[p] {
				f.t.Errorf("pin %d is not pinned", p)
			}
			delete(c.pins, p)
			f.pins--
		}
		return &wire.Empty{}, nil, nil
	case *wire.Close:
		fh := c.handles[m.Handle]
		if fh == nil {
			return nil, nil, bb.E(bb.Invalid, "close", "", "the handle is not open")
		}
		c.leave(fh)
		delete(c.handles, m.Handle)
		return &wire.Empty{}, nil, nil
	case *wire.LeaseRequest:
		reply, err := c.lease(m)
		return reply, nil, err
	case *wire.ReturnLease:
		if f.leases[m.Id] == nil {
			f.t.Errorf("lease %d is not leased", m.Id)
		}
		delete(f.leases, m.Id)
		return &wire.Empty{}, nil, nil
	case *wire.Drain:
		c.more(h, &wire.Progress{FilesTotal: 2, FilesDone: 1}, nil)
		return &wire.Progress{FilesTotal: 2, FilesDone: 2, Done: true}, nil, nil
	case *wire.Verify:
		n := int64(bytes.Count(data, []byte("\n")))
		p := &wire.Progress{FilesTotal: n, FilesDone: n, Done: true}
		if bytes.Contains(data, []byte("bad")) {
			p.Failed, p.FailedTotal = []*wire.Failure{{Path: "bad", Kind: uint32(bb.Checksum), Reason: "differs"}}, 1
		}
		return p, nil, nil
	}
	return nil, nil, bb.E(bb.Unsupported, "request", h.Type.String(), "unknown")
}

func (f *fake) welcome() *wire.Welcome {
	return &wire.Welcome{
		Version: cmp.Or(f.version, wire.MaxVersion), Node: "fake", Instance: f.instance, Epoch: f.epoch, Server: "fake 1",
		MapRegions: !f.inlineOnly, MaxMessage: wire.MaxMessage, MaxData: wire.MaxData, MaxInFlight: f.maxInFlight,
		InlineThreshold: f.inlineThreshold,
	}
}

func (e *fakeEntry) message() *wire.Entry {
	m := proto.Clone(&e.Entry).(*wire.Entry)
	m.Size = e.size
	return m
}

func (f *fake) list(m *wire.ListRequest) *wire.ListReply {
	dir := m.Buffer + "/"
	if m.Path != "" {
		dir += m.Path + "/"
	}
	r := &wire.ListReply{}
	for _, k := range slices.Sorted(maps.Keys(f.entries)) {
		name, ok := strings.CutPrefix(k, dir)
		e := f.entries[k]
		if !ok || name == "" || strings.Contains(name, "/") || name <= m.After || e.Generation == 0 && e.Type == uint32(bb.TypeFile) {
			continue
		}
		limit := int(m.Limit)
		if limit == 0 {
			limit = 3
		}
		if len(r.Entries) == limit {
			r.More = true
			break
		}
		r.Entries = append(r.Entries, e.message())
	}
	return r
}

func (f *fake) mkdir(m *wire.Mkdir) (proto.Message, []byte, error) {
	key := m.Buffer + "/" + m.Path
	if f.entries[key] != nil && !m.Parents {
		return nil, nil, bb.E(bb.Exists, "mkdir", m.Path, "it is there")
	}
	for p := m.Path; p != "." && p != ""; p = path.Dir(p) {
		k := m.Buffer + "/" + p
		if f.entries[k] == nil {
			f.entries[k] = &fakeEntry{Entry: wire.Entry{Name: path.Base(p), Type: uint32(bb.TypeDirectory), Mode: m.Mode, MtimeNs: 1}}
		}
	}
	return f.entries[key].message(), nil, nil
}

func (f *fake) rename(m *wire.Rename) (proto.Message, []byte, error) {
	from, to := m.Buffer+"/"+m.From, m.Buffer+"/"+m.To
	e := f.entries[from]
	switch {
	case e == nil:
		return nil, nil, bb.E(bb.NotFound, "rename", m.From, "there is none")
	case f.entries[to] != nil && m.NoReplace:
		return nil, nil, bb.E(bb.Exists, "rename", m.To, "it is there")
	}
	delete(f.entries, from)
	e.Name = path.Base(m.To)
	f.entries[to] = e
	return &wire.Empty{}, nil, nil
}

func (c *fakeConn) open(m *wire.Open) (proto.Message, []byte, error) {
	f, key := c.f, m.Buffer+"/"+m.Path
	if f.buffers[m.Buffer] == nil {
		return nil, nil, bb.E(bb.NotFound, "open", m.Buffer, "there is no such buffer")
	}
	e := f.entries[key]
	if e != nil && e.Type == uint32(bb.TypeDirectory) {
		return nil, nil, bb.E(bb.IsDirectory, "open", m.Path, "a directory")
	}
	if !m.Write {
		if e == nil || e.Generation == 0 {
			return nil, nil, bb.E(bb.NotFound, "open", m.Path, "there is none")
		}
		fh := &fakeHandle{key: key, e: e, visible: e.visible, size: e.size}
		c.handles[m.Handle] = fh
		reply := &wire.Opened{Entry: e.message(), Generation: e.Generation}
		var out []byte
		if m.Want > 0 {
			reply.Extents, out = c.extents(fh, 0, int64(m.Want), false)
		}
		return reply, out, nil
	}
	if m.ResumeFile != 0 {
		switch {
		case e != nil && e.File == m.ResumeFile && e.next != nil && e.next.number == m.ResumeGeneration:
		case e != nil && e.File == m.ResumeFile && e.Generation == m.ResumeGeneration && !e.Open:
			c.handles[m.Handle] = &fakeHandle{err: bb.E(bb.Invalid, "commit", m.Path, "closed")}
			return &wire.Opened{Entry: e.message(), Generation: e.Generation, AlreadyClosed: true}, nil, nil
		case m.ResumeCommitted:
			return nil, nil, bb.E(bb.Lost, "open", m.Path, "gone")
		}
	}
	switch {
	case e == nil && !m.Create:
		return nil, nil, bb.E(bb.NotFound, "open", m.Path, "there is none")
	case e == nil:
		e = &fakeEntry{Entry: wire.Entry{Name: path.Base(m.Path), Type: uint32(bb.TypeFile), File: f.id(), Mode: m.Mode, MtimeNs: 1}}
		f.entries[key] = e
	case m.Exclusive && m.ResumeFile == 0:
		return nil, nil, bb.E(bb.Exists, "create", m.Path, "it is there")
	}
	if e.next == nil {
		e.next = &fakeGeneration{number: f.id()}
		if !m.Truncate {
			e.next.visible, e.next.size = slices.Clone(e.visible), e.size
		}
	}
	e.next.writers++
	c.handles[m.Handle] = &fakeHandle{key: key, e: e, gen: e.next}
	if m.Exclusive {
		f.publish(e, true)
	}
	entry := e.message()
	entry.Size = e.next.size
	return &wire.Opened{Entry: entry, Generation: e.next.number}, nil, nil
}

func (f *fake) publish(e *fakeEntry, open bool) {
	e.Generation, e.Open, e.visible, e.size = e.next.number, open, slices.Clone(e.next.visible), e.next.size
	e.next.published = true
	if e.State = uint32(bb.StateDirty); open {
		e.State = uint32(bb.StateOpen)
	}
}

func (c *fakeConn) commit(m *wire.Commit, data []byte) (proto.Message, []byte, error) {
	f, fh := c.f, c.handles[m.Handle]
	switch {
	case fh == nil:
		return nil, nil, bb.E(bb.Invalid, "commit", "", "no such handle")
	case fh.err != nil:
		return nil, nil, fh.err
	case fh.gen == nil:
		return nil, nil, bb.E(bb.Invalid, "commit", "", "not open for writing")
	case f.entries[fh.key] != fh.e && !m.Abort:
		return nil, nil, bb.E(bb.NotFound, "commit", fh.key, "the file was removed")
	}
	if !m.Abort {
		if err := c.checkExtents(m.Extents, &data); err != nil {
			return nil, nil, err
		}
		for _, e := range m.Extents {
			fh.gen.put(f.place(e))
		}
		if len(data) > 0 {
			return nil, nil, bb.E(bb.Invalid, "commit", "", "more data than extents")
		}
	}
	reply := &wire.Committed{Size: fh.gen.size, Generation: fh.gen.number, File: fh.e.File}
	if m.Close {
		delete(c.handles, m.Handle)
		if !m.Abort {
			f.publish(fh.e, true)
		}
		c.leave(fh)
		return reply, nil, nil
	}
	f.publish(fh.e, true)
	return reply, nil, nil
}

// checkExtents checks space and checksums, and puts data that came along into a segment.
func (c *fakeConn) checkExtents(list []*wire.NewExtent, data *[]byte) error {
	f := c.f
	counts := map[uint64]int{}
	for _, e := range list {
		if e.Lease == 0 {
			if e.Length > int64(len(*data)) {
				return bb.E(bb.Invalid, "commit", "", "too little data")
			}
			l := f.segment(c, e.Length+64<<10)
			e.Lease, e.SegmentOffset = l.id, 4096
			copy(l.region.mem[l.off+4096:], (*data)[:e.Length])
			*data = (*data)[e.Length:]
		}
		l := f.leases[e.Lease]
		if l == nil || l.conn != c {
			f.t.Errorf("lease %d is not this session's", e.Lease)
			return bb.E(bb.Invalid, "commit", "", "no such lease")
		}
		counts[l.id]++
		l.end = max(l.end, e.SegmentOffset+e.Length)
		if got := checksum.Sum(l.region.mem[l.off+e.SegmentOffset:][:e.Length]); got != e.Checksum {
			f.t.Errorf("extent at %d has checksum %x, said to be %x", e.FileOffset, got, e.Checksum)
			return bb.E(bb.Checksum, "commit", "", "differs")
		}
	}
	for id, n := range counts {
		l := f.leases[id]
		l.floor -= wire.RecordCost(n)
		if l.end > l.floor {
			f.t.Errorf("lease %d: data end at %d, records begin at %d", id, l.end, l.floor)
			return bb.E(bb.Invalid, "commit", "", "records meet data")
		}
		// A record is really written, since its place must not have any data.
		rand.Read(l.region.mem[l.off+l.floor:][:wire.RecordCost(n)])
	}
	return nil
}

func (f *fake) place(e *wire.NewExtent) *wire.Extent {
	l := f.leases[e.Lease]
	at := l.off + e.SegmentOffset
	return &wire.Extent{
		FileOffset: e.FileOffset, Length: e.Length, Region: l.region.Id, Offset: at,
		Checksum: e.Checksum, CheckOffset: at, CheckLength: e.Length,
	}
}

// put overlays an extent, so later ones win.
func (g *fakeGeneration) put(n *wire.Extent) {
	var out []*wire.Extent
	from, to := n.FileOffset, n.FileOffset+n.Length
	i, _ := slices.BinarySearchFunc(g.visible, from, func(e *wire.Extent, at int64) int { return int(e.FileOffset + e.Length - at) })
	for i < len(g.visible) && g.visible[i].FileOffset+g.visible[i].Length <= from {
		i++
	}
	if i == len(g.visible) || g.visible[i].FileOffset >= to {
		g.visible, g.size = slices.Insert(g.visible, i, n), max(g.size, to)
		return
	}
	part := func(e *wire.Extent, a, b int64) {
		if a < b {
			p := proto.Clone(e).(*wire.Extent)
			p.FileOffset, p.Length, p.Offset = a, b-a, e.Offset+a-e.FileOffset
			out = append(out, p)
		}
	}
	for _, e := range g.visible {
		part(e, e.FileOffset, min(e.FileOffset+e.Length, from))
		part(e, max(e.FileOffset, to), e.FileOffset+e.Length)
	}
	out = append(out, n)
	slices.SortFunc(out, func(a, b *wire.Extent) int { return int(a.FileOffset - b.FileOffset) })
	g.visible, g.size = out, max(g.size, to)
}

func (c *fakeConn) leave(fh *fakeHandle) {
	if fh.gen == nil {
		return
	}
	if fh.gen.writers--; fh.gen.writers > 0 || fh.e.next != fh.gen {
		return
	}
	if fh.gen.published {
		c.f.publish(fh.e, false)
	}
	fh.e.next = nil
	if fh.e.Generation == 0 && c.f.entries[fh.key] == fh.e {
		delete(c.f.entries, fh.key)
	}
}

func (c *fakeConn) extents(fh *fakeHandle, off, n int64, inline bool) (*wire.Extents, []byte) {
	f := c.f
	end := min(off+n, fh.size)
	r := &wire.Extents{Size: fh.size}
	if off >= end {
		return r, nil
	}
	at := off
	for _, e := range fh.visible {
		a, b := max(e.FileOffset, off), min(e.FileOffset+e.Length, end)
		if a >= b {
			continue
		}
		if a > at {
			r.Extents = append(r.Extents, &wire.Extent{FileOffset: at, Length: a - at})
		}
		p := proto.Clone(e).(*wire.Extent)
		p.FileOffset, p.Length, p.Offset = a, b-a, e.Offset+a-e.FileOffset
		r.Extents = append(r.Extents, p)
		at = b
	}
	if at < end {
		r.Extents = append(r.Extents, &wire.Extent{FileOffset: at, Length: end - at})
	}
	if inline || f.inlineOnly || end-off <= int64(f.inlineThreshold) {
		end = min(end, off+wire.MaxData)
		data := make([]byte, end-off)
		for _, e := range r.Extents {
			if e.Region != 0 && e.FileOffset < end {
				copy(data[e.FileOffset-off:], f.region(e.Region).mem[e.Offset:][:e.Length])
			}
		}
		return &wire.Extents{Size: fh.size, DataLength: uint32(len(data))}, data
	}
	named := map[uint64]bool{}
	for _, e := range r.Extents {
		if e.Region != 0 && !named[e.Region] {
			named[e.Region] = true
			g := f.region(e.Region)
			r.Regions = append(r.Regions, &wire.Region{Id: g.Id, Path: g.Path, Length: g.Length})
		}
	}
	r.Pin = f.id()
	c.pins[r.Pin] = true
	f.pins++
	return r, nil
}

func (f *fake) region(id uint64) *fakeRegion {
	for _, r := range f.regions {
		if r.Id == id {
			return r
		}
	}
	return nil
}

// segment cuts a segment of a region.
func (f *fake) segment(c *fakeConn, n int64) *fakeLease {
	n = (n + 1<<20 - 1) &^ (1<<20 - 1)
	var r *fakeRegion
	if k := len(f.regions); k > 0 && f.regions[k-1].used+n <= fakeRegionSize {
		r = f.regions[k-1]
	} else {
		r = f.newRegion()
	}
	l := &fakeLease{conn: c, id: f.id(), region: r, off: r.used, len: n, floor: n, end: 4096}
	r.used += n
	f.leases[l.id] = l
	return l
}

func (f *fake) newRegion() *fakeRegion {
	r := &fakeRegion{}
	r.Id, r.Length = f.id(), fakeRegionSize
	r.Path = filepath.Join(f.dir, "region-"+bb.RegionID(r.Id).String())
	file, err := os.Create(r.Path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(fakeRegionSize); err != nil {
		f.t.Fatal(err)
	}
	if r.mem, err = unix.Mmap(int(file.Fd()), 0, fakeRegionSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		f.t.Fatal(err)
	}
	f.regions = append(f.regions, r)
	return r
}

func (c *fakeConn) lease(m *wire.LeaseRequest) (proto.Message, error) {
	l := c.f.segment(c, max(m.Bytes, 1<<20))
	l.floor -= 128 // as if others had been there
	return &wire.Lease{
		Id: l.id, Region: &wire.Region{Id: l.region.Id, Path: l.region.Path, Length: l.region.Length},
		Offset: l.off, Length: l.len, DataStart: 4096, RecordFloor: l.floor,
	}, nil
}

func (c *fakeConn) end() {
	defer close(c.ended)
	c.conn.Close()
	close(c.stop)
	c.wg.Wait()
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c.conn)
	for _, fh := range c.handles {
		c.leave(fh)
	}
	f.pins -= len(c.pins)
	for id, l := range f.leases {
		if l.conn != c {
			continue
		}
		delete(f.leases, id)
		if f.spoil {
			rand.Read(l.region.mem[l.off+l.end : l.off+l.floor])
		}
	}
}

// connect dials the fake, and checks at the end that nothing of the client is left.
func (f *fake) connect(o client.Options) *client.Client {
	f.t.Helper()
	o.Address = f.address()
	c, err := client.Dial(context.Background(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits for something that others do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind client.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error is %v, want kind %v", err, kind)
	}
}

func random(n int) []byte {
	var seed [32]byte
	rand.Read(seed[:])
	p := make([]byte, n)
	mrand.NewChaCha8(seed).Read(p)
	return p
}

func readAll(t testing.TB, b *client.Buffer, path string) []byte {
	t.Helper()
	f := must[*client.File](t)(b.Open(context.Background(), path))
	defer f.Close()
	return must[[]byte](t)(io.ReadAll(f))
}

// hook sets a function that gets each request first. nil means none.
func (f *fake) hook(on func(c *fakeConn, h wire.Header, m proto.Message) (handled bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onRequest = on
}
