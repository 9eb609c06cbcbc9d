package confine

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

var (
	refusedHere = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_USTAT, unix.SYS_SYSFS}
	neverHere   = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM}
)
