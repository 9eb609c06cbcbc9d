// Package allocate decides the effect of a call of fallocate(2) on a file. It must never depend on the file.
package allocate

import (
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Plan is the work of one call.
type Plan struct {
	Room           int64 // bytes that the buffer must have free
	ZeroAt, ZeroTo int64 // range that reads as zeros afterwards; equal: none
	Size           int64 // of the file afterwards
}

// Of returns the plan of a call, for a file of size bytes. Room is compared and not set aside. A
// later write waits for room as any other.
//
//	mode                        size may grow   the range reads as
//	0                           yes             before, and zeros behind the end
//	KEEP_SIZE                   no              before
//	PUNCH_HOLE | KEEP_SIZE      no              zeros
//	ZERO_RANGE                  yes             zeros
//	ZERO_RANGE | KEEP_SIZE      no              zeros
//	others                      EOPNOTSUPP
func Of(mode uint32, off, n uint64, size int64) (Plan, syscall.Errno) {
	if n == 0 {
		return Plan{}, syscall.EINVAL
	}
	if off > bb.MaxFileSize || n > bb.MaxFileSize-off {
		return Plan{}, syscall.EFBIG
	}
	p := Plan{Size: size}
	end := int64(off + n)
	switch mode &^ unix.FALLOC_FL_KEEP_SIZE {
	case 0:
		p.Room = max(0, end-size)
	case unix.FALLOC_FL_ZERO_RANGE:
		p.Room = max(0, end-size)
		p.ZeroAt, p.ZeroTo = min(int64(off), size), min(end, size)
	case unix.FALLOC_FL_PUNCH_HOLE:
		if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
			return Plan{}, syscall.EOPNOTSUPP
		}
		p.ZeroAt, p.ZeroTo = min(int64(off), size), min(end, size)
	default:
		return Plan{}, syscall.EOPNOTSUPP
	}
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		p.Size = max(size, end)
	}
	return p, 0
}
