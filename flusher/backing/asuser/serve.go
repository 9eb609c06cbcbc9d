package asuser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/confine"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// openOptions is what opOpen carries of posix.Options.
type openOptions struct {
	Root     []byte // bytes, since a path in it need be no text
	Instance bb.InstanceID
	Life     uint64
	Layouts  []lustre.Layout
	Mark     string
}

// The descriptors of a worker.
const (
	socketFD = 3
	memoryFD = 4
	heldFD   = 5 // held, and nothing else: see former
)

// server is a store worker's side.
type server struct {
	conn   *net.UnixConn
	mem    []byte
	dir    string
	fences *confine.Fence
	out    sync.Mutex // one packet at a time

	mu      sync.Mutex
	stores  map[uint64]*posix.Store
	handles map[uint64]any // *pending, *os.File or *listing
	calls   map[uint64]context.CancelFunc
	next    uint64 // handle or store
}

// serve answers a daemon until its end of the connection is closed.
func serve(dir string, fences *confine.Fence) error {
	mem, err := mapMemory(memoryFD)
	if err != nil {
		return err
	}
	f := os.NewFile(socketFD, "daemon")
	conn, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("descriptor %d is no socket of a daemon", socketFD)
	}
	s := &server{
		conn: unixConn, mem: mem, dir: dir, fences: fences,
		stores: make(map[uint64]*posix.Store), handles: make(map[uint64]any), calls: make(map[uint64]context.CancelFunc),
	}
	packet := make([]byte, maxMessage)
	for {
		n, err := s.conn.Read(packet)
		if err != nil || n == 0 {
			return nil // the daemon has ended, or needs this worker no longer
		}
		m := new(message)
		if err := m.decode(packet[:n]); err != nil {
			return err
		}
		s.begin(m)
	}
}

// begin starts a request. Each runs by itself: any of them may hang.
func (s *server) begin(m *message) {
	switch m.op {
	case opCancel:
		s.mu.Lock()
		cancel := s.calls[m.handle]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return
	case opClose:
		if h := s.release(m.handle); h != nil {
			go closeHandle(h)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.calls[m.call] = cancel
	s.mu.Unlock()
	go func() {
		defer cancel()
		answer := s.answer(ctx, m)
		s.mu.Lock()
		delete(s.calls, m.call)
		s.mu.Unlock()
		s.send(answer)
	}()
}

func (s *server) send(m *message) {
	b := m.append(nil)
	if len(b) > maxMessage {
		small := &message{call: m.call, op: opReply, slot: noSlot}
		small.setError(bb.E(bb.Invalid, "store worker", m.name, fmt.Sprintf("an answer of %d bytes is too large", len(b))))
		b = small.append(nil)
	}
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.conn.Write(b); err != nil {
		os.Exit(1) // the daemon is gone
	}
}

// answer carries a request out.
func (s *server) answer(ctx context.Context, m *message) *message {
	reply := &message{call: m.call, op: opReply, slot: noSlot}
	if m.handle == 0 && s.fences.Moved(s.dir) {
		reply.flags |= flagMoved
		reply.setError(bb.E(bb.Unavailable, "open backing", s.dir, "another directory lies there than when the worker was started"))
		return reply
	}
	var err error
	if m.handle != 0 {
		err = s.onHandle(ctx, m, reply)
	} else if m.op == opOpen {
		err = s.open(m, reply)
	} else if store := s.store(m.store); store == nil {
		err = errMalformed
	} else {
		err = s.onStore(ctx, store, m, reply)
	}
	if err != nil {
		reply.setError(err)
	}
	return reply
}

func (s *server) store(id uint64) *posix.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stores[id]
}

func (s *server) keep(h any) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.handles[s.next] = h
	return s.next
}

func (s *server) release(handle uint64) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[handle]
	delete(s.handles, handle)
	return h
}

func closeHandle(h any) {
	switch h := h.(type) {
	case *pending:
		h.Lock() // a write may still be on its way
		defer h.Unlock()
		h.Abort()
	case *os.File:
		h.Close()
	case *listing:
		h.end()
	}
}

