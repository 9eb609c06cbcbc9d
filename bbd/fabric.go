package bbd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/tcp"
)

// fabric serves one-sided transfers to sessions that came over TCP: what they lease
// they write, and what they have pinned they read, in a region's memory itself.
//
// A region's key reaches all of the region, which belongs to one user; it goes to
// sessions of that user alone. The key outlives the session that learnt it, so a
// connection does not: it is admitted by a live session's ticket and ends with it,
// before anything that the session held is given to somebody else.
//
// The nil fabric serves nobody.
//
// The same memory is served over TCP and, where there is libfabric, over that as well:
// the dialer takes which it has too. A region has one key for both.
//
// Regions are registered outside any request: all that there are before anybody is let
// in, and each that is made later before any of it is leased.
type fabric struct {
	rdma     *tcp.Fabric
	listener rdma.Listener
	ofi      *libfabric // nil: there is none, or it is not wanted
	log      *slog.Logger
	accepts  sync.WaitGroup

	mu struct {
		sync.Mutex
		regions  map[bb.RegionID]rdma.Region
		sessions map[uint64]*reach
	}
}

// reach is a session's way to the fabric.
type reach struct {
	of        *fabric
	session   uint64
	ticket    []byte
	admission *tcp.Admission
	way       atomic.Pointer[string] // how its connection came, once there was one
}

const (
	// connsPerSession bounds the connections of one session: one, and the next while the
	// end of a broken one has not been noticed.
	connsPerSession = 4
	// fabricTimeout is how long a silent peer is waited for. It is longer than a machine
	// that is only busy stays silent.
	fabricTimeout = 30 * time.Second
)

// newFabric returns the fabric that the configuration asks for. It does not listen yet.
func newFabric(cfg *Config) (*fabric, error) {
	if cfg.Fabric == "" {
		return nil, nil
	}
	f := &fabric{log: cfg.Log}
	f.mu.regions = make(map[bb.RegionID]rdma.Region)
	f.mu.sessions = make(map[uint64]*reach)
	var err error
	if f.ofi, err = newLibfabric(cfg, f.authenticate); err != nil {
		return nil, err
	}
	f.rdma, err = tcp.New(tcp.Options{TLS: cfg.TLS.Server(), Admit: f.authenticate("tcp"), PeerTimeout: fabricTimeout, Log: cfg.Log})
	return f, bb.Wrap("listen", cfg.Fabric, err)
}

// listen starts to accept connections.
func (f *fabric) listen(ctx context.Context, cfg *Config) (err error) {
	if f == nil {
		return nil
	}
	f.listener, err = f.rdma.Listen(ctx, cfg.Fabric)
	if host, _, split := net.SplitHostPort(cfg.Fabric); cfg.FabricAnyPort && split == nil && errors.Is(err, syscall.EADDRINUSE) {
		f.listener, err = f.rdma.Listen(ctx, net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return bb.Wrap("listen", cfg.Fabric, err)
	}
	f.log.Info("listening for one-sided transfers", "address", f.listener.Addr())
	f.accepts.Go(func() { acceptAll(ctx, f.listener) })
	if f.ofi != nil {
		if err := f.ofi.listen(ctx, cfg); err != nil {
			return err
		}
		f.accepts.Go(func() { acceptAll(ctx, f.ofi.listener) })
	}
	return nil
}

// acceptAll takes connections in, until the listener is closed. They serve themselves, and
// end with their sessions.
func acceptAll(ctx context.Context, l rdma.Listener) {
	for {
		if _, err := l.Accept(ctx); err != nil {
			return
		}
	}
}

// close ends all connections. Afterwards nobody else touches the store's memory.
func (f *fabric) close() error {
	if f == nil {
		return nil
	}
	err := errors.Join(f.rdma.Close(), f.ofi.close())
	f.accepts.Wait()
	return err
}

// authenticate lets in the streams of live sessions, which come by the way of that name.
func (f *fabric) authenticate(way string) func(context.Context, net.Conn) (*tcp.Admission, error) {
	return func(_ context.Context, stream net.Conn) (*tcp.Admission, error) {
		var of *reach
		_, err := wire.CheckTicket(stream, func(session uint64) []byte {
			f.mu.Lock()
			defer f.mu.Unlock()
			if of = f.mu.sessions[session]; of == nil {
				return nil
			}
			return of.ticket
		})
		if err != nil {
			return nil, err
		}
		of.way.Store(&way)
		return of.admission, nil
	}
}

// admit gives a session its way to the fabric.
func (f *fabric) admit(session uint64) *reach {
	if f == nil || f.listener == nil {
		return nil
	}
	r := &reach{of: f, session: session, ticket: wire.NewTicket(), admission: tcp.NewAdmission(connsPerSession)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.sessions[session] = r
	return r
}

// end closes the connections of a session. When it returns, nothing that they carried
// reaches memory any more.
func (r *reach) end() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	delete(r.of.mu.sessions, r.session)
	r.of.mu.Unlock()
	r.admission.End()
}

// tell adds to Welcome where the fabric is, and what opens it.
func (r *reach) tell(m *wire.Welcome, local net.Addr) {
	if r == nil {
		return
	}
	m.DataAddress, m.Session, m.DataTicket = advertised(r.of.listener.Addr(), local.String()), r.session, r.ticket
	r.of.ofi.tell(m, local)
}

// advertised is the address under which a peer finds a listener. One that listens
// everywhere is found where the peer found this daemon already.
func advertised(listener, local string) string {
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return listener
	}
	here, _, err := net.SplitHostPort(local)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(here, port)
	}
	return listener
}

