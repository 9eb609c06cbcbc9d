// Package lustre has what the adaptor of file systems does on Lustre alone: stripe layouts, targets that are full
// or do not answer. It must never know a store, nor whose files it works on.
package lustre

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Magic is what statfs(2) calls Lustre (LL_SUPER_MAGIC).
const Magic = 0x0BD00BD0

// leastLaidOut is the size of the smallest file, in bytes, that gets a layout of its own.
const leastLaidOut = 1 << 20

// Layout is a row of the stripe table: how files of at least MinSize bytes are
// spread over Lustre's storage targets.
type Layout struct {
	MinSize    int64 // bytes
	Count      int   // storage targets; -1: all of them
	StripeSize int64 // bytes, a multiple of 64 KiB; 0: the file system's default
}

// CheckLayouts reports every fault of a table at once.
func CheckLayouts(table []Layout) []error {
	var errs []error
	for i, l := range table {
		if l.MinSize < 0 || l.Count == 0 || l.Count < -1 || l.Count >= math.MaxUint16 {
			errs = append(errs, fmt.Errorf("layout %d: size %d or stripe count %d is out of range", i, l.MinSize, l.Count))
		}
		if l.StripeSize < 0 || l.StripeSize > math.MaxUint32 || l.StripeSize%(64<<10) != 0 {
			errs = append(errs, fmt.Errorf("layout %d: stripe size %d is not a multiple of 64 KiB below 4 GiB", i, l.StripeSize))
		}
	}
	return errs
}

// LayoutFor returns the row with the largest MinSize that a file of that size
// reaches, and whether there is one: without, the directory's own layout holds. Files below leastLaidOut have none of
// their own: it costs the metadata server a request, and gains nothing.
func LayoutFor(table []Layout, size int64) (Layout, bool) {
	best, found := Layout{}, false
	for _, l := range table {
		if size >= max(l.MinSize, leastLaidOut) && (!found || l.MinSize > best.MinSize) {
			best, found = l, true
		}
	}
	return best, found
}

// Bytes of struct lov_user_md_v1 (lustre_user.h), in the byte order of the machine: magic, pattern, id of the objects
// (16 bytes), size of a stripe, count of stripes, first target.
const (
	lovMagic  = 0x0BD10BD0
	lovRAID0  = 1
	lovSize   = 32
	anyTarget = 0xFFFF // the metadata server chooses the first
)

// layoutAttr is the attribute that sets a file's layout.
const layoutAttr = "lustre.lov"

// DelayCreate are the flags of open(2) by which Lustre makes a file without objects, so that its layout can be set
// (O_LOV_DELAY_CREATE of lustre_user.h). Other file systems ignore both for a regular file.
const DelayCreate = syscall.O_NOCTTY | syscall.O_ASYNC

// attr returns the value of layoutAttr.
func (l Layout) attr() []byte {
	b := make([]byte, 0, lovSize)
	b = binary.NativeEndian.AppendUint32(b, lovMagic)
	b = binary.NativeEndian.AppendUint32(b, lovRAID0)
	b = append(b, make([]byte, 16)...)
	b = binary.NativeEndian.AppendUint32(b, uint32(l.StripeSize))
	b = binary.NativeEndian.AppendUint16(b, uint16(l.Count)) // -1: all of them, 0xFFFF
	return binary.NativeEndian.AppendUint16(b, anyTarget)
}

// Set gives a file that was made with DelayCreate its layout. Without, the first write gives it the directory's.
func (l Layout) Set(f *os.File) error {
	for {
		err := unix.Fsetxattr(int(f.Fd()), layoutAttr, l.attr(), 0)
		if err != unix.EINTR {
			return os.NewSyscallError("fsetxattr", err)
		}
	}
}
