package rdmatest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"forebay/rdma"
)

// Allocate returns size bytes of zeroed, page-aligned memory outside the Go heap. Free it with Free.
func Allocate(size int) ([]byte, error) {
	if size <= 0 {
		return nil, fmt.Errorf("allocate %d bytes: %w", size, rdma.ErrInvalid)
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return b, nil
}

// Free unmaps memory of Allocate. Regions of it must be closed before.
func Free(mem []byte) error { return unix.Munmap(mem) }
