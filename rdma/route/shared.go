package route

import (
	"context"
	"log/slog"
	"sync"

	"forebay/rdma"
	"forebay/rdma/ofi"
)

// shared are the fabrics of libfabric's that the routes of a process have in use: one domain and
// one progress loop for all sessions that go over the same fabric, however many peers they lead
// to. What nobody uses is closed.
//
// One domain for all of them takes no protection away, because nothing in it is offered: no region
// is registered in a fabric that only dials, so all that a peer finds there besides its own
// connection is the page that every peer may read (ofi's sight), of zeros; buffers are registered
// without remote access, which the fabric itself enforces. A daemon serves its regions in a fabric
// of its own, which is not one of these: peers that this process dials do not get an endpoint in
// the domain where users' regions are.
type shared struct {
	open func(ofi.Options) (fabric, error)

	mu struct {
		sync.Mutex
		inUse map[ofi.Want]*use
	}
}

// fabric is what routes need of ofi.Fabric.
type fabric interface {
	DialWith(ctx context.Context, addr string, d ofi.Dialer) (rdma.Conn, error)
	Broken() bool
	Close() error
}

// use is a fabric, and how many routes use it.
type use struct {
	of     *shared
	want   ofi.Want
	ready  chan struct{} // closed when what follows is there
	fabric fabric
	err    error
	users  int // guarded by the lock of shared
}

// process is what all routes share. A domain pins memory and a loop is a thread: both are the
// process's, whoever in it asks.
var process = &shared{open: openOFI}

func openOFI(o ofi.Options) (fabric, error) {
	f, err := ofi.New(o)
	if err != nil {
		return nil, err // not a nil *Fabric in an interface
	}
	return f, nil
}

// use returns the fabric that is wanted, opened if nobody has it yet, or if what they have is
// broken. Whoever gets it closes the use. The first one's log hears of the fabric.
func (s *shared) use(want ofi.Want, log *slog.Logger) (*use, error) {
	s.mu.Lock()
	u := s.mu.inUse[want]
	if u != nil && u.opened() && u.fabric.Broken() {
		u = nil // its users keep it until they close it
	}
	first := u == nil
	if first {
		u = &use{of: s, want: want, ready: make(chan struct{})}
		if s.mu.inUse == nil {
			s.mu.inUse = make(map[ofi.Want]*use)
		}
		s.mu.inUse[want] = u
	}
	u.users++
	s.mu.Unlock()
	if first {
		u.fabric, u.err = s.open(ofi.Options{Want: want, Log: log})
		close(u.ready)
	}
	<-u.ready
	if u.err != nil {
		_ = u.Close() // there is nothing to close
		return nil, u.err
	}
	return u, nil
}

// opened reports whether there is a fabric, or was going to be.
func (u *use) opened() bool {
	select {
	case <-u.ready:
		return u.err == nil
	default:
		return false
	}
}

// Close ends the use, and with the last one the fabric. It must be called once.
func (u *use) Close() error {
	s := u.of
	s.mu.Lock()
	u.users--
	last := u.users == 0
	if last && s.mu.inUse[u.want] == u {
		delete(s.mu.inUse, u.want)
	}
	s.mu.Unlock()
	if !last || u.fabric == nil {
		return nil
	}
	return u.fabric.Close()
}
