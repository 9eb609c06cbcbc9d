//go:build ofi && cgo

package fi

// #cgo LDFLAGS: -lfabric
// #cgo noescape fb_post
// #cgo noescape fb_read
// #cgo noescape fb_read_event
// #cgo nocallback fb_post
// #cgo nocallback fb_read
// #cgo nocallback fb_read_event
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"forebay/rdma"
)

// This file and raw.go are all that touches C. C keeps beyond a call only C's own memory, memory mapped
// outside the Go heap, or memory of the Go heap that a runtime.Pinner holds. It is handed over as numbers,
// for which the caller of libfabric, not the garbage collector, answers.

// Address is the address of the first byte of b, as a number, or 0 for an empty b. A caller that hands
// it to C keeps b alive and in place until C has released it.
func Address(b []byte) uintptr {
	// Rule 4 of package unsafe applies: a pointer becomes a number for a call whose other side
	// makes a pointer of it again. The text above explains why it stays valid.
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Pin keeps memory where it is. Memory outside the Go heap stays there anyway.
func Pin(p *runtime.Pinner, b []byte) { p.Pin(unsafeData(b)) }

// unsafeData is the memory's first byte.
func unsafeData(b []byte) *byte {
	// By the rule of unsafe.SliceData it is the slice's own memory.
	return unsafe.SliceData(b)
}

// fabricError is an error of libfabric's.
type fabricError struct {
	call string
	code int // of fi_errno.h, positive
}

func (e *fabricError) Error() string {
	return fmt.Sprintf("%s: %s", e.call, C.GoString(C.fi_strerror(C.int(e.code))))
}

// Is makes errors.Is compare with the system's error numbers, of which libfabric's are a superset.
func (e *fabricError) Is(target error) bool {
	n, ok := target.(syscall.Errno)
	return ok && int(n) == e.code
}

func check[N ~int32](call string, ret N) error {
	if ret >= 0 {
		return nil
	}
	return &fabricError{call: call, code: int(-ret)}
}

// Retry reports whether an error means that libfabric has no room now.
func Retry(err error) bool { return errors.Is(err, syscall.EAGAIN) }

// Supported reports whether this program was built with libfabric.
const Supported = true

// Version of libfabric that the program runs with, "1.17".
func Version() string {
	v := uint32(C.fi_version())
	return fmt.Sprintf("%d.%d", v>>16, v&0xffff)
}

// List returns libfabric's offers on this machine, in its own order.
func List() ([]Offer, error) {
	infos, err := offered("")
	if err != nil {
		return nil, err
	}
	defer infos.free()
	return infos.offers, nil
}

// infoList is the answer of fi_getinfo.
type infoList struct {
	offers []Offer
	infos  []*C.struct_fi_info
	heads  []*C.struct_fi_info
}

func (l *infoList) free() {
	for _, h := range l.heads {
		C.fi_freeinfo(h)
	}
}

// offered queries both kinds of endpoint, first with delivery-complete writes. Offers that appear
// again without these are not listed twice.
func offered(provider string) (*infoList, error) {
	l := &infoList{}
	var name *C.char
	if provider != "" {
		name = C.CString(provider)
		// Rule of cgo: C memory is freed by its allocator.
		defer C.free(unsafe.Pointer(name))
	}
	seen := make(map[string]bool)
	for _, delivery := range []bool{true, false} {
		for _, kind := range []EndpointKind{Message, Datagram} {
			if err := l.ask(kind, delivery, name, seen); err != nil {
				l.free()
				return nil, err
			}
		}
	}
	return l, nil
}

func (l *infoList) ask(kind EndpointKind, delivery bool, provider *C.char, seen map[string]bool) error {
	endpoint, flags := C.int(C.FI_EP_MSG), C.uint64_t(0)
	if kind == Datagram {
		endpoint = C.FI_EP_RDM
	}
	if delivery {
		flags = C.FI_DELIVERY_COMPLETE
	}
	var head *C.struct_fi_info
	ret := C.fb_getinfo(endpoint, flags, provider, &head)
	if ret == -C.FI_ENODATA {
		return nil
	}
	if err := check("fi_getinfo", ret); err != nil {
		return err
	}
	l.heads = append(l.heads, head)
	for info := head; info != nil; info = info.next {
		o := offerOf(info, kind, delivery)
		id := strings.Join([]string{o.Provider, o.Fabric, o.Domain, string(o.Endpoint), o.Address}, "\x00")
		if !seen[id] {
			seen[id] = true
			l.offers, l.infos = append(l.offers, o), append(l.infos, info)
		}
	}
	return nil
}

func offerOf(info *C.struct_fi_info, kind EndpointKind, delivery bool) Offer {
	var text [64]C.char
	C.fb_address(info, &text[0], C.size_t(len(text)))
	var nic C.struct_fb_nic
	C.fb_nic(info, &nic)
	o := Offer{
		Provider: C.GoString(info.fabric_attr.prov_name), Fabric: C.GoString(info.fabric_attr.name),
		Domain: C.GoString(info.domain_attr.name), Endpoint: kind, Address: C.GoString(&text[0]),
		Device: strings.Join(strings.Fields(C.GoString(&nic.device[0])), " "),
		Up:     nic.up != 0, Speed: uint64(nic.speed),
		MaxOp: uint64(info.ep_attr.max_msg_size), Delivery: delivery,
	}
	for _, m := range []struct {
		bit  C.int
		name string
	}{
		{C.FI_MR_LOCAL, "local keys"},
		{C.FI_MR_VIRT_ADDR, "virtual addresses"},
		{C.FI_MR_ALLOCATED, "allocated memory"},
		{C.FI_MR_PROV_KEY, "keys of the provider's"},
	} {
		if info.domain_attr.mr_mode&m.bit != 0 {
			o.Registration = append(o.Registration, m.name)
		}
	}
	return o
}

// Device is an opened domain with its queues. Its methods may be called concurrently, but Read,
// NextEvent and Sleep, which belong to one thread.
type Device struct {
	Traits
	d       *C.struct_fb_device
	virtual bool // FI_MR_VIRT_ADDR: remote addresses are virtual, not offsets
	keys    bool // FI_MR_PROV_KEY: the provider chooses keys
	keyMask uint64
	verbs   bool
}

// Traits are the features and limits of a Device. They never change.
type Traits struct {
	Offer    Offer
	Message  bool   // message endpoints, not datagram endpoints
	Local    bool   // FI_MR_LOCAL: local memory must be registered
	Delivers bool   // writes complete when they are visible at the target
	Inject   int    // bytes of a write that libfabric copies when it is posted
	Protocol uint32 // of the endpoints; both sides must have the same
	Pieces   int    // one-sided operations that an endpoint takes at once
	MaxPiece int    // bytes
	Room     int    // completions that the queue holds
}

// Rules make a provider stricter than it is, for tests of requirements that only hardware has.
type Rules struct {
	HardwareKeys bool // virtual addresses, and keys chosen by the provider
	LocalKeys    bool // FI_MR_LOCAL
	NoDelivery   bool // without FI_DELIVERY_COMPLETE
}

// Open opens the fabric that Choose selects from the machine's. It fails with
// errors.ErrUnsupported where none will do.
func Open(want Want, rules Rules) (*Device, error) {
	l, err := offered(want.Provider)
	if err != nil {
		return nil, err
	}
	defer l.free()
	i, verdicts := Choose(l.offers, want)
	if i < 0 {
		return nil, fmt.Errorf("none of the %d fabrics that libfabric offers will do%s: %w",
			len(l.offers), reasons(verdicts), errors.ErrUnsupported)
	}
	// Rule of cgo: C memory, of one struct_fb_device and all zero.
	d := (*C.struct_fb_device)(C.calloc(1, C.sizeof_struct_fb_device))
	d.info = C.fi_dupinfo(l.infos[i])
	if rules.HardwareKeys {
		d.info.domain_attr.mr_mode |= C.FI_MR_VIRT_ADDR | C.FI_MR_PROV_KEY | C.FI_MR_ALLOCATED
	}
	if rules.LocalKeys {
		d.info.domain_attr.mr_mode |= C.FI_MR_LOCAL
	}
	if l.offers[i].Delivery && !rules.NoDelivery {
		d.write_flags = C.FI_DELIVERY_COMPLETE
	}
	var what *C.char
	if err := check("", C.fb_open(d, &what)); err != nil {
		err.(*fabricError).call = C.GoString(what)
		(&Device{d: d}).Close()
		return nil, fmt.Errorf("open %s on %s: %w", l.offers[i].Provider, l.offers[i].Domain, err)
	}
	return describeDevice(d, l.offers[i]), nil
}

func reasons(verdicts []Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&b, "; %s on %s %s: %s", v.Offer.Provider, v.Offer.Domain, v.Offer.Address, v.Why)
	}
	return b.String()
}

