package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"

	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
)

// shared are the fabrics of libfabric's that the routes of a process have in use. They have one
// domain and one progress loop for all sessions that go over the same fabric, however many peers
// they lead to. Unused ones are closed.
//
// One domain for all of them removes no protection, because nothing in it is offered. No region is
// registered in a fabric that only dials, so a peer finds there only its own connection and the
// page that every peer may read (ofi's sight), of zeros. Buffers are registered without remote
// access, which the fabric itself enforces. A daemon serves its regions in a fabric of its own,
// which is not one of these, since peers that this process dials do not get an endpoint in the
// domain where users' regions are.
type shared struct {
	open func(ofi.Options) (fabric, error)

	mu struct {
		sync.Mutex
		inUse map[fi.Want]*use
		open  map[*use]struct{} // those with a fabric, broken ones too
		kept  map[*kept]struct{}
	}
}

// fabric is the part of ofi.Fabric that routes need.
type fabric interface {
	DialWith(ctx context.Context, addr string, d ofi.Dialer) (rdma.Conn, error)
	Keep(mem []byte) (io.Closer, error)
	Broken() bool
	Close() error
}

// use is a fabric, and how many routes use it.
type use struct {
	of     *shared
	want   fi.Want
	ready  chan struct{} // closed when the next fields are set
	fabric fabric
	err    error
	users  int // guarded by the lock of shared
}

// process is shared by all routes. A domain pins memory and a loop is a thread, since both are the
// process's, for all its callers.
var process = &shared{open: openOFI}

func openOFI(o ofi.Options) (fabric, error) {
	f, err := ofi.New(o)
	if err != nil {
		return nil, err // not a nil *Fabric in an interface
	}
	return f, nil
}

// use returns the wanted fabric. If no user has opened it yet, or the open one is broken, it is
// opened. The caller closes the use. The first caller's log gets the fabric's description.
func (s *shared) use(want fi.Want, log *slog.Logger) (*use, error) {
	s.mu.Lock()
	u := s.mu.inUse[want]
	if u != nil && u.opened() && u.fabric.Broken() {
		u = nil // its users keep it until they close it
	}
	first := u == nil
	if first {
		u = &use{of: s, want: want, ready: make(chan struct{})}
		if s.mu.inUse == nil {
			s.mu.inUse = make(map[fi.Want]*use)
		}
		s.mu.inUse[want] = u
	}
	u.users++
	s.mu.Unlock()
	if first {
		u.fabric, u.err = s.open(ofi.Options{Want: want, Log: log})
		if u.err == nil {
			u.err = s.opened(u)
		}
		close(u.ready)
	}
	<-u.ready
	if u.err != nil {
		_ = u.Close() // there is nothing to close
		return nil, u.err
	}
	return u, nil
}

// opened passes the kept memory on to a new fabric.
func (s *shared) opened(u *use) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open == nil {
		s.mu.open = make(map[*use]struct{})
	}
	s.mu.open[u] = struct{}{}
	for k := range s.mu.kept {
		if err := k.at(u); err != nil {
			return err
		}
	}
	return nil
}

// opened reports whether there is a fabric.
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
	if last {
		if s.mu.inUse[u.want] == u {
			delete(s.mu.inUse, u.want)
		}
		delete(s.mu.open, u)
		for k := range s.mu.kept {
			delete(k.there, u) // is closed with the fabric
		}
	}
	s.mu.Unlock()
	if !last || u.fabric == nil {
		return nil
	}
	return u.fabric.Close()
}

// Keep guarantees that memory stays mapped in its place until the returned closer is closed.
// One-sided operations of any route of the process on it need no copy, even if a fabric requires
// registered memory. See ofi.Fabric.Keep for the rules of kept memory. If the program has no
// libfabric, there is nothing to be done. If the memory overlaps with other memory that is kept, it
// returns ErrInvalid.
func Keep(mem []byte) (io.Closer, error) { return process.keep(mem) }

// kept is memory of a process, in each of its fabrics.
type kept struct {
	of    *shared
	mem   []byte
	there map[*use]io.Closer // guarded by the lock of shared
}

func (s *shared) keep(mem []byte) (io.Closer, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("keep nothing: %w", rdma.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.mu.kept {
		if overlap(mem, other.mem) {
			return nil, fmt.Errorf("keep %d bytes of which some are kept already: %w", len(mem), rdma.ErrInvalid)
		}
	}
	k := &kept{of: s, mem: mem, there: make(map[*use]io.Closer)}
	for u := range s.mu.open {
		if err := k.at(u); err != nil {
			return nil, errors.Join(err, k.closeAll(k.there))
		}
	}
	if s.mu.kept == nil {
		s.mu.kept = make(map[*kept]struct{})
	}
	s.mu.kept[k] = struct{}{}
	return k, nil
}

func overlap(a, b []byte) bool {
	i, j := reflect.ValueOf(a).Pointer(), reflect.ValueOf(b).Pointer()
	return i < j+uintptr(len(b)) && j < i+uintptr(len(a))
}

// at has the memory kept in a fabric. The lock of shared is held.
func (k *kept) at(u *use) error {
	c, err := u.fabric.Keep(k.mem)
	if err == nil {
		k.there[u] = c
	}
	return err
}

// Close ends the guarantee. When it returns, no operation uses the memory, and it is registered
// nowhere. It is idempotent.
func (k *kept) Close() error {
	s := k.of
	s.mu.Lock()
	there := k.there
	k.there = nil
	delete(s.mu.kept, k)
	s.mu.Unlock()
	return k.closeAll(there)
}

func (k *kept) closeAll(there map[*use]io.Closer) error {
	var errs []error
	for _, c := range there {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
