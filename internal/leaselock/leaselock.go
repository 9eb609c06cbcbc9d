// Package leaselock marks the memory that a client may be writing to, with locks of the
// kernel's on byte ranges of region files. A lock outlives the session and the daemon that
// granted the lease, and ends with the process that holds it, by any cause. The package must
// never depend on leases, sessions or segments.
//
// The protocol, between a client that maps region files and the daemon of its node:
//
//	client                                      daemon
//	Lease is answered
//	shared lock on the segment's range
//	is the session alive still? if not:
//	  unlock, write nothing
//	...writes into the segment...
//	ReturnLease: unlock, then send              the segment may be leased again
//
//	session or daemon ended: the lock stays     before the segment is freed, evicted or
//	until no part of the client can write       spilled: is any of the range locked?
//	there any more, then unlock                 then it stays as it is
//
// The range is that of the whole segment: [Offset, Offset+Length) of Lease in the region's file.
// Locks are shared, so that adjoining and repeated ones never wait for each other. The daemon tests
// for an exclusive one, without acquiring it. Go clients use locks of open files (F_OFD_SETLK),
// others may use those of a process (F_SETLK), which conflict with them alike. A client that locks
// after its session has ended may come too late, so it checks the session once more when it has the
// lock. The daemon ends a session before it frees its segments. Clients of earlier releases lock
// nothing. Their memory is free as before.
//
// A reader may lock its mapped and pinned segments, too. A daemon that starts again finds the lock,
// as a writer's, and the segment stays as it is until the reader has left.
package leaselock

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Hold locks n bytes of a region's file from off on. It never waits. The lock lasts until
// Release, or until f and all that was mapped from it is closed.
func Hold(f *os.File, off, n int64) error { return lock(f, unix.F_RDLCK, off, n) }

// Release unlocks n bytes of a region's file from off on.
func Release(f *os.File, off, n int64) error { return lock(f, unix.F_UNLCK, off, n) }

func lock(f *os.File, kind int16, off, n int64) error {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: n}
	return control(f, unix.F_OFD_SETLK, &l)
}

// Held reports whether any other open file than f has a lock on any of n bytes from off on.
func Held(f *os.File, off, n int64) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: off, Len: n}
	err := control(f, unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, err
}

// control is fcntl on f, which is not closed meanwhile.
func control(f *os.File, cmd int, l *unix.Flock_t) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = unix.FcntlFlock(fd, cmd, l); failed != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fcntl", failed)
}