func describeDevice(d *C.struct_fb_device, o Offer) *Device {
	info := d.info
	mode := info.domain_attr.mr_mode
	v := &Device{
		Traits: Traits{
			Offer: o, Message: o.Endpoint == Message, Local: mode&C.FI_MR_LOCAL != 0,
			Delivers: d.write_flags != 0,
			Inject:   int(min(uint64(info.tx_attr.inject_size), maxInject)),
			Protocol: uint32(info.ep_attr.protocol),
			Pieces:   max(1, int(min(uint64(info.tx_attr.size), 4096)/2)),
			MaxPiece: int(min(uint64(info.ep_attr.max_msg_size), 1<<30)),
			Room:     int(d.cq_size),
		},
		d: d, virtual: mode&C.FI_MR_VIRT_ADDR != 0, keys: mode&C.FI_MR_PROV_KEY != 0, keyMask: ^uint64(0),
		verbs: strings.HasPrefix(o.Provider, "verbs"),
	}
	if size := uint(info.domain_attr.mr_key_size); size > 0 && size < 8 {
		v.keyMask = 1<<(8*size) - 1
	}
	return v
}

// maxInject bounds the bytes that are copied when they are posted, at any bound of a provider. That
// bound is 128 bytes in software (BenchmarkInject: as fast as staging, and nothing is held), some
// hundred on hardware, but whole messages in a few. A copy of 4 KiB costs half a microsecond, about
// as much as reading a completion does.
const maxInject = 4 << 10

