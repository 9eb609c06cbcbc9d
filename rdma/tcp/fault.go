package tcp

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"forebay/rdma"
)

// guarded runs f, which copies to or from registered memory, in the calling goroutine. The owner of
// that memory's file can cut it short at any time. The fault is an error then, and not the end of
// the process. Most copies are system calls, which fail by themselves. Those of bufio and
// crypto/tls are not.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("tcp: the region's file was cut short: %w", rdma.ErrRevoked)
		default:
			panic(fault)
		}
	}()
	return f()
}
