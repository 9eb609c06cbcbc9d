//go:build ofi && cgo

package ofi

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

// This file is all that touches C. What C keeps beyond a call is C's own memory, memory mapped
// outside the Go heap, or memory of the Go heap that a runtime.Pinner holds; it is handed over as
// numbers, for which the caller of libfabric, not the garbage collector, answers.

// address is where b begins, as a number; 0 for nothing. Whoever hands it to C keeps b alive and
// in place until C has let go of it.
func address(b []byte) C.uintptr_t {
	// Rule 4 of package unsafe: a pointer becomes a number for a call whose other side
	// makes a pointer of it again; see above for what keeps it valid.
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// pin keeps memory where it is. Memory outside the Go heap stays there anyway.
func pin(p *runtime.Pinner, b []byte) { p.Pin(unsafeData(b)) }

// unsafeData is the memory's first byte.
func unsafeData(b []byte) *byte {
	// Rule of unsafe.SliceData: it is the slice's own memory.
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

// Is lets errors.Is compare with the system's error numbers, of which libfabric's are a superset.
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

func retry(err error) bool { return errors.Is(err, syscall.EAGAIN) }

// Supported reports whether this program was built with libfabric.
const Supported = true

// Version of libfabric that the program runs with, "1.17".
func Version() string {
	v := uint32(C.fi_version())
	return fmt.Sprintf("%d.%d", v>>16, v&0xffff)
}

// List returns what libfabric offers on this machine, in its own order.
func List() ([]Offer, error) {
	infos, err := offered("")
	if err != nil {
		return nil, err
	}
	defer infos.free()
	return infos.offers, nil
}

// infoList is what fi_getinfo answered.
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

// offered asks for both kinds of endpoint, first with delivery-complete writes; what then appears
// again without is not taken twice.
func offered(provider string) (*infoList, error) {
	l := &infoList{}
	var name *C.char
	if provider != "" {
		name = C.CString(provider)
		// Rule of cgo: C memory is freed by who allocated it.
		defer C.free(unsafe.Pointer(name))
	}
	seen := make(map[string]bool)
	for _, delivery := range []bool{true, false} {
		for _, kind := range []Endpoint{Message, Datagram} {
			if err := l.ask(kind, delivery, name, seen); err != nil {
				l.free()
				return nil, err
			}
		}
	}
	return l, nil
}

func (l *infoList) ask(kind Endpoint, delivery bool, provider *C.char, seen map[string]bool) error {
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

func offerOf(info *C.struct_fi_info, kind Endpoint, delivery bool) Offer {
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

// device is an opened domain with its queues. Its methods may be called concurrently, but read,
// nextEvent and sleep, which are the loop's.
type device struct {
	d     *C.struct_fb_device
	offer Offer

	message     bool // message endpoints, not datagram endpoints
	virtual     bool // FI_MR_VIRT_ADDR: remote addresses are virtual, not offsets
	local       bool // FI_MR_LOCAL: local memory must be registered
	providerKey bool // FI_MR_PROV_KEY: the provider chooses keys
	keyMask     uint64
	verbs       bool
	inject      int    // bytes of a write that libfabric copies when it is posted
	protocol    uint32 // of the endpoints: both sides must have the same
	pieces      int    // one-sided operations that an endpoint takes at once
	maxPiece    int
}

// openDevice chooses and opens.
func openDevice(want Want, rules rules) (*device, error) {
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
	if rules.hardwareKeys {
		d.info.domain_attr.mr_mode |= C.FI_MR_VIRT_ADDR | C.FI_MR_PROV_KEY | C.FI_MR_ALLOCATED
	}
	if rules.localKeys {
		d.info.domain_attr.mr_mode |= C.FI_MR_LOCAL
	}
	if l.offers[i].Delivery && !rules.noDelivery {
		d.write_flags = C.FI_DELIVERY_COMPLETE
	}
	var what *C.char
	if err := check("", C.fb_open(d, &what)); err != nil {
		err.(*fabricError).call = C.GoString(what)
		(&device{d: d}).close()
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

func describeDevice(d *C.struct_fb_device, o Offer) *device {
	info := d.info
	mode := info.domain_attr.mr_mode
	v := &device{
		d: d, offer: o, message: o.Endpoint == Message,
		virtual: mode&C.FI_MR_VIRT_ADDR != 0, local: mode&C.FI_MR_LOCAL != 0,
		providerKey: mode&C.FI_MR_PROV_KEY != 0, keyMask: ^uint64(0),
		verbs: strings.HasPrefix(o.Provider, "verbs"), protocol: uint32(info.ep_attr.protocol),
		pieces:   max(1, int(min(uint64(info.tx_attr.size), 4096)/2)),
		maxPiece: int(min(uint64(info.ep_attr.max_msg_size), 1<<30)),
		inject:   int(min(uint64(info.tx_attr.inject_size), maxInject)),
	}
	if size := uint(info.domain_attr.mr_key_size); size > 0 && size < 8 {
		v.keyMask = 1<<(8*size) - 1
	}
	return v
}

// maxInject bounds what is copied when it is posted, whatever a provider allows: 128 bytes in
// software (BenchmarkInject: as fast as staging, and nothing is held), some hundred on hardware,
// but whole messages in a few. A copy of 4 KiB takes half a microsecond, about as much as taking a
// completion does.
const maxInject = 4 << 10

// delivers reports whether writes complete when they are visible at the target.
func (d *device) delivers() bool { return d.d.write_flags != 0 }

func (d *device) close() {
	C.fb_close(d.d)
	// Rule of cgo: C memory is freed by who allocated it.
	C.free(unsafe.Pointer(d.d))
	d.d = nil
}

// registration is memory that the device may touch.
type registration struct {
	mr        *C.struct_fid_mr
	base, key uint64 // what a peer says to reach its first byte
	desc      C.uintptr_t
}

// register makes memory reachable for this side's operations, and for peers as access allows.
func (d *device) register(mem []byte, access rdma.Access) (*registration, error) {
	flags := C.uint64_t(C.FI_READ | C.FI_WRITE)
	if access&rdma.AccessRemoteRead != 0 {
		flags |= C.FI_REMOTE_READ
	}
	if access&rdma.AccessRemoteWrite != 0 {
		flags |= C.FI_REMOTE_WRITE
	}
	r := &registration{}
	for {
		var key [8]byte
		if !d.providerKey {
			_, _ = rand.Read(key[:]) // never fails
		}
		requested := binary.LittleEndian.Uint64(key[:]) & d.keyMask
		err := check("fi_mr_reg", C.fb_register(d.d, address(mem), C.size_t(len(mem)), flags, C.uint64_t(requested), &r.mr))
		if errors.Is(err, unix.ENOKEY) || errors.Is(err, syscall.Errno(C.FI_ENOKEY)) {
			continue // somebody has that key
		}
		if err != nil {
			return nil, fmt.Errorf("register %d bytes%s: %w", len(mem), d.memlock(err), err)
		}
		break
	}
	r.key = uint64(C.fi_mr_key(r.mr))
	// Rule 4 of package unsafe: an opaque handle of libfabric's, kept as a number.
	r.desc = C.uintptr_t(uintptr(unsafe.Pointer(C.fi_mr_desc(r.mr))))
	if d.virtual {
		r.base = uint64(address(mem))
	}
	return r, nil
}

// memlock explains a refused registration where the kernel's limit is the likely reason.
func (d *device) memlock(err error) string {
	var limit unix.Rlimit
	short := errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EPERM)
	if !short || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(" (this process may lock %d bytes; raise it with ulimit -l, or LimitMEMLOCK= of its unit)", limit.Cur)
}

// close takes the memory away from the device.
func (r *registration) close() error {
	if r == nil || r.mr == nil {
		return nil
	}
	err := check("fi_close", C.fi_close(&r.mr.fid))
	r.mr = nil
	return err
}

// listen opens the passive endpoint. It must be called once at most.
func (d *device) listen() error { return check("fi_listen", C.fb_listen(d.d)) }

const maxAddress = 512

// listening is the passive endpoint's address.
func (d *device) listening() ([]byte, error) { return name(&d.d.pep.fid) }

func name(f *C.struct_fid) ([]byte, error) {
	b := make([]byte, maxAddress)
	n := C.size_t(len(b))
	// Rule of cgo: C writes to b during the call alone.
	if err := check("fi_getname", C.fb_name(f, unsafe.Pointer(&b[0]), &n)); err != nil {
		return nil, err
	}
	return b[:min(int(n), len(b))], nil
}

// wake ends the loop's sleep.
func (d *device) wake() { C.fb_wake(d.d.wake_fd) }

// sleep waits for something to do, at most so long; a negative time means no limit.
func (d *device) sleep(limit time.Duration) error {
	ms := C.int(-1)
	if limit >= 0 {
		ms = C.int(limit.Milliseconds())
	}
	return check("wait", C.fb_sleep(d.d, ms))
}

type completion = C.struct_fb_done

// read takes what completions there are.
func (d *device) read(done []completion) (int, error) {
	n := C.fb_read(d.d, &done[0], C.int(len(done)))
	return int(n), check("fi_cq_read", n)
}

type eventKind int

const (
	eventRequest   eventKind = C.FB_REQUEST
	eventConnected eventKind = C.FB_CONNECTED
	eventShutdown  eventKind = C.FB_SHUTDOWN
	eventFailed    eventKind = C.FB_FAILED
)

// event is one event of connection management. A request's info is the receiver's, who must
// accept or reject it.
type event struct {
	kind eventKind
	fid  uintptr
	info *C.struct_fi_info
	data []byte
	err  error
}

func (d *device) nextEvent() (event, bool, error) {
	var e C.struct_fb_event
	n := C.fb_read_event(d.d, &e)
	if n <= 0 {
		return event{}, false, check("fi_eq_read", n)
	}
	out := event{kind: eventKind(e.kind), fid: uintptr(e.fid), info: e.info}
	for _, b := range e.data[:e.len] {
		out.data = append(out.data, byte(b))
	}
	if e.kind == C.FB_FAILED {
		out.err = &fabricError{call: "connect", code: int(e.err)}
	}
	return out, true, nil
}

// reject refuses a request.
func (d *device) reject(info *C.struct_fi_info) { C.fb_reject(d.d, info) }

// failure says what a completion with an error means to who posted the operation.
func (d *device) failure(c *completion) error {
	cause := &fabricError{call: d.offer.Provider, code: int(c.err)}
	const remoteInvalid, remoteAccess = 9, 10 // ibv_wc_status, verbs(3)
	switch {
	case c.err == C.FI_EACCES, c.err == C.FI_EPERM, c.err == C.FI_ENOKEY, c.err == C.FI_EKEYREJECTED,
		d.verbs && (c.prov == remoteInvalid || c.prov == remoteAccess):
		return fmt.Errorf("%w: %w", rdma.ErrAccess, cause)
	}
	return fmt.Errorf("%w: %w (%d)", rdma.ErrPeerGone, cause, c.prov)
}

// endpoint is one end of a connection. Its methods are serialised by its owner.
type endpoint struct {
	dev *device
	e   C.struct_fb_endpoint
}

// contexts are the operations that one connection may have under way, by index.
type contexts struct {
	base C.uintptr_t
	mem  *C.struct_fb_context
}

func newContexts(conn uint32, n int) contexts {
	p := C.fb_contexts(C.uint32_t(conn), C.uint32_t(n))
	// Rule 4 of package unsafe: C's memory, kept as a number too.
	return contexts{base: C.uintptr_t(uintptr(unsafe.Pointer(p))), mem: p}
}

// release gives the memory back, after the endpoint is closed and its completions are taken.
func (c contexts) release() {
	// Rule of cgo: C memory is freed by who allocated it.
	C.free(unsafe.Pointer(c.mem))
}

func (c contexts) at(i int) C.uintptr_t { return c.base + C.uintptr_t(i)*C.sizeof_struct_fb_context }

// newEndpoint opens a datagram endpoint, or a message endpoint that is going to connect to an
// address.
func (d *device) newEndpoint(to []byte) (*endpoint, error) {
	e := &endpoint{dev: d}
	if !d.message {
		return e, check("fi_endpoint", C.fb_endpoint_open(d.d, d.d.info, &e.e))
	}
	// Rule of cgo: C copies the address during the call.
	return e, check("fi_endpoint", C.fb_endpoint_to(d.d, unsafe.Pointer(&to[0]), C.size_t(len(to)), &e.e))
}

// newAccepting opens the message endpoint for a request, whose info it takes.
func (d *device) newAccepting(info *C.struct_fi_info) (*endpoint, error) {
	e := &endpoint{dev: d}
	err := check("fi_endpoint", C.fb_endpoint_open(d.d, info, &e.e))
	C.fi_freeinfo(info)
	return e, err
}

func (e *endpoint) fid() uintptr {
	if e.e.ep == nil {
		return 0
	}
	// Rule 4 of package unsafe: a handle of libfabric's, kept as a number to compare.
	return uintptr(unsafe.Pointer(&e.e.ep.fid))
}

func (e *endpoint) name() ([]byte, error) { return name(&e.e.ep.fid) }

func (e *endpoint) connect(to, param []byte) error {
	to, param = bytes.Clone(to), bytes.Clone(param) // alone in their memory, as cgo wants it
	// Rule of cgo: C copies both during the call.
	return check("fi_connect", C.fb_connect(&e.e, unsafe.Pointer(&to[0]), unsafe.Pointer(&param[0]), C.size_t(len(param))))
}

func (e *endpoint) accept() error { return check("fi_accept", C.fb_accept(&e.e)) }

// address tells a datagram endpoint its peer's.
func (e *endpoint) address(peer []byte) error {
	// Rule of cgo: C copies the address during the call.
	return check("fi_av_insert", C.fb_insert(&e.e, unsafe.Pointer(&peer[0])))
}

// close ends what is in flight: when it returns, the endpoint touches no memory.
func (e *endpoint) close() error { return check("fi_close", C.fb_endpoint_close(&e.e)) }

type wire = C.struct_fb_piece

// post hands over pieces in order and returns how many were taken, and why not all.
func (e *endpoint) post(pieces []wire) (int, error) {
	done := C.fb_post(e.dev.d, &e.e, &pieces[0], C.int(len(pieces)))
	return int(done.n), check("fi_writemsg", done.err)
}

// newWire describes a piece.
func newWire(context C.uintptr_t, local []byte, desc C.uintptr_t, addr, key uint64, write bool) wire {
	w := wire{
		context: context, local: address(local), desc: desc,
		len: C.uint64_t(len(local)), addr: C.uint64_t(addr), key: C.uint64_t(key),
	}
	if write {
		w.write = 1
	}
	return w
}

// inline marks a write that libfabric copies when it is posted.
func inline(w wire) wire {
	w.inject = 1
	return w
}

// injects: a request's info may allow less than the device's.
func (e *endpoint) injects(n int) bool { return n <= min(e.dev.inject, int(e.e.inject)) }

// room is how many completions the queue holds.
func (d *device) room() int { return int(d.d.cq_size) }