// key returns the remote key of a region. The caller has made sure that the session may
// have it.
func (r *reach) key(id bb.RegionID) ([]byte, error) {
	f := r.of
	f.mu.Lock()
	region := f.mu.regions[id]
	f.mu.Unlock()
	if region == nil {
		return nil, bb.E(bb.NotFound, "reach", id.String(), "this node has no such region, or it is going")
	}
	return region.Key().AppendBinary(nil)
}

// memoryOnly reports whether the session's way, which may not be settled yet, leads to
// regions of the memory tier alone; see libfabric.takes.
func (r *reach) memoryOnly() bool {
	if r == nil || !r.of.ofi.pins() {
		return false
	}
	way := r.way.Load()
	return way == nil || *way != "tcp"
}

// register makes all regions that there are reachable, before anybody is let in.
func (f *fabric) register(cfg *Config, s *store.Store) error {
	if f == nil {
		return nil
	}
	start := time.Now()
	var bytes int64
	all := s.Regions()
	for _, info := range all {
		_, mem, err := s.Region(info.ID)
		if err == nil {
			err = f.add(&info, mem)
		}
		if refusal, ok := errors.AsType[*refusal](err); ok && cfg.OFI.Use == OFIAuto {
			f.log.Warn("no one-sided transfers over libfabric: transfers go over TCP", "err", refusal.explain())
			err = f.ofi.close()
			f.ofi = nil
		} else if ok {
			err = refusal.explain()
		}
		if err != nil {
			return err
		}
		bytes += info.Bytes
	}
	if f.ofi != nil {
		f.log.Info("registered with libfabric", "regions", len(all), "bytes", bytes, "took", time.Since(start))
	}
	return nil
}

// made is told of a region that nobody has been lent anything of.
func (f *fabric) made(info store.RegionInfo, mem []byte) {
	if f == nil {
		return
	}
	start := time.Now()
	err := f.add(&info, mem)
	refusal, refused := errors.AsType[*refusal](err)
	switch {
	case refused:
		f.ofi.fail(refusal.explain())
	case errors.Is(err, rdma.ErrClosed): // the daemon is stopping
	case err != nil:
		f.log.Error("a region cannot be registered: its bytes travel in messages", "region", info.ID, "err", err)
	case f.ofi != nil:
		f.log.Info("registered with libfabric", "region", info.ID, "bytes", info.Bytes, "took", time.Since(start))
	}
}

// add makes a region reachable. A refusal says that it is, but not over libfabric.
func (f *fabric) add(info *store.RegionInfo, mem []byte) error {
	region, err := f.rdma.Register(mem, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		return bb.Wrap("register", info.ID.String(), err)
	}
	err = f.ofi.add(info, region)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.regions[info.ID] = region
	return err
}

// gone is told of regions that are about to be unmapped. When it returns, no peer
// touches their memory any more, and their keys open nothing.
func (f *fabric) gone(id bb.RegionID) {
	if f == nil {
		return
	}
	f.mu.Lock()
	region := f.mu.regions[id]
	delete(f.mu.regions, id)
	f.mu.Unlock()
	f.ofi.gone(id)
	if region != nil {
		_ = region.Close() // over TCP it has no errors
	}
}