// Close ends the use of the domain, in which nothing is open any more.
func (d *Device) Close() {
	C.fb_close(d.d)
	// Rule of cgo: C memory is freed by its allocator.
	C.free(unsafe.Pointer(d.d))
	d.d = nil
}

// Registration is memory that the device may touch. The zero value stands for memory that needs none.
type Registration struct {
	Base, Key uint64 // the numbers by which a peer reaches its first byte
	mr        *C.struct_fid_mr
	desc      C.uintptr_t
}

// Register makes memory reachable for this side's operations, and for peers as access allows.
func (d *Device) Register(mem []byte, access rdma.Access) (*Registration, error) {
	flags := C.uint64_t(C.FI_READ | C.FI_WRITE)
	if access&rdma.AccessRemoteRead != 0 {
		flags |= C.FI_REMOTE_READ
	}
	if access&rdma.AccessRemoteWrite != 0 {
		flags |= C.FI_REMOTE_WRITE
	}
	r := &Registration{}
	for {
		var key [8]byte
		if !d.keys {
			_, _ = rand.Read(key[:]) // never fails
		}
		requested := binary.LittleEndian.Uint64(key[:]) & d.keyMask
		err := check("fi_mr_reg", C.fb_register(d.d, C.uintptr_t(Address(mem)), C.size_t(len(mem)), flags, C.uint64_t(requested), &r.mr))
		if errors.Is(err, unix.ENOKEY) || errors.Is(err, syscall.Errno(C.FI_ENOKEY)) {
			continue // another registration has that key
		}
		if err != nil {
			return nil, fmt.Errorf("register %d bytes%s: %w", len(mem), d.memlock(err), err)
		}
		break
	}
	r.Key = uint64(C.fi_mr_key(r.mr))
	// By rule 4 of package unsafe this is an opaque handle of libfabric's, kept as a number.
	r.desc = C.uintptr_t(uintptr(unsafe.Pointer(C.fi_mr_desc(r.mr))))
	if d.virtual {
		r.Base = uint64(Address(mem))
	}
	return r, nil
}

// memlock explains a refused registration where the kernel's limit is the likely reason.
func (d *Device) memlock(err error) string {
	var limit unix.Rlimit
	short := errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EPERM)
	if !short || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(" (this process may lock %d bytes; raise it with ulimit -l, or LimitMEMLOCK= of its unit)", limit.Cur)
}

// Close takes the memory away from the device. It is idempotent, and does nothing for nil.
func (r *Registration) Close() error {
	if r == nil || r.mr == nil {
		return nil
	}
	err := check("fi_close", C.fi_close(&r.mr.fid))
	r.mr = nil
	return err
}

// Listen opens the passive endpoint of message endpoints. It must be called once at most.
func (d *Device) Listen() error { return check("fi_listen", C.fb_listen(d.d)) }

