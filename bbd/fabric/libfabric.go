package fabric

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/tcp"
)

// OFI are the settings of one-sided transfers over libfabric. The zero value: none.
type OFI struct {
	Use    OFIUse
	Listen string  // host:port of the lifelines; "": any port at the host of Options.Listen
	Want   fi.Want // which of the machine's fabrics

	Faults Faults // of tests
}

// Faults are the tests' replacements of the machine's properties.
type Faults struct {
	Hardware bool               // any provider counts as hardware
	Refuse   func() (why error) // if not nil, is called before each registration
}

// OFIUse is the condition for the use of libfabric.
type OFIUse string

const (
	// OFIAuto uses it where the program has it, hardware moves the bytes, and they need not be
	// encrypted, since libfabric does not encrypt.
	OFIAuto OFIUse = "auto"
	// OFIOn uses any provider there is, and fails where there is none.
	OFIOn OFIUse = "on"
)

// libfabric serves the memory that fabric serves over TCP over libfabric too. The nil
// libfabric serves no session.
//
// The regions of all users are registered in one domain, in which every peer has an endpoint. The
// regions of other users are guarded from it only by their keys, which on verbs have 32 bits. That
// is enough because all peers have the same trust. Only a client that proves the shared key or
// shows a certificate is admitted, and its claim of its user is accepted (package rpc). Rather than
// guess keys, an attacker could claim another name. Sessions by token, which cannot, have no way
// here (session.welcome). If they ever get one, they need a domain of their own.
type libfabric struct {
	rdma     *ofi.Fabric
	listener rdma.Listener
	log      *slog.Logger
	hardware bool         // moves the bytes
	refuse   func() error // see Faults

	mu struct {
		sync.Mutex
		regions map[bb.RegionID]rdma.Region
		failed  bool // a region could not be registered; it is not offered to sessions any more
	}
}

// newLibfabric opens the configured fabric. It returns nil if none is configured.
func newLibfabric(o *Options, authenticate func(way string) func(context.Context, net.Conn) (*tcp.Admission, error)) (*libfabric, error) {
	use := o.OFI.Use
	if use == "" || use == OFIAuto && (!fi.Supported || o.TLS != nil) {
		return nil, nil
	}
	l := &libfabric{log: o.Log}
	l.mu.regions = make(map[bb.RegionID]rdma.Region)
	want := o.OFI.Want
	offer, err := chosen(want)
	l.hardware, l.refuse = offer.Hardware() || o.OFI.Faults.Hardware, o.OFI.Faults.Refuse
	if err == nil && use == OFIAuto && !l.hardware {
		return nil, nil
	}
	if err == nil {
		l.rdma, err = ofi.New(ofi.Options{
			Want: want, TLS: o.TLS.Server(), Admit: authenticate("ofi/" + offer.Provider), PeerTimeout: silence, Log: o.Log,
		})
	}
	switch {
	case err == nil:
		return l, nil
	case use == OFIAuto:
		o.Log.Warn("no one-sided transfers over libfabric", "err", explain("listen", "libfabric", err))
		return nil, nil
	}
	return nil, explain("listen", "libfabric", err)
}

// chosen returns the offer that ofi.New would choose.
func chosen(want fi.Want) (fi.Offer, error) {
	offers, err := fi.List()
	if err != nil {
		return fi.Offer{}, err
	}
	i, _ := fi.Choose(offers, want)
	if i < 0 {
		return fi.Offer{}, errors.New("no offer of libfabric can be used")
	}
	return offers[i], nil
}

// listen starts to accept connections.
func (l *libfabric) listen(ctx context.Context, o *Options) (err error) {
	address := o.OFI.Listen
	if address == "" {
		host, _, _ := net.SplitHostPort(o.Listen) // the fabric over TCP listens there
		address = net.JoinHostPort(host, "0")
	}
	if l.listener, err = l.rdma.Listen(ctx, address); err != nil {
		return bb.Wrap("listen", address, err)
	}
	offer := l.rdma.Offer()
	l.log.Info("listening for one-sided transfers over libfabric", "address", l.listener.Addr(), "libfabric", fi.Version(),
		"provider", offer.Provider, "domain", offer.Domain, "network", offer.Fabric, "endpoints", offer.Endpoint)
	return nil
}

