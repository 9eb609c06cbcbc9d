// Package device is /dev/fuse of one mount: it reads the kernel's requests, has the file system answer them, and can stop
// between two of them, so that another process goes on. It must never depend on what a request is about.
package device

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Requests of the kernel that are not the file system's alone (linux/fuse.h).
const (
	opForget      = 2
	opRead        = 15
	opGetxattr    = 22
	opListxattr   = 23
	opInit        = 26
	opReaddir     = 28
	opInterrupt   = 36
	opIoctl       = 39
	opBatchForget = 42
	opReaddirplus = 44
)

// Sizes, in bytes, of structures of the kernel.
const (
	inHeader  = 40
	outHeader = 16
	ioctlOut  = 16
	writeIn   = 40
	smallIn   = 4 << 10 // a request that is copied, so that the buffer for the largest one is free for the next
	smallOut  = 8 << 10 // of the answers that no size is requested of
	page      = 4 << 10
)

// Device is /dev/fuse of a mount. Its methods may be called concurrently.
type Device struct {
	file    *os.File
	fd      int // its descriptor
	conn    syscall.RawConn
	log     *slog.Logger
	largest int // bytes of a read or write
	server  *fuse.ProtocolServer
	restart func(Call)

	requests, answers, small sync.Pool     // of *[]byte
	notifying                sync.RWMutex  // by notifications that wait for programs, but not by requests
	dropping                 atomic.Int64  // requests that have the kernel drop pages
	copying                  atomic.Int64  // large requests that are being answered
	over                     chan struct{} // closed when the mount has ended
	ending                   sync.Once

	mu struct {
		sync.Mutex
		loops    int // goroutines
		readers  int // of them, those that read
		parked   int // of them, those that wait until there are too few readers
		paused   bool
		ended    bool
		inFlight map[uint64]struct{}
	}
	unpark sync.Cond // by d.mu
	init   []byte    // the kernel's first request
}

const (
	maxReaders = 16 // goroutines that read at most
	maxParked  = 16 // goroutines that are kept for later requests
)

func newDevice(fd int, largest int, log *slog.Logger) (*Device, error) {
	unix.CloseOnExec(fd)
	// A goroutine that waits for a request is no thread then, which the runtime would have to replace.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, bb.Wrap("mount", "/dev/fuse", err)
	}
	d := &Device{file: os.NewFile(uintptr(fd), "/dev/fuse"), fd: fd, log: log, largest: largest, over: make(chan struct{})}
	var err error
	if d.conn, err = d.file.SyscallConn(); err != nil {
		d.file.Close()
		return nil, bb.Wrap("mount", "/dev/fuse", err)
	}
	d.unpark.L = &d.mu
	d.mu.inFlight = map[uint64]struct{}{}
	// The bytes of a write begin on a page, as do those of an answer, since the kernel copies them faster so. A large slice
	// begins on one.
	buffer := func(size, skip int) func() any {
		return func() any {
			p := make([]byte, size)[skip:]
			return &p
		}
	}
	d.requests.New = buffer(largest+2*page, page-inHeader-writeIn)
	d.answers.New, d.small.New = buffer(largest+page, 0), buffer(smallOut, 0)
	return d, nil
}

// Inherit returns the device of a mount that another process has served. Init is that one's Init.
func Inherit(fd int, init []byte, largest int, log *slog.Logger) (*Device, error) {
	d, err := newDevice(fd, largest, log)
	if err == nil {
		d.init = init
	}
	return d, err
}

// Init returns the kernel's first request, which Inherit needs.
func (d *Device) Init() []byte { return d.init }

// Fd returns the descriptor.
func (d *Device) Fd() int { return d.fd }

// Begin has the file system answer the kernel's first request, or, if another process has done so, agrees on the same.
func (d *Device) Begin(calls fuse.RawFileSystem, o *fuse.MountOptions) error {
	d.server = fuse.NewProtocolServer(inPlace{calls}, o)
	inherited := d.init != nil
	if !inherited {
		in := *d.requests.Get().(*[]byte)
		n, err := d.read(in)
		if err != nil {
			return bb.Wrap("mount", "/dev/fuse", err)
		}
		d.init = append([]byte{}, in[:n]...)
	}
	if len(d.init) < inHeader || headerOf(d.init).op != opInit {
		return bb.E(bb.Internal, "mount", "/dev/fuse", "the kernel's first request is another than it should be")
	}
	out := make([]byte, smallOut)
	n, _ := d.server.HandleRequest([][]byte{append([]byte{}, d.init...)}, [][]byte{out})
	if n < outHeader {
		return bb.E(bb.Unsupported, "mount", "/dev/fuse", "the kernel's protocol is too old")
	}
	if inherited {
		return nil
	}
	return bb.Wrap("mount", "/dev/fuse", d.write(out[:n]))
}

// Serve answers requests until the mount ends, or Pause.
func (d *Device) Serve() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.loops++
	go d.loop()
}

