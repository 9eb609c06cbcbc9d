//go:build ofi && cgo

package fi

// #include "raw.h"
import "C"

import (
	"fmt"
	"time"
)

// Raw is one end of a connection over libfabric alone. It has one thread that polls, and message
// endpoints, no isolation, no isolation, no recovery. It shows the best possible figures.
// Benchmarks compare with it. Not for concurrent use.
type Raw struct{ raw *C.struct_raw }

// OpenRaw opens a provider of message endpoints at one of this machine's addresses, with so many
// bytes of registered memory.
func OpenRaw(provider, address string, size int64) (*Raw, error) {
	name, at := C.CString(provider), C.CString(address)
	defer C.raw_free_string(name)
	defer C.raw_free_string(at)
	var why [200]C.char
	r := C.raw_open(name, at, C.uint64_t(size), &why[0], C.int(len(why)))
	if r == nil {
		return nil, fmt.Errorf("libfabric: %s", C.GoString(&why[0]))
	}
	return &Raw{r}, nil
}

// Listen returns the address that Connect takes.
func (r *Raw) Listen() (string, error) {
	var address [300]C.char
	if err := check("listen", C.raw_listen(r.raw, &address[0], C.int(len(address)))); err != nil {
		return "", err
	}
	return C.GoString(&address[0]), nil
}

// Serve accepts one connection, opens the memory to it, and answers until it ends.
func (r *Raw) Serve() error { return check("serve", C.raw_serve(r.raw)) }

// Connect connects to an end that serves.
func (r *Raw) Connect(address string) error {
	text := C.CString(address)
	defer C.raw_free_string(text)
	return check("connect", C.raw_connect(r.raw, text))
}

// Run does count operations of size bytes, depth in flight, at most 64, and returns the time until
// the last has arrived.
func (r *Raw) Run(what RawOp, size, depth int, count int64) (time.Duration, error) {
	ns := C.raw_run(r.raw, C.int(what), C.uint64_t(size), C.int(depth), C.int64_t(count))
	if ns < 0 {
		return 0, check(what.String(), C.int(ns))
	}
	return time.Duration(ns), nil
}

// Close ends the connection. Idempotent.
func (r *Raw) Close() {
	C.raw_close(r.raw)
	r.raw = nil
}