// MaxAddress is the largest address of an endpoint in bytes.
const MaxAddress = 512

// Listening is the passive endpoint's address, in the provider's own form.
func (d *Device) Listening() ([]byte, error) { return name(&d.d.pep.fid) }

func name(f *C.struct_fid) ([]byte, error) {
	b := make([]byte, MaxAddress)
	n := C.size_t(len(b))
	// Rule of cgo: C writes to b during the call alone.
	if err := check("fi_getname", C.fb_name(f, unsafe.Pointer(&b[0]), &n)); err != nil {
		return nil, err
	}
	return b[:min(int(n), len(b))], nil
}

// Wake ends a Sleep, or the next one.
func (d *Device) Wake() { C.fb_wake(d.d.wake_fd) }

// Sleep waits for something to do, at most so long. A negative time means no limit.
func (d *Device) Sleep(limit time.Duration) error {
	ms := C.int(-1)
	if limit >= 0 {
		ms = C.int(limit.Milliseconds())
	}
	return check("wait", C.fb_sleep(d.d, ms))
}

// Completion is the end of one operation.
type Completion C.struct_fb_done

// Conn is the number of the connection that NewContexts was given.
func (c *Completion) Conn() uint32 { return uint32(c.tag >> 32) }

// Context is the operation's index among the connection's.
func (c *Completion) Context() int { return int(uint32(c.tag)) }

// Failed reports whether the operation has failed: Device.Failure returns the reason.
func (c *Completion) Failed() bool { return c.err != 0 }

// Read reads the present completions, into at least one element.
func (d *Device) Read(done []Completion) (int, error) {
	n := C.fb_read(d.d, (*C.struct_fb_done)(&done[0]), C.int(len(done)))
	return int(n), check("fi_cq_read", n)
}

// Failure is the meaning of a completion's error for the caller that posted the operation.
func (d *Device) Failure(c *Completion) error {
	cause := &fabricError{call: d.Offer.Provider, code: int(c.err)}
	const remoteInvalid, remoteAccess = 9, 10 // ibv_wc_status, verbs(3)
	switch {
	case c.err == C.FI_EACCES, c.err == C.FI_EPERM, c.err == C.FI_ENOKEY, c.err == C.FI_EKEYREJECTED,
		d.verbs && (c.prov == remoteInvalid || c.prov == remoteAccess):
		return fmt.Errorf("%w: %w", rdma.ErrAccess, cause)
	}
	return fmt.Errorf("%w: %w (%d)", rdma.ErrPeerGone, cause, c.prov)
}

// EventKind is the kind of a connection's event.
type EventKind int

// The kinds of events. EventRequest is a peer's request to connect to the passive endpoint.
const (
	EventRequest   EventKind = C.FB_REQUEST
	EventConnected EventKind = C.FB_CONNECTED
	EventShutdown  EventKind = C.FB_SHUTDOWN
	EventFailed    EventKind = C.FB_FAILED
)

// Event is one event of connection management. The receiver of a request passes it to NewAccepting or
// to Reject.
type Event struct {
	Kind EventKind
	ID   uintptr // of the endpoint: Endpoint.ID
	Data []byte  // that the peer has sent
	Err  error   // of EventFailed
	info *C.struct_fi_info
}

// NextEvent returns an event, if there is one.
func (d *Device) NextEvent() (Event, bool, error) {
	var e C.struct_fb_event
	n := C.fb_read_event(d.d, &e)
	if n <= 0 {
		return Event{}, false, check("fi_eq_read", n)
	}
	out := Event{Kind: EventKind(e.kind), ID: uintptr(e.fid), info: e.info}
	for _, b := range e.data[:e.len] {
		out.Data = append(out.Data, byte(b))
	}
	if e.kind == C.FB_FAILED {
		out.Err = &fabricError{call: "connect", code: int(e.err)}
	}
	return out, true, nil
}

// Reject refuses a request.
func (d *Device) Reject(request Event) { C.fb_reject(d.d, request.info) }

// Contexts are the operations that one connection may have under way, by index.
type Contexts struct {
	base C.uintptr_t
	mem  *C.struct_fb_context
}

// NewContexts returns n contexts of the connection with a number.
func NewContexts(conn uint32, n int) Contexts {
	p := C.fb_contexts(C.uint32_t(conn), C.uint32_t(n))
	// Rule 4 of package unsafe: C's memory, kept as a number too.
	return Contexts{base: C.uintptr_t(uintptr(unsafe.Pointer(p))), mem: p}
}

