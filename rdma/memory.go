package rdma

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Allocate returns size bytes of zeroed, page-aligned memory outside the Go heap, with an
// anonymous file behind it, so that every provider can register it. Free it with Memory.Free.
func Allocate(size int) (Memory, error) {
	if size <= 0 {
		return Memory{}, fmt.Errorf("allocate %d bytes: %w", size, ErrInvalid)
	}
	fd, err := unix.MemfdCreate("rdma", unix.MFD_CLOEXEC)
	if err != nil {
		return Memory{}, fmt.Errorf("create memory file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "rdma")
	if err := file.Truncate(int64(size)); err != nil {
		return Memory{}, errors.Join(fmt.Errorf("size memory file: %w", err), file.Close())
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return Memory{}, errors.Join(fmt.Errorf("map %d bytes: %w", size, err), file.Close())
	}
	return Memory{Bytes: b, File: file}, nil
}

// Free unmaps and closes what Allocate returned. Regions of it must be closed before.
func (m Memory) Free() error {
	return errors.Join(unix.Munmap(m.Bytes), m.File.Close())
}
