// Package serve is a store worker: the process that carries out its daemon's requests on the files of one root, with
// the rights of one user. It must never depend on a buffer, nor other users and roots.
package serve

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
	"forebay/flusher/backing/asuser/protocol"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/object"
	"forebay/internal/bb"
)

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
	mem, err := protocol.MapMemory(memoryFD)
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
	packet := make([]byte, protocol.MaxMessage)
	for {
		n, err := s.conn.Read(packet)
		if err != nil || n == 0 {
			return nil // the daemon has ended, or needs this worker no longer
		}
		m := new(protocol.Message)
		if err := m.Decode(packet[:n]); err != nil {
			return err
		}
		s.begin(m)
	}
}

// begin starts a request. Each runs by itself, since any of them may hang.
func (s *server) begin(m *protocol.Message) {
	switch m.Op {
	case protocol.OpCancel:
		s.mu.Lock()
		cancel := s.calls[m.Handle]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return
	case protocol.OpClose:
		if h := s.release(m.Handle); h != nil {
			go closeHandle(h)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.calls[m.Call] = cancel
	s.mu.Unlock()
	go func() {
		defer cancel()
		answer := s.answer(ctx, m)
		s.mu.Lock()
		delete(s.calls, m.Call)
		s.mu.Unlock()
		s.send(answer)
	}()
}

func (s *server) send(m *protocol.Message) {
	b := m.Append(nil)
	if len(b) > protocol.MaxMessage {
		small := &protocol.Message{Call: m.Call, Op: protocol.OpReply, Slot: protocol.NoSlot}
		small.SetError(bb.E(bb.Invalid, "store worker", m.Name, fmt.Sprintf("an answer of %d bytes is too large", len(b))))
		b = small.Append(nil)
	}
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.conn.Write(b); err != nil {
		os.Exit(1) // the daemon is gone
	}
}

// answer carries a request out.
func (s *server) answer(ctx context.Context, m *protocol.Message) *protocol.Message {
	reply := &protocol.Message{Call: m.Call, Op: protocol.OpReply, Slot: protocol.NoSlot}
	if m.Handle == 0 && s.fences.Moved(s.dir) {
		reply.Flags |= protocol.FlagMoved
		reply.SetError(bb.E(bb.Unavailable, "open backing", s.dir, "another directory lies there than when the worker was started"))
		return reply
	}
	var err error
	if m.Handle != 0 {
		err = s.onHandle(ctx, m, reply)
	} else if m.Op == protocol.OpOpen {
		err = s.open(m, reply)
	} else if store := s.store(m.Store); store == nil {
		err = protocol.ErrMalformed
	} else {
		err = s.onStore(ctx, store, m, reply)
	}
	if err != nil {
		reply.SetError(err)
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

func (s *server) open(m, reply *protocol.Message) error {
	var o protocol.OpenOptions
	if err := json.Unmarshal([]byte(m.Text), &o); err != nil {
		return err
	}
	store, err := posix.Open(s.dir, posix.Options{
		Owner: backing.Owner{Instance: o.Instance, Life: o.Life}, Root: string(o.Root), Layouts: o.Layouts, Mark: o.Mark, Group: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	reply.Text = store.Identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.stores[s.next] = store
	reply.Store = s.next
	return nil
}

// onStore carries out requests without a handle.
func (s *server) onStore(ctx context.Context, store *posix.Store, m, reply *protocol.Message) error {
	switch m.Op {
	case protocol.OpGet:
		return s.get(ctx, store, m, reply)
	case protocol.OpStat:
		o, err := store.Stat(ctx, m.Name)
		reply.Items = []protocol.Item{protocol.ItemOf(&o)}
		return err
	case protocol.OpList:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			return store.List(ctx, m.Name, func(o backing.Object) error { return l.add(ctx, protocol.ItemOf(&o)) })
		})
	case protocol.OpOthers:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			return store.Others(ctx, m.Name, func(o backing.Other) error { return l.add(ctx, protocol.ItemOfOther(&o)) })
		})
	case protocol.OpTemps:
		return s.list(ctx, reply, func(ctx context.Context, l *listing) error {
			found, err := store.Leftovers(ctx, backing.Within{Dir: m.Name, Deep: m.Has(protocol.FlagDeep)})
			for i := range found {
				err = errors.Join(err, l.add(ctx, protocol.Item{Name: found[i].Name, Size: found[i].Size}))
			}
			return err
		})
	case protocol.OpPut:
		return s.put(ctx, store, m, reply)
	case protocol.OpDiscard:
		removed, err := store.Discard(ctx, m.Names)
		reply.Names = removed
		return err
	}
	return s.change(ctx, store, m)
}

// change carries out requests without an answer but their error.
func (s *server) change(ctx context.Context, store *posix.Store, m *protocol.Message) error {
	switch m.Op {
	case protocol.OpRename:
		return store.Rename(ctx, m.Name, m.Text)
	case protocol.OpRemove:
		return store.Remove(ctx, m.Name)
	case protocol.OpRemoveIf, protocol.OpRenameIf:
		if len(m.Items) != 2 {
			return protocol.ErrMalformed
		}
		is, replaces := m.Items[0].Version(), m.Items[1].Version()
		if m.Op == protocol.OpRemoveIf {
			return store.RemoveIf(ctx, m.Name, is)
		}
		return store.RenameIf(ctx, m.Name, m.Text, is, replaces)
	case protocol.OpRemoveTree:
		return store.RemoveTree(ctx, m.Name)
	case protocol.OpRemoveDir:
		return store.RemoveDir(ctx, m.Name)
	case protocol.OpMakeDir:
		return store.MakeDir(ctx, m.Name, backing.DirOptions{Attrs: m.Attrs, Holds: m.Has(protocol.FlagHolds), Keep: m.Has(protocol.FlagKeep)})
	case protocol.OpSetMode:
		return store.SetMode(ctx, m.Name, m.Attrs)
	case protocol.OpCheck:
		return store.Check(ctx)
	}
	return fmt.Errorf("%w: operation %d", protocol.ErrMalformed, m.Op)
}

// onHandle continues the work of an earlier request.
func (s *server) onHandle(ctx context.Context, m, reply *protocol.Message) error {
	s.mu.Lock()
	h := s.handles[m.Handle]
	s.mu.Unlock()
	switch h := h.(type) {
	case *os.File:
		return s.read(h, m, reply)
	case *listing:
		last, err := h.page(ctx, reply)
		if last {
			s.release(m.Handle)
		} else {
			reply.Handle = m.Handle
		}
		return err
	case *pending:
		return s.onPending(ctx, h, m, reply)
	}
	return protocol.ErrMalformed
}

// pending is a file that is being put. Writes hold it for reading, all else for writing.
type pending struct {
	sync.RWMutex
	*posix.Pending
	ended bool
}

func (s *server) write(p *pending, m *protocol.Message) error {
	b := protocol.InSlot(s.mem, m.Slot, m.N)
	p.RLock()
	defer p.RUnlock()
	if b == nil || p.ended {
		return protocol.ErrMalformed
	}
	return p.WriteAt(b, m.Off)
}

func (s *server) onPending(ctx context.Context, p *pending, m, reply *protocol.Message) error {
	if m.Op == protocol.OpWrite {
		return s.write(p, m)
	}
	p.Lock()
	defer p.Unlock()
	p.ended = true
	switch m.Op {
	case protocol.OpFinish:
		if err := p.Finish(); err != nil || !m.Has(protocol.FlagCommit) {
			return err
		}
	case protocol.OpCommit:
	default:
		return protocol.ErrMalformed
	}
	o, err := p.Commit(ctx)
	if err == nil {
		s.release(m.Handle)
		p.Abort()
		reply.Items, reply.Text = []protocol.Item{protocol.ItemOf(&o)}, p.Fewer()
	}
	return err
}

// put begins a file. If all bytes come with the request, it finishes the file as well.
func (s *server) put(ctx context.Context, store *posix.Store, m, reply *protocol.Message) error {
	opts := backing.PutOptions{Replaces: m.Text, Keep: m.Has(protocol.FlagKeep)}
	if m.Has(protocol.FlagAttrs) {
		opts.Attrs = &m.Attrs
	}
	p, err := store.Begin(ctx, m.Name, m.N, opts)
	if err != nil {
		return err
	}
	if m.Has(protocol.FlagWhole) {
		err = s.putWhole(ctx, p, m, reply)
	}
	if err != nil || m.Has(protocol.FlagCommit) {
		p.Abort()
		return err
	}
	reply.N = p.PartSize(protocol.SlotSize)
	reply.Handle = s.keep(&pending{Pending: p, ended: m.Has(protocol.FlagWhole)})
	return nil
}

func (s *server) putWhole(ctx context.Context, p *posix.Pending, m, reply *protocol.Message) error {
	if m.N > 0 {
		b := protocol.InSlot(s.mem, m.Slot, m.N)
		if b == nil {
			return protocol.ErrMalformed
		}
		if err := p.WriteAt(b, 0); err != nil {
			return err
		}
	}
	if err := p.Finish(); err != nil || !m.Has(protocol.FlagCommit) {
		return err
	}
	o, err := p.Commit(ctx)
	reply.Items, reply.Text = []protocol.Item{protocol.ItemOf(&o)}, p.Fewer()
	return err
}

// get opens an object and reads its first bytes.
func (s *server) get(ctx context.Context, store *posix.Store, m, reply *protocol.Message) error {
	f, err := store.Object(ctx, m.Name)
	if err != nil {
		return err
	}
	if m.Off == 0 { // a reader of the whole object may be asked for its description
		o, err := object.Describe(m.Name, f)
		if err != nil {
			f.Close()
			return err
		}
		reply.Items = []protocol.Item{protocol.ItemOf(&o)}
	}
	if err := s.read(f, m, reply); err != nil || reply.Has(protocol.FlagEOF) {
		f.Close()
		return err
	}
	reply.Handle = s.keep(f)
	return nil
}

// read reads n bytes into a slot, or without one into the reply.
func (s *server) read(f *os.File, m, reply *protocol.Message) error {
	b := protocol.InSlot(s.mem, m.Slot, m.N)
	if m.Slot == protocol.NoSlot && m.N >= 0 && m.N <= protocol.MaxInline {
		b = make([]byte, m.N)
	}
	if b == nil {
		return protocol.ErrMalformed
	}
	n, err := f.ReadAt(b, m.Off)
	reply.N = int64(n)
	if m.Slot == protocol.NoSlot {
		reply.Data = b[:n]
	}
	if err == io.EOF {
		reply.Flags |= protocol.FlagEOF
		err = nil
	}
	return object.WrapRead(f, err)
}

// listing is a walk whose items are sent page by page. The walk waits for the request for the page.
type listing struct {
	pages chan *protocol.Message
	size  int
	now   *protocol.Message
	end   context.CancelFunc
}

// list begins a walk and answers with its first page.
func (s *server) list(ctx context.Context, reply *protocol.Message, walk func(context.Context, *listing) error) error {
	own, cancel := context.WithCancel(context.Background())
	l := &listing{pages: make(chan *protocol.Message, 1), now: new(protocol.Message), end: cancel}
	go func() {
		if err := walk(own, l); err != nil {
			l.now.SetError(err)
		}
		l.now.Flags |= protocol.FlagEOF
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
	reply.Handle = s.keep(l)
	return nil
}

func (l *listing) add(ctx context.Context, i protocol.Item) error {
	l.size += len(i.Name) + len(i.ETag) + len(i.Xattrs) + 40
	l.now.Items = append(l.now.Items, i)
	if l.size < protocol.MaxPage {
		return nil
	}
	select {
	case l.pages <- l.now:
		l.now, l.size = new(protocol.Message), 0
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// page moves the next page into a reply. last means that there are no others.
func (l *listing) page(ctx context.Context, reply *protocol.Message) (last bool, err error) {
	select {
	case p := <-l.pages:
		reply.Items, reply.Flags, reply.Err = p.Items, reply.Flags|p.Flags, p.Err
		return p.Has(protocol.FlagEOF), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Main is the main function of a binary whose first argument is Command. args are the others. It
// returns the exit status.
func Main(args []string) int {
	var err error
	var f *confine.Fence
	switch len(args) {
	case 1:
		f, err = confine.ToDirectory(args[0], protocol.Command)
	case 2: // executed again by confine
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		f = confine.ParseFence(args[1])
	default:
		err = errors.New("started by a daemon alone")
	}
	if err == nil {
		err = confine.FilterCalls()
	}
	if err == nil || errors.Is(err, confine.ErrNoFilter) { // the daemon has logged it
		err = serve(args[0], f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "store worker:", err)
		return 1
	}
	return 0
}
