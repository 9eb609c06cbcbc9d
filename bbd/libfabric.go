package bbd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/tcp"
)

// libfabric serves the memory that fabric serves over TCP over libfabric too. The nil
// libfabric serves nobody.
type libfabric struct {
	rdma     *ofi.Fabric
	listener rdma.Listener
	log      *slog.Logger

	mu struct {
		sync.Mutex
		regions map[bb.RegionID]rdma.Region
		failed  bool // a region could not be registered: nobody is told of it any more
	}
}

// newLibfabric opens what the configuration asks for; nil if that is nothing.
func newLibfabric(cfg *Config, authenticate func(way string) func(context.Context, net.Conn, bool) (*tcp.Admission, error)) (*libfabric, error) {
	use := cfg.OFI.Use
	if use == "" || use == OFIAuto && (!ofi.Supported || cfg.TLS != nil) {
		return nil, nil
	}
	l := &libfabric{log: cfg.Log}
	l.mu.regions = make(map[bb.RegionID]rdma.Region)
	want := cfg.OFI.Want
	offer, err := chosen(want)
	if err == nil && use == OFIAuto && !offer.Hardware() {
		return nil, nil
	}
	if err == nil {
		l.rdma, err = ofi.New(ofi.Options{
			Want: want, TLS: cfg.TLS.Server(), Authenticate: authenticate("ofi/" + offer.Provider), PeerTimeout: fabricTimeout, Log: cfg.Log,
		})
	}
	switch {
	case err == nil:
		return l, nil
	case use == OFIAuto:
		cfg.Log.Warn("no one-sided transfers over libfabric", "err", err)
		return nil, nil
	}
	return nil, (&bb.Error{Kind: bb.KindOf(err), Op: "listen", Path: "libfabric", Err: err}).
		WithRemedy("see what there is with bbd fabric list, or set fabric.ofi to off")
}

// chosen returns what ofi.New would take.
func chosen(want ofi.Want) (ofi.Offer, error) {
	offers, err := ofi.List()
	if err != nil {
		return ofi.Offer{}, err
	}
	i, _ := ofi.Choose(offers, want)
	if i < 0 {
		return ofi.Offer{}, errors.New("none of what libfabric offers will do")
	}
	return offers[i], nil
}

// listen starts to accept connections.
func (l *libfabric) listen(ctx context.Context, cfg *Config) (err error) {
	address := cfg.OFI.Listen
	if address == "" {
		host, _, _ := net.SplitHostPort(cfg.Fabric) // the fabric over TCP listens there
		address = net.JoinHostPort(host, "0")
	}
	if l.listener, err = l.rdma.Listen(ctx, address); err != nil {
		return bb.Wrap("listen", address, err)
	}
	o := l.rdma.Offer()
	l.log.Info("listening for one-sided transfers over libfabric", "address", l.listener.Addr(), "libfabric", ofi.Version(),
		"provider", o.Provider, "domain", o.Domain, "network", o.Fabric, "endpoints", o.Endpoint)
	return nil
}

func (l *libfabric) close() error {
	if l == nil {
		return nil
	}
	return l.rdma.Close()
}

// tell adds to Welcome where it is.
func (l *libfabric) tell(m *wire.Welcome, local net.Addr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed {
		return
	}
	o := l.rdma.Offer()
	m.OfiAddress = advertised(l.listener.Addr(), local.String())
	m.OfiProvider, m.OfiEndpoint, m.OfiNetwork = o.Provider, string(o.Endpoint), o.Fabric
}

// register makes a region that is served over TCP reachable under the same key. A fabric
// that cannot serve all regions serves none: its connections end, and those that had one
// come back over TCP.
func (l *libfabric) register(id bb.RegionID, of rdma.Region) {
	if l == nil {
		return
	}
	start := time.Now()
	region, err := l.rdma.RegisterAs(of)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if !l.mu.failed {
			l.log.Error("a region cannot be registered with libfabric: transfers go over TCP from now on", "region", id, "err", err)
			l.mu.failed = true
			go l.rdma.Close() // waits for regions, whose lock the caller may hold
		}
		return
	}
	l.mu.regions[id] = region
	l.log.Info("registered with libfabric", "region", id, "bytes", len(of.Bytes()), "took", time.Since(start))
}

// gone is told of regions that are about to be unmapped; see fabric.gone.
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
			l.log.Error("a region could not be taken from libfabric", "region", id, "err", err)
		}
	}
}
