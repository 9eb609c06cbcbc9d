//go:build lockorder && !amd64

package lockorder

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
)

// goroutines has the held of each goroutine that holds some (uintptr to *held).
var goroutines sync.Map

func ofGoroutine() *held {
	id := goroutineID()
	if h, ok := goroutines.Load(id); ok {
		return h.(*held)
	}
	return &held{id: id}
}

func (h *held) keep() { goroutines.Store(h.id, h) }

func (h *held) drop() { goroutines.Delete(h.id) }

// goroutineID reads the number from the first line of a stack, "goroutine 7 [running]:". The
// runtime offers no other way, and this one is slow.
func goroutineID() uintptr {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	id, err := strconv.ParseUint(string(line[:bytes.IndexByte(line, ' ')]), 10, 64)
	if err != nil {
		panic("lock order: no number of a goroutine in " + string(line))
	}
	return uintptr(id)
}