func (l *libfabric) close() error {
	if l == nil {
		return nil
	}
	return l.rdma.Close()
}

// describe adds to Welcome where it is.
func (l *libfabric) describe(m *wire.Welcome, local net.Addr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed {
		return
	}
	o := l.rdma.Offer()
	m.OfiAddress = Advertised(l.listener.Addr(), local.String())
	m.OfiProvider, m.OfiEndpoint, m.OfiNetwork = o.Provider, string(o.Endpoint), o.Fabric
}

// pins reports whether registered memory stays in memory, as it does if hardware moves the bytes.
func (l *libfabric) pins() bool {
	if l == nil || !l.hardware {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.mu.failed
}

// takes reports whether a region is registered. A region on disk is not, where registration pins,
// since it would fill the memory that spilling was to free, and newer kernels refuse it. Its bytes
// travel in messages then.
func (l *libfabric) takes(info *store.RegionInfo) bool {
	return info.Tier == bb.TierMemory || !l.pins()
}

// add makes a region that is served over TCP reachable under the same key. Its error is a
// refusal.
func (l *libfabric) add(info *store.RegionInfo, of rdma.Region) error {
	if l == nil || !l.takes(info) {
		return nil
	}
	region, err := l.registerAs(of)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.mu.regions[info.ID] = region
	case !l.mu.failed:
		return &refusal{region: info.ID, err: err}
	}
	return nil
}

func (l *libfabric) registerAs(of rdma.Region) (rdma.Region, error) {
	if l.refuse != nil {
		if err := l.refuse(); err != nil {
			return nil, err
		}
	}
	return l.rdma.RegisterAs(of)
}

// fail shuts libfabric down. A fabric that cannot serve all regions serves none. Its connections
// end, and sessions that had one come back over TCP.
func (l *libfabric) fail(reason error) {
	l.mu.Lock()
	first := !l.mu.failed
	l.mu.failed = true
	l.mu.Unlock()
	if !first {
		return
	}
	l.log.Error("transfers go over TCP from now on", "err", reason)
	_ = l.rdma.Close() // it has ended, even after an error
}

// refusal is a region that libfabric, or the kernel, did not take.
type refusal struct {
	region bb.RegionID
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (r *refusal) explain() error { return explain("register", "region "+r.region.String(), r.err) }

// explain adds a kind and a remedy to an error of libfabric's.
func explain(op, path string, err error) error {
	kind, remedy := bb.KindOf(err), "list the offers with bbd fabric list, or set fabric.ofi to off"
	short := errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)
	if short {
		kind = bb.NoSpace
	}
	if short || errors.Is(err, syscall.EPERM) {
		remedy = "let the daemon lock as much memory as its tiers hold, with LimitMEMLOCK= in its unit or ulimit -l; or set fabric.ofi to off"
	}
	return (&bb.Error{Kind: kind, Op: op, Path: path, Err: err}).WithRemedy(remedy)
}

// gone ends the registration of a region. See Fabric.Gone.
func (l *libfabric) gone(id bb.RegionID) {
	if l == nil {
		return
	}
	l.mu.Lock()
	region := l.mu.regions[id]
	delete(l.mu.regions, id)
	l.mu.Unlock()
	if region != nil {
		if err := region.Close(); err != nil {
			l.log.Error("the registration of a region with libfabric was not removed", "region", id, "err", err)
		}
	}
}

// Registered returns the regions that are registered with libfabric, in order.
func (f *Fabric) Registered() []bb.RegionID {
	if f == nil || f.ofi == nil {
		return nil
	}
	f.ofi.mu.Lock()
	defer f.ofi.mu.Unlock()
	return slices.Sorted(maps.Keys(f.ofi.mu.regions))
}