// Wait waits until the mount has ended, and all its requests.
func (d *Device) Wait() { <-d.over }

// loop answers requests, one after the other. While one is being answered, another loop reads the next.
func (d *Device) loop() {
	for d.enter() {
		in := d.requests.Get().(*[]byte)
		n, err := d.read(*in)
		h := d.left(*in, n, err)
		if err == nil {
			d.answer(in, n, h)
			continue
		}
		d.requests.Put(in)
		switch err { //nolint:errorlint // of a system call
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // the last: the request was withdrawn meanwhile
		case unix.ENODEV:
			d.cancelAll()
		default:
			d.log.Error("reading the kernel's requests", "err", err)
			d.end()
		}
	}
	d.leave()
}

// enter waits until there are too few readers, and counts one more. It reports false if there is nothing to read any more,
// or enough goroutines wait here.
func (d *Device) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.mu.paused && !d.mu.ended {
		if d.mu.readers < d.wanted() {
			d.mu.readers++
			return true
		}
		if d.mu.parked == maxParked {
			return false
		}
		d.mu.parked++
		d.unpark.Wait()
		d.mu.parked--
	}
	return false
}

// wanted returns how many goroutines should read. Small requests are read faster than they wake another reader. The bytes
// of large ones are copied by several, while there are some. d.mu is locked.
func (d *Device) wanted() int { return min(1+int(d.copying.Load()), runtime.GOMAXPROCS(0), maxReaders) }

// left ends a read. It notes a request, and begins another loop if none waits for the next one. A request that needs no
// answer costs the kernel nothing, so it is carried out before the next is read.
func (d *Device) left(in []byte, n int, err error) (h header) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.readers--
	if err != nil {
		return h
	}
	h = headerOf(in[:n])
	if !h.forgets() && h.op != opInterrupt {
		d.mu.inFlight[h.unique] = struct{}{}
	}
	if n > smallIn {
		d.copying.Add(1)
	}
	switch {
	case d.mu.readers >= d.wanted() || d.mu.paused || h.forgets():
	case d.mu.parked > 0:
		d.unpark.Signal()
	default:
		d.mu.loops++
		go d.loop()
	}
	return h
}

// leave ends a loop.
func (d *Device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.loops--
	if d.mu.loops == 0 && d.mu.ended {
		d.ending.Do(func() {
			d.file.Close()
			close(d.over)
		})
	}
}

func (d *Device) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.ended = true
	d.unpark.Broadcast()
}

// cancelAll ends the mount. Nobody waits for the answers of requests in flight.
func (d *Device) cancelAll() {
	d.end()
	d.mu.Lock()
	left := make([]uint64, 0, len(d.mu.inFlight))
	for unique := range d.mu.inFlight {
		left = append(left, unique)
	}
	d.mu.Unlock()
	for _, unique := range left {
		in := make([]byte, inHeader+8)
		binary.NativeEndian.PutUint32(in, uint32(len(in)))
		binary.NativeEndian.PutUint32(in[4:], opInterrupt)
		binary.NativeEndian.PutUint64(in[inHeader:], unique)
		d.server.HandleRequest([][]byte{in}, [][]byte{make([]byte, smallOut)})
	}
}

// answer carries out a request, and answers it.
func (d *Device) answer(buf *[]byte, n int, h header) {
	in := (*buf)[:n]
	if n <= smallIn {
		in = append([]byte{}, in...)
		d.requests.Put(buf)
	} else {
		defer d.requests.Put(buf)
	}
	defer d.answered(h, n)
	if call, is := callOf(in, h); is && d.restart != nil {
		d.restart(call)
		return
	}
	pool := &d.small
	if h.answer(in) > smallOut {
		pool = &d.answers
	}
	out := pool.Get().(*[]byte)
	defer pool.Put(out)
	head, body := make([]byte, outHeader), *out
	k, status := d.server.HandleRequest([][]byte{in}, [][]byte{head, body})
	if status != fuse.OK {
		binary.NativeEndian.PutUint32(head[4:], -uint32(status))
		binary.NativeEndian.PutUint64(head[8:], h.unique)
		k = outHeader
	}
	if k == 0 {
		return
	}
	binary.NativeEndian.PutUint32(head, uint32(k))
	err := d.write(head, body[:k-outHeader])
	// The request was withdrawn, or the mount has ended: its programs do not wait.
	if err != nil && err != unix.ENOENT && err != unix.ENODEV && err != unix.EPERM { //nolint:errorlint // of a system call
		d.log.Error("answering a request of the kernel", "err", err, "request", h.op)
	}
}

func (d *Device) answered(h header, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.inFlight, h.unique)
	if n > smallIn {
		d.copying.Add(-1)
	}
}

// inPlace is a file system whose reads fill the answer's buffer. The library would copy them onto themselves.
type inPlace struct{ fuse.RawFileSystem }

