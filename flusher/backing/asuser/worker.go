package asuser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing/asuser/protocol"
	"forebay/internal/bb"
	"forebay/internal/nss"
)

// errGone is the error of a call to a worker that has ended.
var errGone = errors.New("the store worker has ended")

// worker is the daemon's side of one process.
type worker struct {
	p    *pool
	conn *net.UnixConn
	cmd  *exec.Cmd
	mem  []byte
	held string // the file that the process holds

	writes, reads, smalls *slots
	gone                  chan struct{} // closed when nothing comes any more
	reaped                chan struct{} // closed when the process is gone

	mu    sync.Mutex
	err   error // the reason why it is gone
	next  uint64
	calls map[uint64]*call
	open  map[*Store]*opened
	uses  int // by Stores, readers and listings. Without users, it may end and its memory may go
	ended bool
	heard time.Time // when the last reply came

	// Guarded by the pool.
	draining, killed bool
}

// call is a request on its way.
type call struct {
	reply chan *protocol.Message // has room for it
	late  func(*protocol.Message)
	timer *time.Timer // kills the worker, if no call waits any more
	begun time.Time
	left  time.Time // since when no call waits
}

// opened is a store that a worker has open, or is about to.
type opened struct {
	done chan struct{}
	id   uint64
	err  error
}

// start starts a worker's process.
func (p *pool) start(groups []uint32) (*worker, error) {
	memory, mem, err := protocol.NewMemory()
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	conn, theirs, err := socketPair()
	if err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	defer theirs.Close()
	w := &worker{
		p: p, conn: conn, mem: mem, writes: newSlots(0, protocol.WriteSlots), reads: newSlots(protocol.WriteSlots, protocol.ReadSlots),
		smalls: newSlots(protocol.WriteSlots+protocol.ReadSlots, protocol.SmallSlots),
		gone:   make(chan struct{}), reaped: make(chan struct{}), calls: make(map[uint64]*call), open: make(map[*Store]*opened),
	}
	said, stderr, err := os.Pipe()
	files := []*os.File{theirs, memory}
	if err == nil {
		defer stderr.Close()
		held, holdErr := p.w.former.Hold(p.key.uid, p.key.dir)
		if err = holdErr; held != nil {
			defer held.Close() // the worker has it
			w.held = held.Name()
			files = append(files, held)
		}
	}
	if err == nil {
		w.cmd = p.command(groups, stderr, files...)
		err = p.w.starter.start(w.cmd)
	}
	if err != nil {
		if said != nil {
			said.Close()
		}
		p.w.former.Release(w.held)
		conn.Close()
		unix.Munmap(mem)
		return nil, err
	}
	p.w.wg.Go(func() { w.listen() })
	p.w.wg.Go(func() { w.log(said) })
	return w, nil
}

// command is the process to be started. It is the user from its first instruction on.
func (p *pool) command(groups []uint32, stderr *os.File, files ...*os.File) *exec.Cmd {
	program := p.w.o.Command
	if len(program) == 0 {
		program = []string{"/proc/self/exe", protocol.Command}
	}
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], p.key.dir)...)
	cmd.Env = append([]string{"PATH=" + nss.Path, "GOTRACEBACK=single"}, p.w.o.Env...)
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.key.uid, Gid: p.key.gid, Groups: groups}
	}
	return cmd
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "store worker"), os.NewFile(uintptr(fds[1]), "daemon")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// listen hands replies to their calls until the connection ends, and then waits for the process.
func (w *worker) listen() {
	packet := make([]byte, protocol.MaxMessage)
	err := errGone
	for {
		n, readErr := w.conn.Read(packet)
		if readErr != nil || n == 0 {
			break
		}
		m := new(protocol.Message)
		if err = m.Decode(packet[:n]); err != nil {
			break
		}
		err = errGone
		w.deliver(m)
	}
	if w.p.drain(w) { // no call begins with it any more
		w.p.w.lose(w.p.key)
	}
	w.conn.Close()
	if err != errGone {
		w.cmd.Process.Kill()
	}
	w.fail(err)
	timer := time.AfterFunc(w.p.w.o.Grace, func() { w.cmd.Process.Kill() })
	err = w.cmd.Wait()
	timer.Stop()
	w.p.reaped(w, err)
}