// Release frees the memory, after the endpoint is closed and its completions are read.
func (c Contexts) Release() {
	// Rule of cgo: C memory is freed by its allocator.
	C.free(unsafe.Pointer(c.mem))
}

func (c Contexts) at(i int) C.uintptr_t { return c.base + C.uintptr_t(i)*C.sizeof_struct_fb_context }

// Endpoint is one end of a connection. Its methods are serialised by its owner.
type Endpoint struct {
	dev *Device
	e   C.struct_fb_endpoint
}

// NewEndpoint opens a datagram endpoint, or a message endpoint that is going to connect to an
// address. After an error, the endpoint has to be closed all the same.
func (d *Device) NewEndpoint(to []byte) (*Endpoint, error) {
	e := &Endpoint{dev: d}
	if !d.Message {
		return e, check("fi_endpoint", C.fb_endpoint_open(d.d, d.d.info, &e.e))
	}
	// Rule of cgo: C copies the address during the call.
	return e, check("fi_endpoint", C.fb_endpoint_to(d.d, unsafe.Pointer(&to[0]), C.size_t(len(to)), &e.e))
}

// NewAccepting opens the message endpoint for a request. After an error, the endpoint has to be closed
// all the same.
func (d *Device) NewAccepting(request Event) (*Endpoint, error) {
	e := &Endpoint{dev: d}
	err := check("fi_endpoint", C.fb_endpoint_open(d.d, request.info, &e.e))
	C.fi_freeinfo(request.info)
	return e, err
}

// ID names the endpoint in events.
func (e *Endpoint) ID() uintptr {
	if e.e.ep == nil {
		return 0
	}
	// By rule 4 of package unsafe this is a handle of libfabric's, kept as a number to compare.
	return uintptr(unsafe.Pointer(&e.e.ep.fid))
}

// Name is the endpoint's address, in the provider's own form.
func (e *Endpoint) Name() ([]byte, error) { return name(&e.e.ep.fid) }

// Connect requests a connection from a passive endpoint, which gets data with the request.
func (e *Endpoint) Connect(to, data []byte) error {
	to, data = bytes.Clone(to), bytes.Clone(data) // alone in their memory, as cgo requires
	// Rule of cgo: C copies both during the call.
	return check("fi_connect", C.fb_connect(&e.e, unsafe.Pointer(&to[0]), unsafe.Pointer(&data[0]), C.size_t(len(data))))
}

// Accept answers the request.
func (e *Endpoint) Accept() error { return check("fi_accept", C.fb_accept(&e.e)) }

// SetPeer sets the address of a datagram endpoint's peer.
func (e *Endpoint) SetPeer(address []byte) error {
	// Rule of cgo: C copies the address during the call.
	return check("fi_av_insert", C.fb_insert(&e.e, unsafe.Pointer(&address[0])))
}

// Close ends operations in flight. When it returns, the endpoint touches no memory.
func (e *Endpoint) Close() error { return check("fi_close", C.fb_endpoint_close(&e.e)) }

// Piece is a one-sided operation, or a part of one.
type Piece C.struct_fb_piece

// Place is memory of the peer's.
type Place struct{ Addr, Key uint64 }

// NewPiece describes a piece between local memory, which reg is the registration of, and the peer's. i is
// the index of its context.
func (c Contexts) NewPiece(i int, kind rdma.OpKind, local []byte, reg *Registration, remote Place) Piece {
	p := Piece{
		context: c.at(i), local: C.uintptr_t(Address(local)), desc: reg.desc,
		len: C.uint64_t(len(local)), addr: C.uint64_t(remote.Addr), key: C.uint64_t(remote.Key),
	}
	if kind == rdma.OpWrite {
		p.write = 1
	}
	return p
}

// Inject marks a write that libfabric copies when it is posted.
func (p *Piece) Inject() { p.inject = 1 }

// Post hands over pieces in order and returns how many were taken, and why not all.
func (e *Endpoint) Post(pieces []Piece) (int, error) {
	done := C.fb_post(e.dev.d, &e.e, (*C.struct_fb_piece)(&pieces[0]), C.int(len(pieces)))
	return int(done.n), check("fi_writemsg", done.err)
}

// Injects reports whether a write of n bytes can be copied when it is posted. A request's endpoint may
// allow less than the device.
func (e *Endpoint) Injects(n int) bool { return n <= min(e.dev.Inject, int(e.e.inject)) }
