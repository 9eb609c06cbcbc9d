package lustre

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Project returns the project against whose quota an open file's bytes count, or 0 if there is
// none, or if the file system has none. Forebay sets none, since a directory hands its own on to
// new entries in it. It is read as lfs project does (FS_IOC_FSGETXATTR; ll_fsxattr in
// lustre/llite/file.c).
func Project(f *os.File) uint32 {
	const (
		getFSXAttr = 0x801c581f // of linux/fs.h
		projectAt  = 16         // fsx_projid in struct fsxattr
	)
	var attr [28]byte // struct fsxattr
	// Rule 4 of package unsafe: the pointer is converted in the call, so that attr stays where it
	// is until it returns.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getFSXAttr, uintptr(unsafe.Pointer(&attr)))
	if errno != 0 {
		return 0
	}
	return binary.NativeEndian.Uint32(attr[projectAt:])
}
