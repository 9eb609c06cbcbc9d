// Package mapped turns faults of mapped memory into errors. It must never depend on the owner of
// that memory.
package mapped

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"forebay/internal/bb"
)

// Guard runs f, which reads or writes mapped memory, and turns a fault there into an error of kind
// bb.Lost. A user can cut the file of a mapping short at any time, and an access beyond its end is
// a signal that would otherwise end the process. f runs in the calling goroutine, and the accesses
// of goroutines that it starts are not guarded. A deferred call of f runs before Guard returns, as
// in any panic.
func Guard(op, path string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = &bb.Error{
				Kind: bb.Lost, Op: op, Path: path,
				Err: fmt.Errorf("mapped memory at %#x is gone: a region's file was cut short, or its device failed", r.Addr()),
			}
		default:
			panic(r)
		}
	}()
	return f()
}

// Gather appends copies of pieces of mapped memory to data, under Guard.
func Gather(data []byte, path string, pieces ...[]byte) ([]byte, error) {
	err := Guard("read", path, func() error {
		for _, p := range pieces {
			data = append(data, p...)
		}
		return nil
	})
	return data, err
}
