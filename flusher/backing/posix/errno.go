package posix

import (
	"errors"
	"fmt"
	"syscall"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// passes reports whether an errno says that a file system could not do something now, although nothing is wrong with
// the request. Network file systems return all of these while a server is away, a client is evicted or a target is
// deactivated: Lustre EIO, ENODEV, ESHUTDOWN and ENOTCONN (a target is inactive or its import was invalidated), EAGAIN
// and EINTR (a request was cut by an eviction), and EFAULT for a buffer whose transfer it had to give up. A local disk
// returns EIO, and the next attempt fails with it again.
func passes(errno syscall.Errno) bool {
	switch errno {
	case syscall.EIO, syscall.ENODEV, syscall.ENXIO, syscall.ESHUTDOWN, syscall.ENOTCONN, syscall.ESTALE, syscall.EAGAIN, syscall.EINTR, syscall.EFAULT,
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.ETIMEDOUT,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EREMOTEIO:
		return true
	}
	return false
}

// ofQuota adds to EDQUOT whose quotas a file of these owners counts against. The kernel does not say which of them is
// used up.
func ofQuota(op, name string, err error, uid, gid int) error {
	if !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return (&bb.Error{
		Kind: bb.NoSpace, Op: op, Path: name,
		Err: fmt.Errorf("a quota is used up, of user %d, group %d, or the directory's project: %w", uid, gid, err),
	}).WithRemedy("remove files of theirs, or raise the quota (lfs quota, quota)")
}

// owners returns whose file a Put makes: that of its attributes, where this process may give files away, else its own.
func owners(attrs *backing.Attrs, euid, egid int) (uid, gid int) {
	if attrs != nil && euid == 0 {
		return int(attrs.UID), int(attrs.GID)
	}
	if attrs != nil {
		return euid, int(attrs.GID)
	}
	return euid, egid
}
