package kernel

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Sharing is when programs on other nodes see written bytes.
type Sharing uint8

const (
	CloseToOpen Sharing = iota // a later open sees what was closed or synced; the kernel keeps pages and attributes
	Coherent                   // a later read sees what a write has returned; the kernel keeps neither
)

// How returns the kernel's flags of an open file, which would be those of CloseToOpen.
func (s Sharing) How(how uint32) uint32 {
	if s == Coherent {
		return fuse.FOPEN_DIRECT_IO
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
