package store

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"forebay/internal/bb"
)

// Guard runs f, which touches memory that the store has leased or pinned for the caller,
// with bb.Lost where that memory's region was cut short.
func Guard(op, path string, f func() error) error { return guard(op, path, f) }

// guard runs f, which reads or writes mapped memory, and turns a fault there into
// an error: whoever owns a region can cut its file short, and an access beyond
// its end is a signal that would otherwise end the process.
func guard(op, path string, f func() error) (err error) {
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