func (f inPlace) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	result, status := f.RawFileSystem.Read(cancel, in, buf)
	if status != fuse.OK {
		return nil, status
	}
	data, status := result.Bytes(buf)
	return filled(data), status
}

type filled []byte

func (f filled) Bytes([]byte) ([]byte, fuse.Status) { return f, fuse.OK }
func (f filled) Size() int                          { return len(f) }
func (f filled) Done()                              {}

// read waits for a request, and reads it. When Pause begins, that is EAGAIN.
func (d *Device) read(p []byte) (n int, err error) {
	once := func(fd uintptr) bool {
		n, err = unix.Read(int(fd), p)
		return err != unix.EAGAIN //nolint:errorlint // of a system call
	}
	// A goroutine that waits in the poller holds the descriptor's lock of readers. While requests are being copied, several
	// goroutines are to read. So each one tries it without that lock first.
	if d.copying.Load() > 0 && d.conn.Control(func(fd uintptr) { once(fd) }) == nil && err != unix.EAGAIN { //nolint:errorlint // of a system call
		return whole(n, err)
	}
	switch waited := d.conn.Read(once); {
	case errors.Is(waited, os.ErrDeadlineExceeded):
		return 0, unix.EAGAIN
	case waited != nil && d.conn.Control(func(fd uintptr) { once(fd) }) != nil: // else the kernel has the reason
		return 0, unix.ENODEV
	}
	return whole(n, err)
}

// whole returns the result of a read. A request that is too short is an error.
func whole(n int, err error) (int, error) {
	if err == nil && n < inHeader {
		err = unix.EIO
	}
	return n, err
}

// write passes the parts of an answer or of a notification to the kernel.
func (d *Device) write(parts ...[]byte) (err error) {
	if closed := d.conn.Control(func(fd uintptr) {
		for {
			if _, err = unix.Writev(int(fd), parts); err != unix.EINTR { //nolint:errorlint // of a system call
				return
			}
		}
	}); closed != nil {
		return unix.ENODEV
	}
	return err
}

// header is the part of a request that is the same in all.
type header struct {
	op     uint32
	unique uint64
	uid    uint32
}

func headerOf(in []byte) header {
	order := binary.NativeEndian
	return header{order.Uint32(in[4:]), order.Uint64(in[8:]), order.Uint32(in[24:])}
}

func (h header) forgets() bool { return h.op == opForget || h.op == opBatchForget }

// answer returns how many bytes are requested, 0 if the request names no number.
func (h header) answer(in []byte) int {
	at := inHeader // of the number
	switch h.op {
	case opRead, opReaddir, opReaddirplus:
		at += 16
	case opIoctl:
		at += 28
	case opGetxattr, opListxattr:
	default:
		return 0
	}
	if len(in) < at+4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(in[at:])) + ioctlOut
}

// Pause stops reading, and returns when all requests that were read are answered. Notifications that wait for a program wait
// until Resume. It fails with bb.Busy when ctx ends before, and is resumed then.
func (d *Device) Pause(ctx context.Context) error {
	// A notification waits for the locks of programs, which wait for their answers. So none may be under way when no
	// request is read any more.
	for !d.notifying.TryLock() {
		if !pause(ctx) {
			return bb.E(bb.Busy, "restart", "", "a notification of the kernel does not end")
		}
	}
	err := d.stop()
	for waits := 0; err == nil && !d.idle(); {
		switch {
		case !pause(ctx):
			err = bb.E(bb.Busy, "restart", "", bb.Count(d.waiting(), "request of programs does", "requests of programs do")+" not end").WithRemedy("see whether the daemons answer: bbctl nodes")
		case d.dropping.Load() == 0:
			waits = 0
		default:
			waits++
		}
		if waits == maxWaits { // perhaps for pages that a request not read yet has to fill
			waits = 0
			d.resume()
			for d.dropping.Load() > 0 && pause(ctx) {
			}
			err = d.stop()
		}
	}
	if err != nil {
		d.Resume()
	}
	return err
}

// maxWaits is how often Pause finds a request that drops pages until it reads on.
const maxWaits = 50

// stop has no request read any more.
func (d *Device) stop() error {
	d.mu.Lock()
	d.mu.paused = true
	d.unpark.Broadcast()
	d.mu.Unlock()
	return d.file.SetReadDeadline(time.Unix(1, 0))
}

// Resume goes on after Pause.
func (d *Device) Resume() {
	d.notifying.Unlock()
	d.resume()
}

func (d *Device) resume() {
	if err := d.file.SetReadDeadline(time.Time{}); err != nil {
		d.log.Error("resuming", "err", err)
	}
	d.mu.Lock()
	d.mu.paused = false
	d.mu.Unlock()
	d.Serve()
}

func (d *Device) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.loops == 0
}

func (d *Device) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.inFlight)
}

// pause waits for a moment. It reports false when ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
