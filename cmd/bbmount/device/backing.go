package device

import (
	"syscall"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Calls of /dev/fuse for files that the kernel reads itself (linux/fuse.h).
const (
	backingOpen  = 0x4010e501
	backingClose = 0x4004e502
)

// RegisterBackingFd registers a file that the kernel may read in place of one of the mount. It returns the kernel's number of it.
func (d *Device) RegisterBackingFd(m *fuse.BackingMap) (id int32, errno syscall.Errno) {
	if d.conn.Control(func(fd uintptr) {
		var number uintptr
		// unsafe, rule 4: the pointer is an argument of a system call.
		number, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, backingOpen, uintptr(unsafe.Pointer(m)))
		id = int32(number)
	}) != nil {
		errno = unix.EBADF
	}
	return id, errno
}

// UnregisterBackingFd is the inverse of RegisterBackingFd.
func (d *Device) UnregisterBackingFd(id int32) (errno syscall.Errno) {
	if d.conn.Control(func(fd uintptr) {
		// unsafe, rule 4: the pointer is an argument of a system call.
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, backingClose, uintptr(unsafe.Pointer(&id)))
	}) != nil {
		errno = unix.EBADF
	}
	return errno
}