func (s *server) open(m, reply *message) error {
	var o openOptions
	if err := json.Unmarshal([]byte(m.text), &o); err != nil {
		return err
	}
	store, err := posix.Open(s.dir, posix.Options{
		Owner: backing.Owner{Instance: o.Instance, Life: o.Life}, Root: string(o.Root), Layouts: o.Layouts, Mark: o.Mark, Group: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	reply.text = store.Identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.stores[s.next] = store
	reply.store = s.next
	return nil
}

// onStore carries out what names no handle.
func (s *server) onStore(ctx context.Context, store *posix.Store, m, reply *message) error {
	switch m.op {
	case opGet:
		return s.get(ctx, store, m, reply)
	case opStat:
		o, err := store.Stat(ctx, m.name)
		reply.items = []item{itemOf(&o)}
		return err
	case opList:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			return store.List(ctx, m.name, func(o backing.Object) error { return l.add(ctx, itemOf(&o)) })
		})
	case opOthers:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			return store.Others(ctx, m.name, func(o backing.Other) error { return l.add(ctx, itemOfOther(&o)) })
		})
	case opTemps:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			found, err := store.Leftovers(ctx, backing.Within{Dir: m.name, Deep: m.has(flagDeep)})
			for i := range found {
				err = errors.Join(err, l.add(ctx, item{name: found[i].Name, size: found[i].Size}))
			}
			return err
		})
	case opPut:
		return s.put(ctx, store, m, reply)
	case opDiscard:
		removed, err := store.Discard(ctx, m.names)
		reply.names = removed
		return err
	}
	return s.change(ctx, store, m)
}

// change carries out what has no answer but its error.
func (s *server) change(ctx context.Context, store *posix.Store, m *message) error {
	switch m.op {
	case opRename:
		return store.Rename(ctx, m.name, m.text)
	case opRemove:
		return store.Remove(ctx, m.name)
	case opRemoveIf, opRenameIf:
		if len(m.items) != 2 {
			return errMalformed
		}
		is, replaces := m.items[0].version(), m.items[1].version()
		if m.op == opRemoveIf {
			return store.RemoveIf(ctx, m.name, is)
		}
		return store.RenameIf(ctx, m.name, m.text, is, replaces)
	case opRemoveTree:
		return store.RemoveTree(ctx, m.name)
	case opRemoveDir:
		return store.RemoveDir(ctx, m.name)
	case opMakeDir:
		return store.MakeDir(ctx, m.name, backing.DirOptions{Attrs: m.attrs, Holds: m.has(flagHolds), Keep: m.has(flagKeep)})
	case opSetMode:
		return store.SetMode(ctx, m.name, m.attrs)
	case opCheck:
		return store.Check(ctx)
	}
	return fmt.Errorf("%w: operation %d", errMalformed, m.op)
}

// onHandle goes on with what an earlier request began.
func (s *server) onHandle(ctx context.Context, m, reply *message) error {
	s.mu.Lock()
	h := s.handles[m.handle]
	s.mu.Unlock()
	switch h := h.(type) {
	case *os.File:
		return s.read(h, m, reply)
	case *listing:
		last, err := h.page(ctx, reply)
		if last {
			s.release(m.handle)
		} else {
			reply.handle = m.handle
		}
		return err
	case *pending:
		return s.onPending(ctx, h, m, reply)
	}
	return errMalformed
}

// pending is a file that is being put. Writes hold it for reading, all else for writing.
type pending struct {
	sync.RWMutex
	*posix.Pending
	ended bool
}

func (s *server) write(p *pending, m *message) error {
	b := inSlot(s.mem, m.slot, m.n)
	p.RLock()
	defer p.RUnlock()
	if b == nil || p.ended {
		return errMalformed
	}
	return p.WriteAt(b, m.off)
}

func (s *server) onPending(ctx context.Context, p *pending, m, reply *message) error {
	if m.op == opWrite {
		return s.write(p, m)
	}
	p.Lock()
	defer p.Unlock()
	p.ended = true
	switch m.op {
	case opFinish:
		if err := p.Finish(); err != nil || !m.has(flagCommit) {
			return err
		}
	case opCommit:
	default:
		return errMalformed
	}
	o, err := p.Commit(ctx)
	if err == nil {
		s.release(m.handle)
		p.Abort()
		reply.items = []item{itemOf(&o)}
	}
	return err
}

