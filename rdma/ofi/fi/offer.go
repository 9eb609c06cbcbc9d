package fi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"forebay/rdma"
)

// EndpointKind is a kind of libfabric endpoint.
type EndpointKind string

const (
	// Message endpoints are connected (FI_EP_MSG), as of verbs, tcp.
	Message EndpointKind = "message"
	// Datagram endpoints are reliable and unconnected (FI_EP_RDM): efa, opx, psm2, sockets.
	Datagram EndpointKind = "datagram"
)

// Offer is one way that libfabric has on this machine: one entry of fi_getinfo(3).
type Offer struct {
	// Provider is libfabric's name, with its layers: "verbs", "tcp", "tcp;ofi_rxm".
	Provider string
	// Fabric is the network: a subnet, or a name of the provider's.
	Fabric string
	// Domain is the device: "mlx5_0", "rxe0", "eth0".
	Domain   string
	Endpoint EndpointKind
	// Address is this machine's on that network, without a port, or "" where it is no IP address.
	Address string
	// Device describes the hardware where libfabric reports any ("" for providers in software).
	Device string
	// Up is false where libfabric reports that the hardware's link is down.
	Up bool
	// Speed of the hardware's link in bits per second, or 0 where not known.
	Speed uint64
	// MaxOp is the largest single operation in bytes.
	MaxOp uint64
	// Delivery: writes can be posted to complete when they are visible at the target
	// (FI_DELIVERY_COMPLETE). If they cannot, a read behind them makes sure.
	Delivery bool
	// Registration names the registration modes that it requires.
	Registration []string
}

// Hardware reports whether the network card moves the bytes.
func (o *Offer) Hardware() bool {
	return o.Device != "" || slices.Contains(hardware, o.base())
}

// Loopback reports whether it reaches this machine alone.
func (o *Offer) Loopback() bool {
	ip, err := netip.ParseAddr(o.Address)
	return err == nil && ip.IsLoopback()
}

// layers of the provider, the lowest first: "tcp;ofi_rxm" is ofi_rxm over tcp.
func (o *Offer) layers() []string { return strings.Split(o.Provider, ";") }

func (o *Offer) base() string { return o.layers()[0] }

var (
	// hardware are the providers whose bytes a network card moves, the best served here first.
	hardware = []string{"verbs", "cxi", "efa", "opx", "psm3", "psm2", "psm", "gni", "bgq", "usnic"}
	// software are providers that need none, the fastest first (measured, docs/fabric.md).
	software = []string{"tcp"}
	// unfit are providers that are not taken unless they are named, and why.
	unfit = map[string]string{
		"shm":       "the same node is served without libfabric",
		"udp":       "datagrams over UDP are for tests of libfabric",
		"sockets":   "superseded by tcp in libfabric itself",
		"ofi_rxd":   "reliability over UDP in software is slower than TCP",
		"ofi_mrail": "experimental in libfabric",
	}
)

// broken are layers that are not taken even when they are named, and why.
var broken = map[string]string{
	// With 1.17.0 over tcp and over net, fi_trywait(3) on the completion queue of an endpoint that
	// was closed, and the progress of its connections, crash the process. While one is open, its
	// wait object does not signal arrivals.
	"ofi_rxm": "libfabric's ofi_rxm touches the memory of closed endpoints",
	// With 1.17.0, when both ends of a connection close it with operations in flight, the provider
	// reports the end of it to a datagram endpoint that is gone. Forty repetitions of the
	// conformance suite's CloseUnblocks and CloseCompletesAll ended with a signal in fi_cq_read,
	// five times of five.
	"net": "libfabric's net touches the memory of closed endpoints",
}

// Want restricts the choice. Empty fields do not.
type Want struct {
	// Provider as libfabric names it, "verbs" or "tcp".
	Provider string
	// Domain is a device, "mlx5_0".
	Domain string
	// Address is one of this machine's IP addresses, or a prefix that holds one: "10.1.0.0/16".
	Address string
	// Endpoint is the kind of endpoint.
	Endpoint EndpointKind
	// Network is an Offer's Fabric. Endpoints on the same one can reach each other.
	Network string
}

// Validate reports impossible values.
func (w Want) Validate() error {
	if w.Endpoint != "" && w.Endpoint != Message && w.Endpoint != Datagram {
		return fmt.Errorf("ofi endpoint %q is neither %q nor %q: %w", w.Endpoint, Message, Datagram, rdma.ErrInvalid)
	}
	if w.Address == "" {
		return nil
	}
	if _, err := w.prefix(); err != nil {
		return fmt.Errorf("ofi address %q is neither an IP address nor a prefix: %w", w.Address, rdma.ErrInvalid)
	}
	return nil
}

