package kernel

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Sharing is when programs on other nodes see written bytes, and which bytes the kernel keeps pages of.
type Sharing uint8

const (
	CloseToOpen  Sharing = iota // a later open sees what was closed or synced; the kernel keeps pages and attributes
	DirectWrites                // the same, and the bytes of programs that only write go past the pages
	Coherent                    // a later read sees what a write has returned; the kernel keeps neither
)

// Direct reports whether the bytes of an open file go past the kernel's pages. Flags are those of open(2).
func (s Sharing) Direct(flags uint32) bool {
	return s == Coherent || s == DirectWrites && flags&syscall.O_ACCMODE == syscall.O_WRONLY
}

// How returns the kernel's flags of a file that is opened with flags of open(2), which would be how if its bytes go
// through pages.
func (s Sharing) How(how, flags uint32) uint32 {
	if s.Direct(flags) {
		how = fuse.FOPEN_DIRECT_IO // pages of earlier openers are dropped
	}
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		how |= fuse.FOPEN_NOFLUSH // there is nothing to commit when it is closed
	}
	return how
}

// Keep returns how long the kernel keeps attributes, which it may keep for d where only later opens count.
func (s Sharing) Keep(d time.Duration) time.Duration {
	if s == Coherent {
		return 0
	}
	return d
}
