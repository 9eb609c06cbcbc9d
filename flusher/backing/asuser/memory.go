package asuser

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/checksum"
)

const (
	slotSize   = 1 << 20
	writeSlots = 8 // bytes on their way to the store
	readSlots  = 8 // bytes that were read; readers without one get their bytes in messages
	// Small files have slots of their own, of which only the first smallSize bytes are ever touched: each waits in its
	// slot for a sync, and many may be synced at a time.
	smallSlots = 64
	smallSize  = 64 << 10
	allSlots   = writeSlots + readSlots + smallSlots
)

// newMemory makes the memory of a worker's slots: a file that nobody can make shorter.
func newMemory() (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("forebay-store-worker", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "slots")
	if err := f.Truncate(allSlots * slotSize); err != nil {
		f.Close()
		return nil, nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	mem, err := mapMemory(int(f.Fd()))
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, mem, nil
}

func mapMemory(fd int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, allSlots*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, os.NewSyscallError("mmap", err)
}

// slots hands slots out, the one that was used last first: its pages are there.
type slots struct {
	mu   sync.Mutex
	free []int64
	wait chan struct{} // closed when one is given back
}

func newSlots(from, n int64) *slots {
	s := &slots{wait: make(chan struct{})}
	for i := range n {
		s.free = append(s.free, from+n-1-i)
	}
	return s
}

// tryTake returns a slot, or noSlot.
func (s *slots) tryTake() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return noSlot
	}
	last := len(s.free) - 1
	slot := s.free[last]
	s.free = s.free[:last]
	return slot
}

// take waits for a slot, until ctx or the worker ends.
func (s *slots) take(ctx context.Context, gone <-chan struct{}) (int64, error) {
	for {
		s.mu.Lock()
		wait := s.wait
		s.mu.Unlock()
		if slot := s.tryTake(); slot != noSlot {
			return slot, nil
		}
		select {
		case <-wait:
		case <-gone:
			return noSlot, errGone
		case <-ctx.Done():
			return noSlot, ctx.Err()
		}
	}
}

func (s *slots) give(slot int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slot)
	close(s.wait)
	s.wait = make(chan struct{})
}

// inSlot returns the first n bytes of a slot; nil if there are none such.
func inSlot(mem []byte, slot, n int64) []byte {
	if slot < 0 || slot >= allSlots || n < 0 || n > slotSize {
		return nil
	}
	return mem[slot*slotSize:][:n:n]
}

// gather copies pieces of a source, and returns the checksum of what it has copied.
func gather(name string, dst []byte, pieces [][]byte) (sum uint64, err error) {
	err = backing.Touch(name, func() error {
		for _, p := range pieces {
			sum = checksum.CopyOut(dst, p, sum)
			dst = dst[len(p):]
		}
		return nil
	})
	return sum, err
}
