package protocol

import (
	"os"

	"golang.org/x/sys/unix"
)

// The slots of a worker: their size in bytes, and how many there are.
const (
	SlotSize   = 1 << 20
	WriteSlots = 8 // bytes on their way to the store
	ReadSlots  = 8 // bytes that were read; readers without one get their bytes in messages
	// Small files have slots of their own, of which only the first SmallSize bytes are ever touched. Each waits in its
	// slot for a sync, and many may be synced at a time.
	SmallSlots = 192
	SmallSize  = 64 << 10
	allSlots   = WriteSlots + ReadSlots + SmallSlots
)

// NewMemory makes the memory of a worker's slots: a file that no process can make shorter.
func NewMemory() (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("forebay-store-worker", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "slots")
	if err := f.Truncate(allSlots * SlotSize); err != nil {
		f.Close()
		return nil, nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	mem, err := MapMemory(int(f.Fd()))
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, mem, nil
}

// MapMemory maps the memory of a worker's slots.
func MapMemory(fd int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, allSlots*SlotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, os.NewSyscallError("mmap", err)
}

// InSlot returns the first n bytes of a slot, or nil if there are none such.
func InSlot(mem []byte, slot, n int64) []byte {
	if slot < 0 || slot >= allSlots || n < 0 || n > SlotSize {
		return nil
	}
	return mem[slot*SlotSize:][:n:n]
}