// put begins a file. One whose bytes all come with the request is finished as well.
func (s *server) put(ctx context.Context, store *posix.Store, m, reply *message) error {
	opts := backing.PutOptions{Replaces: m.text, Keep: m.has(flagKeep)}
	if m.has(flagAttrs) {
		opts.Attrs = &m.attrs
	}
	p, err := store.Begin(ctx, m.name, m.n, opts)
	if err != nil {
		return err
	}
	if m.has(flagWhole) {
		err = s.putWhole(ctx, p, m, reply)
	}
	if err != nil || m.has(flagCommit) {
		p.Abort()
		return err
	}
	reply.handle = s.keep(&pending{Pending: p, ended: m.has(flagWhole)})
	return nil
}

func (s *server) putWhole(ctx context.Context, p *posix.Pending, m, reply *message) error {
	if m.n > 0 {
		b := inSlot(s.mem, m.slot, m.n)
		if b == nil {
			return errMalformed
		}
		if err := p.WriteAt(b, 0); err != nil {
			return err
		}
	}
	if err := p.Finish(); err != nil || !m.has(flagCommit) {
		return err
	}
	o, err := p.Commit(ctx)
	reply.items = []item{itemOf(&o)}
	return err
}

// get opens an object and reads its first bytes.
func (s *server) get(ctx context.Context, store *posix.Store, m, reply *message) error {
	f, err := store.Object(ctx, m.name)
	if err != nil {
		return err
	}
	if err := s.read(f, m, reply); err != nil || reply.has(flagEOF) {
		f.Close()
		return err
	}
	reply.handle = s.keep(f)
	return nil
}

// read reads n bytes into a slot, or without one into the reply.
func (s *server) read(f *os.File, m, reply *message) error {
	b := inSlot(s.mem, m.slot, m.n)
	if m.slot == noSlot && m.n >= 0 && m.n <= maxInline {
		b = make([]byte, m.n)
	}
	if b == nil {
		return errMalformed
	}
	n, err := f.ReadAt(b, m.off)
	reply.n = int64(n)
	if m.slot == noSlot {
		reply.data = b[:n]
	}
	if err == io.EOF {
		reply.flags |= flagEOF
		err = nil
	}
	return posix.WrapRead(f, err)
}

// listing is a walk whose items are sent page by page. The walk waits for the page to be
// asked for.
type listing struct {
	pages chan *message
	size  int
	now   *message
	end   context.CancelFunc
}

// list begins a walk and answers with its first page.
func (s *server) list(ctx context.Context, reply *message, walk func(context.Context, *listing) error) error {
	own, cancel := context.WithCancel(context.Background())
	l := &listing{pages: make(chan *message, 1), now: new(message), end: cancel}
	go func() {
		if err := walk(own, l); err != nil {
			l.now.setError(err)
		}
		l.now.flags |= flagEOF
		select {
		case l.pages <- l.now:
		case <-own.Done():
		}
	}()
	last, err := l.page(ctx, reply)
	if last || err != nil {
		cancel()
		return err
	}
	reply.handle = s.keep(l)
	return nil
}

func (l *listing) add(ctx context.Context, i item) error {
	l.size += len(i.name) + len(i.etag) + 40
	l.now.items = append(l.now.items, i)
	if l.size < maxPage {
		return nil
	}
	select {
	case l.pages <- l.now:
		l.now, l.size = new(message), 0
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// page moves the next page into a reply; last says that there are no more.
func (l *listing) page(ctx context.Context, reply *message) (last bool, err error) {
	select {
	case p := <-l.pages:
		reply.items, reply.flags, reply.err = p.items, reply.flags|p.flags, p.err
		return p.has(flagEOF), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Command is the hidden argument with which a binary is a store worker.
const Command = "store-worker"

// Main is what a binary does whose first argument is Command; args are the others. It returns
// the status to exit with.
func Main(args []string) int {
	var err error
	var f *confine.Fence
	switch len(args) {
	case 1:
		f, err = confine.ToDirectory(args[0], Command)
	case 2: // executed again by confine
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		f = confine.ParseFence(args[1])
	default:
		err = errors.New("started by a daemon alone")
	}
	if err == nil {
		err = confine.FilterCalls()
	}
	if err == nil || errors.Is(err, confine.ErrNoFilter) { // the daemon has said so
		err = serve(args[0], f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "store worker:", err)
		return 1
	}
	return 0
}
