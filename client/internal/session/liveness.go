package session

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// livenessEvery is the time for which the result of a check of a connection is used. A daemon that dies and
// restarts needs longer than this to lease memory again, so that a client with such a recent result
// never touches memory that belongs to another user by now.
const livenessEvery = 5 * time.Millisecond

// liveness reports whether a connection's other end is still there, without reading from it.
type liveness struct {
	began time.Time
	seen  atomic.Int64 // since began; time of the last check that found it alive

	mu   sync.Mutex
	raw  syscall.RawConn
	poll [1]unix.PollFd
	look func(fd uintptr) // made once, so that looking allocates nothing
	gone bool
}

func (p *liveness) init(conn net.Conn) {
	p.began = time.Now()
	if c, ok := conn.(syscall.Conn); ok {
		p.raw, _ = c.SyscallConn() // without it, only reads and writes detect that
	}
	p.look = func(fd uintptr) {
		p.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		n, err := unix.Poll(p.poll[:], 0)
		p.gone = err == nil && n > 0 && p.poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	}
}

// isAlive reports whether the other end is there, or was within livenessEvery.
func (p *liveness) isAlive() bool {
	now := int64(time.Since(p.began))
	return now-p.seen.Load() < int64(livenessEvery) || p.isAliveNow()
}

// isAliveNow reports whether the other end is there at this moment.
func (p *liveness) isAliveNow() bool {
	now := int64(time.Since(p.began))
	if p.raw == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.raw.Control(p.look); err != nil || p.gone {
		return false
	}
	p.seen.Store(now)
	return true
}

// Alive reports whether the daemon's grants of this session are still ours. It
// breaks a session whose daemon has ended.
func (s *Session) Alive() bool {
	if s.Broken() {
		return false
	}
	if s.liveness.isAlive() {
		return true
	}
	s.fail(net.ErrClosed)
	return false
}

// AliveNow is Alive without the recent result.
func (s *Session) AliveNow() bool { return s.liveness.isAliveNow() && s.Alive() }
