// Package fabric makes the memory of the store's regions reachable one-sided, over TCP and
// libfabric, for sessions that were admitted. It must never depend on the content of a region: no
// file, buffer or lease, and nothing of a session but its number.
package fabric

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
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/tcp"
)

// Fabric serves one-sided transfers to sessions that came over TCP: they write their
// leased bytes, and read their pinned ones, in a region's memory itself.
//
// A region's key reaches all of the region, which belongs to one user. The key goes to sessions of
// that user alone. The key outlives the session that received it, so a connection does not. It is
// admitted by a live session's ticket and ends with it, before anything that the session held is
// granted to another one.
//
// The nil Fabric serves no session. Its methods may be called concurrently.
//
// The same memory is served over TCP and, where there is libfabric, over that as well. The dialer
// chooses one that it has too. A region has one key for both.
//
// Regions are registered outside any request: all present ones before any session is
// admitted, and each that is made later before any of it is leased.
type Fabric struct {
	options  Options
	rdma     *tcp.Fabric
	listener rdma.Listener
	ofi      *libfabric // nil: there is none, or it is off
	log      *slog.Logger
	accepts  sync.WaitGroup

	mu struct {
		sync.Mutex
		regions  map[bb.RegionID]rdma.Region
		sessions map[uint64]*Admission
	}
}

// Options are the addresses and the settings of the fabric.
type Options struct {
	Listen  string // host:port; "": New returns the nil Fabric
	AnyPort bool   // another port will do, if that one is taken
	OFI     OFI    // libfabric, beside TCP
	TLS     *clustercert.Credentials
	Log     *slog.Logger
}

// Regions are those of the store that are served.
type Regions interface {
	Regions() []store.RegionInfo
	// Region returns a region's memory, which stays mapped until Gone has returned.
	Region(bb.RegionID) (info store.RegionInfo, mem []byte, err error)
}

// Admission is a session's way to the fabric, from Admit to End. The nil Admission is that of a
// session without one.
type Admission struct {
	of        *Fabric
	session   uint64
	ticket    []byte
	admission *tcp.Admission
	way       atomic.Pointer[string] // how its connection came, once there was one
}

const (
	// connsPerSession bounds the connections of one session: one, and the next until the end of a
	// broken one is detected.
	connsPerSession = 4
	// silence is how long a silent peer is waited for. It is longer than a machine
	// that is only busy stays silent.
	silence = 30 * time.Second
)

// New returns a fabric that does not listen yet.
func New(o Options) (*Fabric, error) {
	if o.Listen == "" {
		return nil, nil
	}
	f := &Fabric{options: o, log: o.Log}
	f.mu.regions = make(map[bb.RegionID]rdma.Region)
	f.mu.sessions = make(map[uint64]*Admission)
	var err error
	if f.ofi, err = newLibfabric(&f.options, f.authenticate); err != nil {
		return nil, err
	}
	f.rdma, err = tcp.New(tcp.Options{TLS: o.TLS.Server(), Admit: f.authenticate("tcp"), PeerTimeout: silence, Log: o.Log})
	return f, bb.Wrap("listen", o.Listen, err)
}

// Listen starts to accept connections. ctx bounds the wait for each of them.
func (f *Fabric) Listen(ctx context.Context) (err error) {
	if f == nil {
		return nil
	}
	f.listener, err = f.rdma.Listen(ctx, f.options.Listen)
	if host, _, split := net.SplitHostPort(f.options.Listen); f.options.AnyPort && split == nil && errors.Is(err, syscall.EADDRINUSE) {
		f.listener, err = f.rdma.Listen(ctx, net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return bb.Wrap("listen", f.options.Listen, err)
	}
	f.log.Info("listening for one-sided transfers", "address", f.listener.Addr())
	f.accepts.Go(func() { acceptAll(ctx, f.listener) })
	if f.ofi != nil {
		if err := f.ofi.listen(ctx, &f.options); err != nil {
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

// Close ends all connections. Afterwards no peer touches the store's memory.
func (f *Fabric) Close() error {
	if f == nil {
		return nil
	}
	err := errors.Join(f.rdma.Close(), f.ofi.close())
	f.accepts.Wait()
	return err
}

// Addr returns where connections over TCP are accepted, or "" if it is nowhere yet.
func (f *Fabric) Addr() string {
	if f == nil || f.listener == nil {
		return ""
	}
	return f.listener.Addr()
}

// authenticate admits the streams of live sessions, which come by the way of that name.
func (f *Fabric) authenticate(way string) func(context.Context, net.Conn) (*tcp.Admission, error) {
	return func(_ context.Context, stream net.Conn) (*tcp.Admission, error) {
		var of *Admission
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

// Admit returns a session's way to the fabric, or nil if there is none. The number names the
// session, and is not used again.
func (f *Fabric) Admit(session uint64) *Admission {
	if f == nil || f.listener == nil {
		return nil
	}
	r := &Admission{of: f, session: session, ticket: wire.NewTicket(), admission: tcp.NewAdmission(connsPerSession)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.sessions[session] = r
	return r
}

// End closes the connections of a session. When it returns, nothing that they carried
// reaches memory any more.
func (r *Admission) End() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	delete(r.of.mu.sessions, r.session)
	r.of.mu.Unlock()
	r.admission.End()
}

// Describe adds to Welcome the fabric's address, and the key to it. The client has reached this
// daemon at local.
func (r *Admission) Describe(m *wire.Welcome, local net.Addr) {
	if r == nil {
		return
	}
	m.DataAddress, m.Session, m.DataTicket = Advertised(r.of.listener.Addr(), local.String()), r.session, r.ticket
	r.of.ofi.describe(m, local)
}

// Advertised is the address under which a peer finds a listener. One that listens
// everywhere is found where the peer found this daemon already.
func Advertised(listener, local string) string {
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

// Key returns the remote key of a region. The caller has made sure that the session may have it.
// The error is bb.NotFound if no such region is served.
func (r *Admission) Key(id bb.RegionID) ([]byte, error) {
	f := r.of
	f.mu.Lock()
	region := f.mu.regions[id]
	f.mu.Unlock()
	if region == nil {
		return nil, bb.E(bb.NotFound, "reach", id.String(), "this node has no such region, or it is going")
	}
	return region.Key().AppendBinary(nil)
}

// Path names the fabric of the session's connection: tcp or ofi/PROVIDER. It returns "" if it has had none.
func (r *Admission) Path() string {
	if r == nil {
		return ""
	}
	if way := r.way.Load(); way != nil {
		return *way
	}
	return ""
}

// MemoryOnly reports whether the session's way, which may not be settled yet, leads to regions of
// the memory tier alone. See libfabric.takes.
func (r *Admission) MemoryOnly() bool {
	if r == nil || !r.of.ofi.pins() {
		return false
	}
	way := r.way.Load()
	return way == nil || *way != "tcp"
}

// Register makes all present regions reachable. It is called once, before Listen. Its
// error has the remedy where the machine does not allow libfabric to register the memory.
func (f *Fabric) Register(s Regions) error {
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
		if refusal, ok := errors.AsType[*refusal](err); ok && f.options.OFI.Use == OFIAuto {
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

// Made makes a region reachable, before anything of it is leased.
func (f *Fabric) Made(info store.RegionInfo, mem []byte) {
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

// add makes a region reachable. A refusal means that it is, but not over libfabric.
func (f *Fabric) add(info *store.RegionInfo, mem []byte) error {
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

// Gone ends the service of a region that is about to be unmapped. When it returns, no peer
// touches its memory any more, and its key opens nothing.
func (f *Fabric) Gone(id bb.RegionID) {
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
