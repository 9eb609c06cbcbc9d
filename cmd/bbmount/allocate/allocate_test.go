package allocate

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOf(t *testing.T) {
	t.Parallel()
	const keep, punch, zero = unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE
	for _, c := range []struct {
		mode   uint32
		off, n uint64
		want   Plan
		errno  syscall.Errno
	}{
		{off: 0, n: 50, want: Plan{Size: 100}},
		{off: 50, n: 100, want: Plan{Room: 50, Size: 150}},
		{mode: keep, off: 50, n: 100, want: Plan{Room: 50, Size: 100}},
		{mode: punch | keep, off: 50, n: 100, want: Plan{ZeroAt: 50, ZeroTo: 100, Size: 100}},
		{mode: punch | keep, off: 10, n: 20, want: Plan{ZeroAt: 10, ZeroTo: 30, Size: 100}},
		{mode: punch | keep, off: 200, n: 20, want: Plan{ZeroAt: 100, ZeroTo: 100, Size: 100}},
		{mode: zero, off: 50, n: 100, want: Plan{Room: 50, ZeroAt: 50, ZeroTo: 100, Size: 150}},
		{mode: zero | keep, off: 50, n: 100, want: Plan{Room: 50, ZeroAt: 50, ZeroTo: 100, Size: 100}},
		{mode: punch, off: 0, n: 1, errno: syscall.EOPNOTSUPP},
		{mode: unix.FALLOC_FL_COLLAPSE_RANGE, off: 0, n: 1, errno: syscall.EOPNOTSUPP},
		{mode: unix.FALLOC_FL_INSERT_RANGE, off: 0, n: 1, errno: syscall.EOPNOTSUPP},
		{mode: unix.FALLOC_FL_UNSHARE_RANGE, off: 0, n: 1, errno: syscall.EOPNOTSUPP},
		{off: 1, n: 0, errno: syscall.EINVAL},
		{off: 1 << 62, n: 1 << 62, errno: syscall.EFBIG},
		{off: 1 << 63, n: 1 << 63, errno: syscall.EFBIG},
		{off: 1, n: 1 << 50, errno: syscall.EFBIG},
	} {
		got, errno := Of(c.mode, c.off, c.n, 100)
		if got != c.want || errno != c.errno {
			t.Errorf("mode %x, %d bytes at %d: %+v, %v; want %+v, %v", c.mode, c.n, c.off, got, errno, c.want, c.errno)
		}
	}
}