func (w Want) prefix() (netip.Prefix, error) {
	if strings.Contains(w.Address, "/") {
		return netip.ParsePrefix(w.Address)
	}
	ip, err := netip.ParseAddr(w.Address)
	if err != nil {
		return netip.Prefix{}, err
	}
	return ip.Prefix(ip.BitLen())
}

// Verdict is the judgement of one offer.
type Verdict struct {
	Offer Offer
	// Chosen is true for one offer at most.
	Chosen bool
	// Why it was chosen, or was not.
	Why string
}

// Choose decides which of the offers is used. It returns its index, -1 if none fits, and a verdict
// for each offer, in their order. Among those that are selected and fit it prefers, in this order:
// networks that reach other machines, links that are up, hardware, message endpoints (measured to
// be faster than datagram endpoints built on them), the better provider, writes that complete when
// they are visible, the faster link, and the earlier offer: libfabric's own order.
func Choose(offers []Offer, want Want) (int, []Verdict) {
	verdicts := make([]Verdict, len(offers))
	best := -1
	for i := range offers {
		verdicts[i] = Verdict{Offer: offers[i], Why: refuse(&offers[i], want)}
		if verdicts[i].Why != "" {
			continue
		}
		if best < 0 || slices.Compare(merits(&offers[i]), merits(&offers[best])) > 0 {
			best = i
		}
	}
	if best < 0 {
		return -1, verdicts
	}
	for i := range verdicts {
		switch {
		case i == best:
			verdicts[i].Chosen, verdicts[i].Why = true, describe(&offers[i])
		case verdicts[i].Why == "":
			verdicts[i].Why = worse(&offers[i], &offers[best])
		}
	}
	return best, verdicts
}

// refuse returns the reason why an offer cannot be used at all, or "".
func refuse(o *Offer, want Want) string {
	for _, layer := range o.layers() {
		if why := broken[layer]; why != "" {
			return why
		}
	}
	switch {
	case want.Provider != "" && o.Provider != want.Provider:
		return "provider " + want.Provider + " is asked for"
	case want.Domain != "" && o.Domain != want.Domain:
		return "domain " + want.Domain + " is asked for"
	case want.Network != "" && o.Fabric != want.Network:
		return "network " + want.Network + " is asked for"
	case want.Endpoint != "" && o.Endpoint != want.Endpoint:
		return string(want.Endpoint) + " endpoints are asked for"
	}
	if want.Address != "" {
		prefix, err := want.prefix()
		ip, bad := netip.ParseAddr(o.Address)
		if err != nil || bad != nil || !prefix.Contains(ip.WithZone("")) {
			return "address " + want.Address + " is asked for"
		}
	}
	if want.Provider != "" {
		return ""
	}
	if ip, err := netip.ParseAddr(o.Address); err == nil && ip.IsLinkLocalUnicast() && want.Address == "" {
		return "an address of one link is not reached from everywhere"
	}
	for _, layer := range o.layers() {
		if why := unfit[layer]; why != "" {
			return why
		}
	}
	return ""
}

// merit is one reason to prefer an offer. They are compared in order.
type merit struct {
	name  string
	value func(o *Offer) uint64
}

var order = []merit{
	{"it reaches this machine alone", func(o *Offer) uint64 { return truth(!o.Loopback()) }},
	{"its link is down", func(o *Offer) uint64 { return truth(o.Up) }},
	{"it is in software", func(o *Offer) uint64 { return truth(o.Hardware()) }},
	{"its endpoints are datagram endpoints", func(o *Offer) uint64 { return truth(o.Endpoint == Message) }},
	{"its provider stands further down in the order", rank},
	{"it has more layers", func(o *Offer) uint64 { return uint64(100 - len(o.layers())) }},
	{"its writes do not complete by delivery", func(o *Offer) uint64 { return truth(o.Delivery) }},
	{"its link is slower", func(o *Offer) uint64 { return o.Speed }},
}

func merits(o *Offer) []uint64 {
	m := make([]uint64, len(order))
	for i := range order {
		m[i] = order[i].value(o)
	}
	return m
}

// rank is higher the further in front a provider stands.
func rank(o *Offer) uint64 {
	for _, list := range [][]string{hardware, software} {
		if i := slices.Index(list, o.base()); i >= 0 {
			return uint64(len(list) - i)
		}
	}
	return 0
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// worse names the first reason that made another offer win.
func worse(o, winner *Offer) string {
	mine, theirs := merits(o), merits(winner)
	for i := range order {
		if mine[i] < theirs[i] {
			return order[i].name
		}
	}
	return "an equal one stands before it"
}

func describe(o *Offer) string {
	kind := "software"
	if o.Hardware() {
		kind = "hardware"
	}
	visible := "writes complete when they are visible"
	if !o.Delivery {
		visible = "a read behind each write makes sure that it is visible"
	}
	return fmt.Sprintf("%s, %s endpoints, %s", kind, o.Endpoint, visible)
}
