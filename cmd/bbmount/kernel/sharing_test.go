package kernel

import (
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

func TestHow(t *testing.T) {
	t.Parallel()
	const keep, direct, silent = fuse.FOPEN_KEEP_CACHE, fuse.FOPEN_DIRECT_IO, fuse.FOPEN_NOFLUSH
	for _, c := range []struct {
		sharing             Sharing
		reads, writes, both uint32 // of a file whose pages may be kept
	}{
		{CloseToOpen, keep | silent, keep, keep},
		{DirectWrites, keep | silent, direct, keep},
		{Coherent, direct | silent, direct, direct},
	} {
		for flags, want := range map[uint32]uint32{
			syscall.O_RDONLY: c.reads, syscall.O_WRONLY | syscall.O_APPEND: c.writes, syscall.O_RDWR: c.both,
		} {
			if got := c.sharing.How(keep, flags); got != want {
				t.Errorf("sharing %d, flags %#x: %#x, not %#x", c.sharing, flags, got, want)
			}
		}
	}
}
