package shm

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

// copyStep is how much is copied between two looks at whether the copy shall stop.
const copyStep = 1 << 20

// atlas holds the regions of other processes that this Fabric has mapped, each once. It may be
// used concurrently.
type atlas struct {
	mu struct {
		sync.Mutex
		maps map[rdma.RemoteKey]*mapping
	}
}

// mapping is a peer's region in this process. Its lifecycle:
//
//	live ──revoke, or last detach──▶ ending ──last release──▶ unmapped: told to all that wait
type mapping struct {
	atlas  *atlas
	key    rdma.RemoteKey
	access rdma.Access
	mem    []byte
	ending atomic.Bool // to be seen by a copy under way

	mu struct {
		sync.Mutex
		conns    int // connections through which it was obtained
		users    int // copies under way
		ending   bool
		unmapped bool
		told     []func() // called once unmapped
	}
}

// attach maps the descriptor, unless the region is mapped already, and counts the connection.
// The descriptor stays the caller's.
func (a *atlas) attach(key rdma.RemoteKey, p packet, fd int) (*mapping, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.mu.maps[key]; m != nil && m.join() {
		return m, nil
	}
	mem, err := mapRegion(p, fd)
	if err != nil {
		return nil, err
	}
	m := &mapping{atlas: a, key: key, access: p.access, mem: mem}
	m.mu.conns = 1
	if a.mu.maps == nil {
		a.mu.maps = make(map[rdma.RemoteKey]*mapping)
	}
	a.mu.maps[key] = m
	return m, nil
}

// mapRegion checks that the file is as long as the peer says, for touching a page behind its end
// is a fault.
func mapRegion(p packet, fd int) ([]byte, error) {
	if p.b == 0 {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat region: %w", err)
	}
	const limit = 1 << 47
	if p.a > limit || p.b > limit || p.a%uint64(os.Getpagesize()) != 0 || int64(p.a+p.b) > st.Size {
		return nil, fmt.Errorf("region of %d bytes at %d in a file of %d: %w", p.b, p.a, st.Size, rdma.ErrProtocol)
	}
	prot := unix.PROT_READ
	if p.access&rdma.AccessRemoteWrite != 0 {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(fd, int64(p.a), int(p.b), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map region: %w", err)
	}
	return mem, nil
}

func (m *mapping) join() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.ending {
		return false
	}
	m.mu.conns++
	return true
}

// detach uncounts a connection.
func (m *mapping) detach() {
	m.mu.Lock()
	m.mu.conns--
	last := m.mu.conns == 0
	m.mu.Unlock()
	if last {
		m.end(nil)
	}
}

// end refuses further copies and unmaps as soon as none is under way; then it calls told, if
// that is not nil. It does not wait.
func (m *mapping) end(told func()) {
	m.atlas.forget(m)
	m.ending.Store(true)
	m.mu.Lock()
	m.mu.ending = true
	if told != nil {
		m.mu.told = append(m.mu.told, told)
	}
	ready := m.unmapIfUnused()
	m.mu.Unlock()
	callAll(ready)
}

func (a *atlas) forget(m *mapping) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.maps[m.key] == m {
		delete(a.mu.maps, m.key)
	}
}

func (m *mapping) acquire() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.ending {
		return rdma.ErrRevoked
	}
	m.mu.users++
	return nil
}

func (m *mapping) release() {
	m.mu.Lock()
	m.mu.users--
	ready := m.unmapIfUnused()
	m.mu.Unlock()
	callAll(ready)
}

// unmapIfUnused returns whom to tell. The lock is held.
func (m *mapping) unmapIfUnused() []func() {
	if !m.mu.ending || m.mu.users > 0 {
		return nil
	}
	if !m.mu.unmapped && m.mem != nil {
		_ = unix.Munmap(m.mem) // fails only for what was never mapped
		m.mem = nil
	}
	m.mu.unmapped = true
	told := m.mu.told
	m.mu.told = nil
	return told
}

func callAll(fs []func()) {
	for _, f := range fs {
		f()
	}
}

// transfer does one operation. It stops early when the region is revoked or stop is closed.
func (m *mapping) transfer(op *rdma.Op, stop <-chan struct{}, stopped func() error) error {
	if err := m.acquire(); err != nil {
		return err
	}
	defer m.release()
	if err := target.Check(m.access, len(m.mem), op.Kind, op.Remote.Offset, len(op.Local)); err != nil {
		return err
	}
	remote := m.mem[op.Remote.Offset:]
	for at := 0; at < len(op.Local); at += copyStep {
		local := op.Local[at:min(at+copyStep, len(op.Local))]
		if err := copyStepOf(op.Kind, local, remote[at:at+len(local)]); err != nil {
			return err
		}
		if m.ending.Load() {
			return rdma.ErrRevoked
		}
		select {
		case <-stop:
			return stopped()
		default:
		}
	}
	return nil
}

// copyStepOf copies a piece. The owner can truncate the file under the mapping; the fault that
// touching it raises then is an error of this operation, not the end of the process.
func copyStepOf(kind rdma.OpKind, local, remote []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("shm: the region's file was cut off: %w", rdma.ErrRevoked)
		default:
			panic(fault)
		}
	}()
	if kind == rdma.OpRead {
		copy(local, remote)
	} else {
		copy(remote, local)
	}
	return nil
}