func (w *worker) deliver(m *protocol.Message) {
	w.mu.Lock()
	c := w.calls[m.Call]
	delete(w.calls, m.Call)
	w.heard = time.Now()
	var late func(*protocol.Message)
	if c != nil {
		if late = c.late; late == nil {
			c.reply <- m
		}
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	w.mu.Unlock()
	if late != nil {
		late(m)
	}
}

// fail ends all calls.
func (w *worker) fail(err error) {
	w.mu.Lock()
	w.err = err
	left := slices.Collect(maps.Values(w.calls))
	clear(w.calls)
	close(w.gone)
	w.mu.Unlock()
	for _, c := range left {
		if c.late != nil {
			c.timer.Stop()
			c.late(nil)
		}
	}
}

// maxLines bounds the lines of a worker that the daemon logs.
const maxLines = 200

// log logs the process's standard error.
func (w *worker) log(said *os.File) {
	defer said.Close()
	lines := bufio.NewScanner(said)
	for n := 0; n < maxLines && lines.Scan(); n++ {
		w.p.w.o.Logger.Warn("store worker", "uid", w.p.key.uid, "root", w.p.key.dir, "stderr", lines.Text())
	}
	_, _ = io.Copy(io.Discard, said)
}

// call sends a request and waits for its reply. If ctx ends before, the request continues alone,
// and a worker that never answers it is killed. If call returns no reply, late gets it when it
// comes, or nil when none will come: exactly once, and possibly before call returns.
func (w *worker) call(ctx context.Context, m *protocol.Message, late func(*protocol.Message)) (*protocol.Message, error) {
	c, err := w.begin(ctx, m)
	if err != nil {
		late(nil)
		return nil, err
	}
	return w.await(ctx, c, m, late)
}

// finalCall is call for a request that gives a file its name. It returns when the request has ended.
// The canceller is about to remove or rename the file, and nothing late may be put in its place.
// Only a daemon that stops does not wait.
func (w *worker) finalCall(ctx context.Context, m *protocol.Message, late func(*protocol.Message)) (*protocol.Message, error) {
	c, err := w.begin(ctx, m)
	if err != nil {
		late(nil)
		return nil, err
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	case <-w.gone:
	case <-ctx.Done():
		w.tell(&protocol.Message{Op: protocol.OpCancel, Handle: m.Call, Slot: protocol.NoSlot})
		timer := time.AfterFunc(w.p.w.o.Grace, func() { w.kill("a call does not end") })
		defer timer.Stop()
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	case <-w.reaped:
	case <-w.p.w.closing:
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	default:
		w.forget(m.Call)
		late(nil)
		return nil, w.goneError(m)
	}
}

// begin sends a request.
func (w *worker) begin(ctx context.Context, m *protocol.Message) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{reply: make(chan *protocol.Message, 1), begun: time.Now()}
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return nil, w.goneError(m)
	}
	w.next++
	m.Call = w.next
	w.calls[m.Call] = c
	w.mu.Unlock()
	b := m.Append(nil)
	if len(b) > protocol.MaxMessage {
		w.forget(m.Call)
		return nil, bb.E(bb.Invalid, m.Op.String(), m.Name, fmt.Sprintf("a request of %d bytes is too large", len(b)))
	}
	if err := w.send(b); err != nil {
		w.forget(m.Call)
		return nil, w.goneError(m)
	}
	return c, nil
}

// drop handles a late reply. A handle that it has opened is closed.
func (w *worker) drop(late *protocol.Message) {
	if late != nil {
		w.close(late.Handle)
	}
}

func (w *worker) forget(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, id)
}

