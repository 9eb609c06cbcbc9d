package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/accept"
	"forebay/rdma/internal/lifetime"
	"forebay/rdma/internal/target"
)

// pendingHandshakes bounds the sockets between arrival and Accept.
const pendingHandshakes = 1024

// Fabric implements rdma.Fabric.
type Fabric struct {
	opts      Options
	regions   target.Registry
	atlas     atlas
	listeners lifetime.Set[*listener]
	conns     lifetime.Set[*conn]
	owned     lifetime.Set[*region]
	files     struct {
		sync.Mutex
		byID map[uint64]*region
	}

	ctx    context.Context // ends with Close, and with it the calls under way
	cancel context.CancelFunc
}

var _ rdma.Fabric = (*Fabric)(nil)

// New returns a fabric. It starts nothing until something is asked of it.
func New(opts Options) (*Fabric, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{opts: opts.withDefaults()}
	f.files.byID = make(map[uint64]*region)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Name implements rdma.Fabric.
func (f *Fabric) Name() string { return "shm" }

// Limits implements rdma.Fabric.
func (f *Fabric) Limits() rdma.Limits {
	return rdma.Limits{
		MaxOp: 1 << 46, MaxMessage: f.opts.MaxMessage, Depth: f.opts.Depth, NeedsFile: true,
	}
}

// Close implements rdma.Fabric. Regions go first, so that peers confirm their revocation.
func (f *Fabric) Close() error {
	f.cancel()
	return errors.Join(f.listeners.Close(), f.owned.Close(), f.conns.Close())
}

type listener struct{ *accept.Listener }

// Listen implements rdma.Fabric. The address is the path of a socket to create, or "@name" for
// one outside the file system. A path that exists is refused: who knows that its owner is dead
// removes it first. Who may connect is decided by Options.Authorize, beside the path's permissions.
func (f *Fabric) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	var lc net.ListenConfig
	raw, err := lc.Listen(ctx, "unixpacket", addr)
	if err != nil {
		return nil, fmt.Errorf("shm listen on %s: %w", addr, err)
	}
	l := &listener{}
	l.Listener = accept.New(ctx, accept.Config{
		Raw: raw, Timeout: f.opts.HandshakeTimeout, Pending: pendingHandshakes, Log: f.opts.Log,
		Handshake: func(ctx context.Context, s net.Conn) (rdma.Conn, error) {
			return f.handshake(ctx, s.(*net.UnixConn))
		},
	}, func() { f.listeners.Remove(l) })
	if err := f.listeners.Add(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Dial implements rdma.Fabric.
func (f *Fabric) Dial(ctx context.Context, addr string) (rdma.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	var d net.Dialer
	s, err := d.DialContext(ctx, "unixpacket", addr)
	var c rdma.Conn
	if err == nil {
		c, err = f.handshake(ctx, s.(*net.UnixConn))
	}
	switch {
	case err == nil:
		return c, nil
	case f.ctx.Err() != nil:
		return nil, fmt.Errorf("shm dial %s: %w", addr, rdma.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("shm dial %s: %w: %w", addr, ctx.Err(), err)
	}
	return nil, fmt.Errorf("shm dial %s: %w: %w", addr, rdma.ErrPeerGone, err)
}

// handshake is the same on both sides: check who it is, send a hello, expect one. It owns s.
func (f *Fabric) handshake(ctx context.Context, s *net.UnixConn) (rdma.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	theirs, peer, err := f.greet(ctx, s)
	stop()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	c, err := newConn(f, s, theirs, peer)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

func (f *Fabric) greet(ctx context.Context, s *net.UnixConn) (packet, string, error) {
	cred, err := credentials(s)
	if err == nil {
		err = f.opts.Authorize(cred)
	}
	if err != nil {
		return packet{}, "", fmt.Errorf("authorize: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := s.SetDeadline(deadline); err != nil {
			return packet{}, "", err
		}
	}
	mine := packet{kind: kindHello, a: uint64(f.opts.MaxMessage), b: uint64(f.opts.Messages)}
	if _, err := s.Write(mine.append(nil)); err != nil {
		return packet{}, "", fmt.Errorf("write hello: %w", err)
	}
	buf := make([]byte, headerSize+1)
	n, err := s.Read(buf)
	if err != nil {
		return packet{}, "", fmt.Errorf("read hello: %w", err)
	}
	theirs, _, err := decodePacket(buf[:n])
	if err != nil || theirs.kind != kindHello || theirs.a < 1 || theirs.a > maxMessage ||
		theirs.b < 1 || theirs.b > maxMessages {
		return packet{}, "", fmt.Errorf("not a hello of version %d: %w", version, rdma.ErrProtocol)
	}
	return theirs, fmt.Sprintf("pid %d uid %d", cred.Pid, cred.Uid), s.SetDeadline(time.Time{})
}

func credentials(s *net.UnixConn) (unix.Ucred, error) {
	rc, err := s.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var cred *unix.Ucred
	var got error
	err = rc.Control(func(fd uintptr) {
		cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, got); err != nil {
		return unix.Ucred{}, err
	}
	return *cred, nil
}

// Register implements rdma.Fabric. Unless the access is local, the memory needs a file.
func (f *Fabric) Register(mem rdma.Memory, access rdma.Access) (rdma.Region, error) {
	file, err := share(mem, access)
	if err != nil {
		return nil, fmt.Errorf("shm register: %w", err)
	}
	t, err := f.regions.Add(mem.Bytes, access)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := &region{Region: t, fabric: f, file: file, offset: mem.Offset}
	r.mu.holders = make(map[*conn]chan struct{})
	if err := f.owned.Add(r); err != nil {
		t.Revoke()
		return nil, errors.Join(err, file.Close())
	}
	f.files.Lock()
	f.files.byID[t.Key().ID()] = r
	f.files.Unlock()
	return r, nil
}

// share returns a descriptor of the memory's file with no more rights than peers shall have.
func share(mem rdma.Memory, access rdma.Access) (*os.File, error) {
	if mem.File == nil && access == rdma.AccessLocal {
		return nil, nil
	}
	if mem.File == nil {
		return nil, fmt.Errorf("memory without a file cannot be mapped by peers: %w", errors.ErrUnsupported)
	}
	st, err := mem.File.Stat()
	if err != nil {
		return nil, err
	}
	if mem.Offset < 0 || mem.Offset%int64(os.Getpagesize()) != 0 || st.Size()-int64(len(mem.Bytes)) < mem.Offset {
		return nil, fmt.Errorf("%d bytes at %d in a file of %d: %w", len(mem.Bytes), mem.Offset, st.Size(), rdma.ErrInvalid)
	}
	flag := os.O_RDONLY
	if access&rdma.AccessRemoteWrite != 0 {
		flag = os.O_RDWR
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", mem.File.Fd()), flag, 0)
}