// sendWithin is the time without taking a request after which a worker counts as hanging, since its
// user may have stopped it.
const sendWithin = time.Second

func (w *worker) send(b []byte) error {
	w.conn.SetWriteDeadline(time.Now().Add(sendWithin))
	_, err := w.conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.kill("it takes no requests")
	}
	return err
}

// await waits for the reply of a request.
func (w *worker) await(ctx context.Context, c *call, m *protocol.Message, late func(*protocol.Message)) (*protocol.Message, error) {
	select {
	case reply := <-c.reply:
		return reply, nil
	default:
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	case <-w.gone:
		w.awaitEnd(ctx, m)
		select {
		case reply := <-c.reply:
			return reply, nil
		default:
			late(nil)
			return nil, w.goneError(m)
		}
	case <-ctx.Done():
		w.abandon(m, c, late)
		return nil, ctx.Err()
	}
}

// awaitEnd waits until a worker that does not answer any more carries out no change any more. A
// caller that tries again may else be overtaken by the first try, which hangs in the file system.
func (w *worker) awaitEnd(ctx context.Context, m *protocol.Message) {
	if !m.Op.Changes() {
		return
	}
	select {
	case <-w.reaped:
	case <-ctx.Done():
	case <-w.p.w.closing:
	}
}

// abandon has the reply of a call go to late, which must not be nil.
func (w *worker) abandon(m *protocol.Message, c *call, late func(*protocol.Message)) {
	w.mu.Lock()
	select {
	case reply := <-c.reply:
		w.mu.Unlock()
		late(reply)
		return
	default:
	}
	if w.err != nil {
		w.mu.Unlock()
		late(nil)
		return
	}
	c.late, c.left = late, time.Now()
	c.timer = time.AfterFunc(w.p.w.o.Grace, func() { w.kill("a call does not end") })
	w.mu.Unlock()
	w.tell(&protocol.Message{Op: protocol.OpCancel, Handle: m.Call, Slot: protocol.NoSlot})
}

// tell sends a request that has no reply.
func (w *worker) tell(m *protocol.Message) { _ = w.send(m.Append(nil)) }

// close releases a handle of the worker's.
func (w *worker) close(handle uint64) {
	if handle != 0 {
		w.tell(&protocol.Message{Op: protocol.OpClose, Handle: handle, Slot: protocol.NoSlot})
	}
}

// kill ends the process, at once or when its hanging call returns.
func (w *worker) kill(why string) {
	w.p.mu.Lock()
	w.p.drainLocked(w)
	again := w.killed
	w.killed = true
	w.p.mu.Unlock()
	if !again {
		w.p.w.countKill()
		w.p.w.lose(w.p.key)
	}
	w.p.w.o.Logger.Warn("killing a store worker", "uid", w.p.key.uid, "root", w.p.key.dir, "why", why)
	w.cmd.Process.Kill()
	// The connection ends with the process, which may take as long as the file system does.
	w.conn.Close()
}

func (w *worker) goneError(m *protocol.Message) error {
	return &bb.Error{
		Kind: bb.Unavailable, Op: m.Op.String(), Path: m.Name, Err: errGone,
		Remedy: "check the file system; work continues by itself",
	}
}

// release ends a use of the worker. The last use of an ended worker frees its memory.
func (w *worker) release() {
	w.mu.Lock()
	w.uses--
	idle, free := w.uses == 0, w.uses == 0 && w.ended
	w.mu.Unlock()
	if free {
		unix.Munmap(w.mem)
	} else if idle {
		w.p.idle(w)
	}
}

// used reports whether a call uses the worker.
func (w *worker) used() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses > 0
}

// use counts a use of the worker, which is not draining.
func (w *worker) use() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses++
}

// end is called when the process is gone.
func (w *worker) end() {
	w.mu.Lock()
	w.ended = true
	free := w.uses == 0
	w.mu.Unlock()
	close(w.reaped)
	if free {
		unix.Munmap(w.mem)
	}
}
